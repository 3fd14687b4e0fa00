"""Dead letters sent again through the statements that refused them, in one commit with their removal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from millpond.contracts.table import ReadTable, Transaction
from millpond.plan.model import FlowPlan, Step, StepKind
from millpond.runtime.context import Context
from millpond.runtime.dead_letters import ALL_STATEMENTS, NAME, ORIGIN, origin_key, statement_id
from millpond.runtime.flows.batch import split_records
from millpond.runtime.flows.batch_run import BatchRun
from millpond.runtime.flows.commits import settle
from millpond.runtime.flows.flow import Flow
from millpond.runtime.flows.watermark import Reached
from millpond.runtime.flows.work import Work
from millpond.runtime.spark.access import Views
from millpond.runtime.views.announcing import Staged, publish

# Numbers the replays of a flow, so that their sinks' files have names of their own.
REPLAYED = "replayed:"


@dataclass(frozen=True)
class Replayed:
    """What became of dead letters: how many were sent again, how many of these were refused again, and how many cannot
    be sent: rows of a load, rows of a statement that is gone, or only a part of what came of a record."""

    sent: int = 0
    refused: int = 0
    left: int = 0

    def __add__(self, other: Replayed) -> Replayed:
        return Replayed(self.sent + other.sent, self.refused + other.refused, self.left + other.left)


@dataclass(frozen=True)
class Choice:
    """Which letters are meant: those that a condition is true for, or all."""

    where: str | None = None

    def of(self, table: ReadTable) -> pa.Table:
        return table.to_arrow() if self.where is None else table.find(self.where)


def replay(context: Context, flows: Sequence[Flow], choice: Choice) -> Replayed:
    """Send the chosen letters through their flows again, flow by flow; each flow's in one transaction."""
    letters = choice.of(context.store.table(NAME))
    origins = context.store.items(ORIGIN)
    grouped = {flow.plan.id: _groups(flow.plan, letters, origins) for flow in flows}
    sendable = sum(rows.num_rows for groups in grouped.values() for rows in groups.values())
    found = Replayed(left=letters.num_rows - sendable)
    for flow in flows:
        if grouped[flow.plan.id]:
            with flow.between_batches():
                found += _send(context, flow, choice)
    return found


def _send(context: Context, flow: Flow, choice: Choice) -> Replayed:
    store, entry = context.store, flow.commits.entry
    number = store.get(REPLAYED + flow.plan.id) or 0
    outputs: Staged = []
    with store.begin(locks=flow.commits.locks) as tx:
        groups = _groups(flow.plan, choice.of(tx.table(NAME)), store.items(ORIGIN))
        sent = _take_out(tx, groups)
        before = len(tx.table(NAME))
        work = Work(context, tx, Views(context.spark, context.exchange, "mp_replay"))
        letters = flow.commits.letters()
        for part, (statement, rows) in enumerate(groups.items()):
            # The marks of its rows are those of their events alone, whenever the replay is done.
            batch = split_records(flow.opened().again(context.spark(), rows), 0, small=True)
            run = BatchRun(flow.plan, batch, work, letters, Reached(entry.watermark, entry.watermark), outputs)
            run = replace(run, originals=_raw_of(rows), part=f"replayed-{number}-{part}")
            flow.statements.run(run, _steps(flow.plan, statement))
        refused = len(tx.table(NAME)) - before
        tx.put(REPLAYED + flow.plan.id, number + 1)
        staged = settle(work, flow.plan.id, replace(entry, sinks=tuple(outputs)))
        tx.commit()
    publish(context, staged)
    return Replayed(sent, refused)


def _groups(plan: FlowPlan, letters: pa.Table, origins: dict[str, Any]) -> dict[str, pa.Table]:
    """A flow's letters by the statement that refused them, without those that cannot be sent."""
    found: dict[str, list[int]] = {}
    for row, (at, *place) in enumerate(_columns(letters, "at", "partition", "position")):
        flow_id, statement = origins.get(origin_key(at)) or ("", "")
        if flow_id == plan.id and None not in place and _steps(plan, statement):
            found.setdefault(statement, []).append(row)
    return {statement: letters.take(rows) for statement, rows in found.items()}


def _steps(plan: FlowPlan, statement: str) -> tuple[Step, ...]:
    """The statements to send a letter through; none where it cannot be sent. A table that is kept by message keys
    needs the key, which a letter does not hold."""
    wanted = [s for s in plan.steps if statement in (ALL_STATEMENTS, statement_id(plan, s))]
    return () if any(step.kind is StepKind.LATEST for step in wanted) else tuple(wanted)


def _take_out(tx: Transaction, groups: dict[str, pa.Table]) -> int:
    """Remove letters, and what is remembered of their origin when no other letter shares it; returns how many."""
    table = tx.table(NAME)
    taken = Counter(_row(letter) for rows in groups.values() for letter in rows.to_pylist())
    left, kept, times = taken.copy(), [], set()
    every = table.to_arrow()
    for number, letter in enumerate(every.to_pylist()):
        row = _row(letter)
        if left[row]:
            left[row] -= 1
        else:
            kept.append(number)
            times.add(letter["at"])
    table.replace(every.take(pa.array(kept, pa.int64())))
    for at in {letter[0] for letter in taken} - times:
        tx.put(origin_key(at), None)
    return taken.total()


def _row(letter: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(letter.values())


def _columns(rows: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def _raw_of(letters: pa.Table) -> Callable[[pa.Table], list[bytes | None]]:
    """The bytes of records that are refused once more: those of their letters."""
    raw = {(part, position): text for part, position, text in _columns(letters, "partition", "position", "raw")}

    def originals(records: pa.Table) -> list[bytes | None]:
        return [raw.get((part, str(offset))) for part, offset in _columns(records, "_partition", "_offset")]

    return originals
