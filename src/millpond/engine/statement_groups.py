"""Groups of statements that change a table together: their changes are collected, then applied event by event."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
from sqlglot import exp

from millpond.contracts.table import WriteTable
from millpond.engine.app_context import Context
from millpond.engine.batch import Batch
from millpond.engine.batch_run import BatchRun
from millpond.engine.failing_rows import VIOLATES_CONSTRAINT
from millpond.engine.fold import Items, fold
from millpond.engine.rejected_rows import add_dead_letters, fitted, misfits, reject, without
from millpond.errors import MillpondError
from millpond.plan.change_model import Action, ChangeGroup, Writer
from millpond.plan.missing import Absent
from millpond.plan.model import FlowPlan, Step, StepKind
from millpond.plan.statement_groups import ASCENDING, ORDER
from millpond.relational.codes import Numbers, pairs


def items_of(run: BatchRun, step: Step, action: Action) -> pa.Table:
    """The items of an action, in stream order, with the table's types. A value that cannot be cast makes its item a
    dead letter, or, in the comparison of an UPDATE or DELETE, an item that matches no row."""
    schema = run.work.table(step.target).schema
    columns = [schema[name] for name in action.columns]
    query = run.work.ordered(action.items)
    assert query is not None, "a statement of a group has the order of its events"
    found = run.work.result(query, run.batch.relation)
    rows = fitted(run.work, found, columns, (*action.extra, *ORDER)).sort_by(ASCENDING)
    if step.kind in (StepKind.UPDATE, StepKind.DELETE):
        bad = misfits(rows, columns)
        rows = rows.filter(pa.array([n not in bad for n in range(rows.num_rows)], pa.bool_())) if bad else rows
    elif action.always:
        rows = reject(run, rows, columns, schema)
    else:
        rows = without(run, rows, misfits(rows, columns))
    types = pa.schema([(c.name, c.type) for c in columns])
    given = rows.select(types.names).cast(types)
    for name in (*action.extra, *ORDER):
        given = given.append_column(name, rows[name])
    return given.combine_chunks()


def events_of(run: BatchRun, places: exp.Query | None) -> pa.Table:
    """The events that are relevant to a statement: those whose positions a query returns, or all."""
    events = run.batch.to_arrow()
    if places is None:
        return events
    wanted = run.work.rows(places, run.batch.relation).rename_columns(list(ORDER))
    met, _ = pairs([events[name] for name in ORDER], [wanted[name] for name in ORDER])
    return events.take(pa.array(np.unique(met)))


# Runs a statement on a batch; failing rows become dead letters if 'on.error' is set so.
RunStep = Callable[[BatchRun, Step], None]


@dataclass(frozen=True)
class Taken:
    """The collected input of a statement: items of its action, or the events on which it is run."""

    run: BatchRun
    step: Step
    writer: Writer
    rows: pa.Table
    absent: Absent


@dataclass
class Pending:
    """A group during a batch: what its statements have collected so far, and how to undo what was already applied to
    the table, because a statement between them reads the table."""

    group: ChangeGroup
    last: int
    taken: dict[int, Taken] = field(default_factory=dict)
    undo: Callable[[], object] | None = None

    def take(self, run: BatchRun, step: Step) -> None:
        """Collect the changes of a statement; a second call, after failing rows were removed, replaces the first."""
        writer = next(w for w in self.group.writers if w.index == step.index)
        rows = events_of(run, writer.events) if writer.action is None else items_of(run, step, writer.action)
        self.taken[step.index] = Taken(run, step, writer, rows, run.work.absent)


class PendingGroups:
    """The groups of a batch. `run_step` runs a statement that is not by key."""

    def __init__(self, flow: FlowPlan, steps: Sequence[Step], run_step: RunStep) -> None:
        self._run_step = run_step
        indexes = {step.index for step in steps}
        self._pending = [
            Pending(group, max(w.index for w in group.writers if w.index in indexes))
            for group in flow.groups
            if any(w.index in indexes for w in group.writers)
        ]

    def of(self, step: Step) -> Pending | None:
        """The group of a statement, if it has one."""
        found = (p for p in self._pending if step.target.lower() == p.group.table.lower())
        return next((p for p in found if any(w.index == step.index for w in p.group.writers)), None)

    def before(self, run: BatchRun, step: Step) -> None:
        """Called before a statement, which must see the changes of earlier statements for the whole batch."""
        for pending in self._pending:
            if pending.taken and _reads(run.work.context, step, pending):
                self._apply(run, pending)

    def after(self, run: BatchRun, step: Step) -> None:
        """Called after a statement; after the last one of a group, its changes are applied."""
        pending = self.of(step)
        if pending is not None and step.index == pending.last and pending.taken:
            self._apply(run, pending)
            pending.taken.clear()

    def _apply(self, run: BatchRun, pending: Pending) -> None:
        table = run.work.table(pending.group.table)
        # Applied early for a statement that reads the table: undone, because the events must be applied in order by all
        # statements.
        if pending.undo is not None:
            pending.undo()
            run.work.forget_passed(table.name)
            run.work.mark_changed(table.name)
        by_index = sorted(pending.taken.values(), key=lambda t: t.step.index)
        is_last = max(t.step.index for t in by_index) == pending.last
        if all(t.writer.action is not None for t in by_index):
            pending.undo = _fold(run, table, by_index)
        else:
            before = None if is_last else table.to_arrow()
            for part in _parts(by_index):
                self._apply_part(run, table, part)
            pending.undo = None if before is None else partial(table.replace, before)

    def _apply_part(self, run: BatchRun, table: WriteTable, part: list[Taken]) -> None:
        if part[0].writer.action is not None:
            _fold(run, table, part)
            return
        taken = part[0]
        batch = Batch.of(taken.run.batch.id, taken.rows, taken.run.batch.bad.slice(0, 0))
        taken.run.work.absent = taken.absent
        self._run_step(replace(taken.run, batch=batch, groups=None), taken.step)


def _reads(context: Context, step: Step, pending: Pending) -> bool:
    """Whether a statement reads a group's table, directly or through a view; for a statement of the group, its own
    reads of the table are part of its action and do not count."""
    table = pending.group.table.lower()
    own = any(w.index == step.index for w in pending.group.writers)
    names = {a.table.lower() for a in step.reads} - ({table} if own else set())
    return table in {name.lower() for name in context.inputs_of(names)} | names


def _parts(taken: Sequence[Taken]) -> Iterator[list[Taken]]:
    """The collected input in runs of events, in stream order: a run has either items by key, which are folded together,
    or events of one statement that is not by key."""
    kinds = [-1 if t.writer.action is not None else n for n, t in enumerate(taken)]
    counts = [t.rows.num_rows for t in taken]
    which = np.repeat(np.arange(len(taken)), counts)
    row = np.concatenate([np.arange(count) for count in counts])
    places = [np.concatenate([t.rows[name].to_numpy() for t in taken]) for name in ORDER]
    order = np.lexsort((row, which, places[1], places[0]))
    which, row = which[order], row[order]
    kind = np.array(kinds)[which]
    alone = np.array([t.writer.one_by_one for t in taken])[which]
    new = np.ones(len(which), bool)
    new[1:] = (kind[1:] != kind[:-1]) | alone[1:]
    starts = [*np.flatnonzero(new), len(which)]
    for start, end in pairwise(starts):
        yield _some(taken, which[start:end], row[start:end])


def _some(taken: Sequence[Taken], which: Numbers, row: Numbers) -> list[Taken]:
    found = ((t, row[which == n]) for n, t in enumerate(taken))
    return [replace(t, rows=t.rows.take(pa.array(rows))) for t, rows in found if len(rows)]


def _fold(run: BatchRun, table: WriteTable, taken: Sequence[Taken]) -> Callable[[], None]:
    """Fold items into the table; events with a failing item become dead letters as a whole. Returns how to undo it."""
    left = list(taken)
    refused: list[tuple[Taken, pa.Table, MillpondError]] = []
    while True:
        folded = fold(run.work, table, [Items(_action(t), t.rows) for t in left])
        _require_dead_letters(left, folded.refused)
        # An event is applied as a whole or not at all, so all its items are removed, and the fold is repeated.
        torn = _first_torn(left, folded.refused)
        if torn is None:
            break
        number, event, error = torn
        refused.append((left[number], left[number].rows.filter(pa.array(event)), error))
        left[number] = replace(left[number], rows=left[number].rows.filter(pa.array(~event)))
    for (number, row), error in sorted(folded.refused.items()):
        refused.append((left[number], left[number].rows.slice(row, 1), error))
    for rows in folded.passed:
        run.work.add_passed(table.name, rows)
    if folded.write(table):
        run.work.mark_changed(table.name)
    for item, rows, error in refused:
        problem = error.problems[0]
        count = rows.num_rows
        add_dead_letters(item.run, rows.slice(0, 1), [problem.code], [problem.message], applied=rows.slice(count, 0))
    return partial(folded.undo, table)


def _action(taken: Taken) -> Action:
    assert taken.writer.action is not None
    return taken.writer.action


def _require_dead_letters(taken: Sequence[Taken], refused: dict[tuple[int, int], MillpondError]) -> None:
    """Raise the error of a statement whose failing events must not become dead letters."""
    for (number, _), error in sorted(refused.items()):
        step = taken[number].step
        if error.code not in VIOLATES_CONSTRAINT and step.options.get("on.error") != "dead-letter":
            raise error.at(step.place)


def _first_torn(
    taken: Sequence[Taken], refused: dict[tuple[int, int], MillpondError]
) -> tuple[int, np.ndarray, MillpondError] | None:
    """An event with a rejected item and other items of the same statement: the statement, its items, and the error."""
    found = []
    for (number, row), error in refused.items():
        rows = taken[number].rows
        place = [rows[name][row].as_py() for name in ORDER]
        event = np.logical_and.reduce([rows[n].to_numpy() == p for n, p in zip(ORDER, place, strict=True)])
        if event.sum() > 1:
            found.append((place, number, event, error))
    if not found:
        return None
    return min(found, key=lambda entry: (entry[0], entry[1]))[1:]
