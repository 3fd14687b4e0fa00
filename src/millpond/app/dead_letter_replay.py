"""Replay of dead letters through the statements that rejected them, in one commit with their removal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from millpond.contracts.table import ReadTable, Transaction
from millpond.engine.app_context import Context
from millpond.engine.batch import split_records
from millpond.engine.batch_run import BatchRun
from millpond.engine.commit import settle
from millpond.engine.dead_letters import ALL_STATEMENTS, NAME, ORIGIN, origin_key, statement_id
from millpond.engine.flow import Flow
from millpond.engine.spark.transfer import Views
from millpond.engine.table_changes import Staged, publish
from millpond.engine.watermark import Reached
from millpond.engine.work import Work
from millpond.plan.model import FlowPlan, Step, StepKind

# Counts the replays of a flow, so that their files in sinks have distinct names.
REPLAYED = "replayed:"


@dataclass(frozen=True)
class Replayed:
    """The result of a replay: the numbers of dead letters that were sent, that were rejected again, and that cannot be
    replayed: rows of a load, rows of a removed statement, or only a part of the rows of a record."""

    sent: int = 0
    refused: int = 0
    left: int = 0

    def __add__(self, other: Replayed) -> Replayed:
        return Replayed(self.sent + other.sent, self.refused + other.refused, self.left + other.left)


@dataclass(frozen=True)
class Choice:
    """Selects dead letters: those for which a condition is true, or all; or letters that were selected before."""

    where: str | None = None
    selected: frozenset[tuple[Any, ...]] | None = None

    def of(self, table: ReadTable) -> pa.Table:
        if self.selected is None:
            return table.to_arrow() if self.where is None else table.find(self.where)
        letters = table.to_arrow()
        return letters.filter(pa.array([name in self.selected for name in _names(letters)], pa.bool_()))

    def now(self, table: ReadTable) -> Choice:
        """The letters that are selected now, also after they have been repaired."""
        return Choice(selected=frozenset(_names(self.of(table))))


def _names(letters: pa.Table) -> list[tuple[Any, ...]]:
    """What identifies each letter: all but its bytes."""
    return _columns(letters, *(name for name in letters.column_names if name != "raw"))


def replay(context: Context, flows: Sequence[Flow], choice: Choice) -> Replayed:
    """Replay the selected letters flow by flow, those of each flow in one transaction."""
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
            # The rows are marked by their events, not by the batch, so that a repeated replay gives the same marks.
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
    """A flow's letters by the statement that rejected them, without those that cannot be replayed."""
    found: dict[str, list[int]] = {}
    for row, (at, *place) in enumerate(_columns(letters, "at", "partition", "position")):
        flow_id, statement = origins.get(origin_key(at)) or ("", "")
        if flow_id == plan.id and None not in place and _steps(plan, statement):
            found.setdefault(statement, []).append(row)
    return {statement: letters.take(rows) for statement, rows in found.items()}


def _steps(plan: FlowPlan, statement: str) -> tuple[Step, ...]:
    """The statements through which a letter is replayed; none if it cannot be. A table keyed by message keys requires
    the key, which a letter does not contain."""
    wanted = [s for s in plan.steps if statement in (ALL_STATEMENTS, statement_id(plan, s))]
    return () if any(step.kind is StepKind.LATEST for step in wanted) else tuple(wanted)


def _take_out(tx: Transaction, groups: dict[str, pa.Table]) -> int:
    """Remove letters, and their origins if no other letter shares them; returns the number of letters."""
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
    """The bytes of records that are rejected again: those of their letters."""
    raw = {(part, position): text for part, position, text in _columns(letters, "partition", "position", "raw")}

    def originals(records: pa.Table) -> list[bytes | None]:
        return [raw.get((part, str(offset))) for part, offset in _columns(records, "_partition", "_offset")]

    return originals
