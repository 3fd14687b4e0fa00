"""The commits of a flow: a batch, windows that close without events, and events whose wait has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from millpond.engine.app_context import Context
from millpond.engine.batch import Batch
from millpond.engine.batch_run import BatchRun
from millpond.engine.dead_letters import NAME as DEAD_LETTERS
from millpond.engine.dead_letters import Letters
from millpond.engine.emit import stage_outputs
from millpond.engine.engine_use import EngineUse
from millpond.engine.groups import emit_closed
from millpond.engine.ledger import FlowEntry, flow_entry, flow_key
from millpond.engine.spark.transfer import Views
from millpond.engine.statements import Statements
from millpond.engine.table_changes import Staged, announce, publish
from millpond.engine.waiting_events import BESIDE, RELEASED
from millpond.engine.watermark import Reached, closing
from millpond.engine.work import Work
from millpond.faults import reach
from millpond.plan.model import FlowPlan, StepKind
from millpond.relational.compiled import QueryCache


class Commits:
    """Each commit contains table changes, staged outputs and the flow's ledger entry, all or nothing. One commit at a
    time; sinks publish after it."""

    def __init__(self, plan: FlowPlan, context: Context, statements: Statements) -> None:
        self._plan, self._context, self._statements = plan, context, statements
        self._cache = QueryCache()
        self.locks = _tables_written(plan, context)
        self.use = EngineUse(plan, {s.id: s.spec.shown for s in context.plan.sinks}, context.store)

    @property
    def entry(self) -> FlowEntry:
        """The flow's ledger entry: its last committed batch."""
        return flow_entry(self._context.store, self._plan.id)

    def letters(self) -> Letters:
        """The writer of the flow's dead letters."""
        return self._context.letters(self._plan.name, self._context.plan.source(self._plan.source), self._plan.id)

    def commit_batch(
        self,
        batch: Batch,
        reached: Reached,
        views: Views,
        originals: Callable[[pa.Table], list[bytes | None]],
        offsets: str = "",
    ) -> Staged:
        """Run a batch through all statements, in order, and commit it together with its ledger entry, which contains
        `offsets`. Returns the staged outputs for `publish`; the batch may be released before."""
        started = time.monotonic()
        with self._context.store.begin(locks=self.locks) as tx:
            reach("flow.begun")
            work = Work(self._context, tx, views, self._cache)
            run = BatchRun(self._plan, batch, work, self.letters(), reached, originals=originals)
            self._statements.run(run, self._plan.steps)
            staged = settle(work, self._plan.id, FlowEntry(batch.id, tuple(run.staged), reached.after, offsets))
            reach("flow.worked")
            self.use.put(tx)
            tx.commit()
        self.use.add(batch.rows, time.monotonic() - started, run.timed, sum(run.outside.values()))
        return staged

    def close_windows(self, reached: int) -> None:
        """A commit without a batch, after the watermark has advanced by the clock."""
        entry = self.entry
        with self._context.store.begin(locks=self.locks) as tx:
            work = Work(self._context, tx, self._views("mp_idle"), self._cache)
            batch = Batch.of(entry.batch, pa.table({}), pa.table({}))
            watermark = Reached(entry.watermark, reached)
            run = BatchRun(self._plan, batch, work, self.letters(), watermark, part=f"idle-{reached}")
            closed = [emit_closed(run, step) for step in closing(self._plan)]
            if not any(closed):
                return
            stage_outputs(run)
            staged = settle(work, self._plan.id, replace(entry, sinks=tuple(run.staged), watermark=reached))
            tx.commit()
        publish(self._context, staged)

    def release_waiting(self) -> None:
        """A commit without a batch: only waiting events are run through their statements."""
        store, entry = self._context.store, self.entry
        number = store.get(RELEASED + self._plan.id) or 0
        outputs: Staged = []
        with store.begin(locks=self.locks) as tx:
            work = Work(self._context, tx, self._views("mp_waited"), self._cache)
            for step in self._plan.steps:
                if step.waiting:
                    held = work.table(step.waiting).to_arrow().slice(0, 0).drop_columns([c.name for c in BESIDE])
                    batch = Batch.of(entry.batch, held, pa.table({}))
                    watermark = Reached(entry.watermark, entry.watermark)
                    run = BatchRun(self._plan, batch, work, self.letters(), watermark, outputs)
                    self._statements.run_steps(replace(run, part=f"released-{number}"), (step,))
            tx.put(RELEASED + self._plan.id, number + 1)
            staged = settle(work, self._plan.id, replace(entry, sinks=tuple(outputs)))
            tx.commit()
        publish(self._context, staged)

    def _views(self, prefix: str) -> Views:
        return Views(self._context.spark, self._context.exchange, prefix)


def settle(work: Work, flow_id: str, entry: FlowEntry) -> Staged:
    """The end of a flow's transaction: refresh views, stage CHANGES statements, and put the ledger entry. Returns what
    is published after the commit."""
    work.refresh()
    changes = announce(work, flow_id)
    work.tx.put(flow_key(flow_id), entry.as_json())
    return [*entry.sinks, *changes]


def _tables_written(plan: FlowPlan, context: Context) -> tuple[str, ...]:
    outside = (StepKind.SINK, StepKind.RELAY)
    written = {s.target for s in plan.steps if s.kind not in outside}
    companions = {c for s in plan.steps if s.aggregate for c in s.aggregate.companions}
    companions |= {s.waiting for s in plan.steps if s.waiting}
    companions |= {table for s in plan.steps if s.over for table in s.over.tables}
    views = {v.name for v in context.views_of(written)}
    return tuple(sorted(n.lower() for n in written | companions | views | {DEAD_LETTERS}))
