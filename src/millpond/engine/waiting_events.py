"""Events that wait for a joined row ('on.missing' = 'wait'): stored in a hidden table and retried until a timeout."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from sqlglot import exp

from millpond.contracts.source import DELETED, IDENTITY, ORDER_MAJOR, ORDER_MINOR
from millpond.contracts.table import Store, TableSpec
from millpond.engine.batch import Batch
from millpond.engine.batch_run import BatchRun
from millpond.plan.missing import Wait, waits_of
from millpond.plan.model import FlowPlan, Step
from millpond.plan.statement_groups import ORDER, carry_order
from millpond.schema import Column, Schema

# Since when an event waits, in microseconds since the epoch, so that it is valid after a restart; and the batch in
# which it arrived, which is part of the marks of its rows.
SINCE, ARRIVED = "__since", "__batch"
BESIDE = (Column(SINCE, pa.int64()), Column(ARRIVED, pa.int64()))
# The interval at which waiting events are retried.
LOOK_S = 0.2
# Counts the commits that only release waiting events, so that their files in sinks have distinct names.
RELEASED = "released:"


def waiting_spec(step: Step, batch: Schema) -> TableSpec:
    """The table of a statement's waiting events; messages that delete are not events."""
    columns = (c for c in batch.columns if c.name not in (DELETED, IDENTITY))
    return TableSpec(step.waiting, Schema((*columns, *BESIDE)), hidden=True)


def now_us() -> int:
    return time.time_ns() // 1000


def hold_back(run: BatchRun, step: Step) -> BatchRun:
    """The batch for the statement: including waiting events whose row exists now or whose wait has timed out, and
    without those that must wait from now on."""
    held = run.work.table(step.waiting)
    now = now_us()
    arrived = run.batch.to_arrow()
    arrived = arrived.append_column(SINCE, pa.array([now] * arrived.num_rows, pa.int64()))
    arrived = arrived.append_column(ARRIVED, pa.array([run.batch.id] * arrived.num_rows, pa.int64()))
    schema, before = held.schema.arrow(), held.to_arrow()
    events = pa.concat_tables([before, arrived.select(schema.names).cast(schema)])
    events = events.sort_by([(name, "ascending") for name in ORDER])
    waits = _must_wait(run, step, events, now) if events.num_rows else np.empty(0, dtype=bool)
    held.replace(events.filter(pa.array(waits)))
    ready = events.filter(pa.array(~waits)).drop_columns([c.name for c in BESIDE])
    places = zip(*(before[name].to_pylist() for name in ORDER), strict=True)
    batches = dict(zip(places, before[ARRIVED].to_pylist(), strict=True))
    return replace(run, batch=Batch.of(run.batch.id, ready, run.batch.bad), arrived=batches)


def _must_wait(run: BatchRun, step: Step, events: pa.Table, now: int) -> np.ndarray:
    """For each event whether a join finds no row for it yet, within the join's timeout and limit."""
    asked = events.drop_columns([c.name for c in BESIDE])
    order = list(zip(events[ORDER_MAJOR].to_pylist(), events[ORDER_MINOR].to_pylist(), strict=True))
    since = events[SINCE].to_numpy()
    result = np.zeros(events.num_rows, dtype=bool)
    # Lookups of the batch's keys do not include those of waiting events.
    run.work.lookups = None
    for wait in waits_of(step.query):
        absence = run.work.cache.once(f"absent {wait.position}", step.query, partial(_absent, step.query, wait))
        rows = run.work.rows(absence, asked)
        absent = set(zip(rows[ORDER_MAJOR].to_pylist(), rows[ORDER_MINOR].to_pylist(), strict=True))
        waits = np.array([pair in absent for pair in order]) & (since + wait.timeout_us > now)
        # Events beyond 'wait.max.rows' do not wait; the oldest continue to wait.
        result |= waits & (np.cumsum(waits) <= wait.rows_max)
    return result


def _absent(query: exp.Query, wait: Wait) -> exp.Query:
    """The query of the positions of events for which a join finds no row."""
    assert isinstance(query, exp.Select)
    joins = [join.copy() for join in query.args["joins"][: wait.position + 1]]
    joins[-1].set("side", "LEFT")
    joins[-1].set("kind", "ANTI")
    joins[-1].set("mp_options", None)
    from_ = query.args["from_"].copy()
    found = carry_order(exp.Select(expressions=[], from_=from_, joins=joins, with_=query.args.get("with_")))
    assert found is not None, "the statement starts from the stream"
    return found


class Waiting:
    """Determines when a flow's waiting events are retried: when a table it reads has changed, or after a timeout."""

    def __init__(self, flow: FlowPlan, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps = tuple(s for s in flow.steps if s.waiting)
        self._reads = flow.reads
        self._store = store
        self._clock = clock
        self._look_at = 0.0
        self._versions: tuple[int, ...] = ()

    def some(self) -> bool:
        """Whether any event waits."""
        return any(len(self._store.table(s.waiting)) for s in self._steps)

    def is_due(self) -> bool:
        """Whether waiting events should be retried now; True at most every LOOK_S."""
        if not self._steps or self._clock() < self._look_at:
            return False
        self._look_at = self._clock() + LOOK_S
        if not self.some():
            return False
        versions = tuple(self._store.table(name).version for name in self._reads)
        moved, self._versions = versions != self._versions, versions
        return moved or any(self._is_over(step) for step in self._steps)

    def _is_over(self, step: Step) -> bool:
        since = self._store.table(step.waiting).scalar(f"MIN({SINCE})")
        shortest = min(w.timeout_us for w in waits_of(step.query))
        return since is not None and since + shortest <= now_us()
