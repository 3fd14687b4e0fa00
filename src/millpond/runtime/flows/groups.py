"""The statements of a batch that change a table together: what each makes of the events is gathered at its place in the
file, then all of it is applied event by event.

What goes by key is folded. A statement that does not go by key is run on the events that come before another statement
of the group has its turn, on one at a time where it reads its own target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from millpond.contracts.table import WriteTable
from millpond.errors import MillpondError
from millpond.plan.absent import Absent
from millpond.plan.change_model import Action, ChangeGroup, Writer
from millpond.plan.model import FlowPlan, Step
from millpond.plan.stream_order import ORDER
from millpond.relational.codes import Numbers
from millpond.runtime.changing.fold import Items, fold
from millpond.runtime.context import Context
from millpond.runtime.flows.aside import put_aside
from millpond.runtime.flows.batch import Batch
from millpond.runtime.flows.batch_run import BatchRun
from millpond.runtime.flows.blame import BREAKS_RULE
from millpond.runtime.flows.items import events_of, items_of

# Runs a statement on a batch, its failing rows put aside where that is asked for.
RunStep = Callable[[BatchRun, Step], None]


@dataclass(frozen=True)
class Taken:
    """What a statement made of the batch: items of its action, or the events that it is to be run on."""

    run: BatchRun
    step: Step
    writer: Writer
    rows: pa.Table
    absent: Absent


@dataclass
class Pending:
    """A group while a batch goes through: what its statements so far have taken, and how to undo what is in the table
    of it already because a statement between them reads the table."""

    group: ChangeGroup
    last: int
    taken: dict[int, Taken] = field(default_factory=dict)
    undo: Callable[[], object] | None = None

    def take(self, run: BatchRun, step: Step) -> None:
        """Called at the statement's place; called again it takes the place of what was taken before."""
        writer = next(w for w in self.group.writers if w.index == step.index)
        rows = events_of(run, writer.events) if writer.action is None else items_of(run, step, writer.action)
        self.taken[step.index] = Taken(run, step, writer, rows, run.work.absent)


class Groups:
    """The groups of a batch. `run_step` runs a statement that does not go by key."""

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
        """A statement sees what the statements before it left for the whole batch."""
        for pending in self._pending:
            if pending.taken and _reads(run.work.context, step, pending):
                self._apply(run, pending)

    def after(self, run: BatchRun, step: Step) -> None:
        """The last statement of a group is done."""
        pending = self.of(step)
        if pending is not None and step.index == pending.last and pending.taken:
            self._apply(run, pending)
            pending.taken.clear()

    def _apply(self, run: BatchRun, pending: Pending) -> None:
        table = run.work.table(pending.group.table)
        if pending.undo is not None:
            pending.undo()
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
    """Whether a statement reads a group's table, itself or through a view; what one of the group reads of the table
    itself is part of its action."""
    table = pending.group.table.lower()
    own = any(w.index == step.index for w in pending.group.writers)
    names = {a.table.lower() for a in step.reads} - ({table} if own else set())
    return table in {name.lower() for name in context.inputs_of(names)} | names


def _parts(taken: Sequence[Taken]) -> Iterator[list[Taken]]:
    """What was taken, cut where in the order of events the turn changes between what goes by key, which is folded
    together, and each statement that does not."""
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
    """Fold items into the table; those that fail go to the dead letters as whole events. Returns how to undo it."""
    left = list(taken)
    refused: list[tuple[Taken, pa.Table, MillpondError]] = []
    while True:
        folded = fold(run.work, table, [Items(_action(t), t.rows) for t in left])
        _require_dead_letters(left, folded.refused)
        torn = _first_torn(left, folded.refused)
        if torn is None:
            break
        number, event, error = torn
        refused.append((left[number], left[number].rows.filter(pa.array(event)), error))
        left[number] = replace(left[number], rows=left[number].rows.filter(pa.array(~event)))
    for (number, row), error in sorted(folded.refused.items()):
        refused.append((left[number], left[number].rows.slice(row, 1), error))
    if folded.write(table):
        run.work.mark_changed(table.name)
    for item, rows, error in refused:
        problem = error.problems[0]
        count = rows.num_rows
        put_aside(item.run, rows.slice(0, 1), [problem.code], [problem.message], applied=rows.slice(count, 0))
    return partial(folded.undo, table)


def _action(taken: Taken) -> Action:
    assert taken.writer.action is not None
    return taken.writer.action


def _require_dead_letters(taken: Sequence[Taken], refused: dict[tuple[int, int], MillpondError]) -> None:
    """Raises the error of a statement whose events do not go to the dead letters."""
    for (number, _), error in sorted(refused.items()):
        step = taken[number].step
        if error.code not in BREAKS_RULE and step.options.get("on.error") != "dead-letter":
            raise error.at(step.place)


def _first_torn(
    taken: Sequence[Taken], refused: dict[tuple[int, int], MillpondError]
) -> tuple[int, np.ndarray, MillpondError] | None:
    """An event of which a statement refused one item while it has others: the statement, its items, and why."""
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
