"""What a changed SQL file does to a state directory: what is kept, rebuilt, dropped and new, and what would be lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from millpond.contracts.table import Store
from millpond.errors import Place, Problem, Severity
from millpond.plan.meaning import plain_text
from millpond.plan.model import AWAITING, GROUPED, FlowPlan, OneShot, Plan, Step, TableKind, TablePlan
from millpond.plan.sources import short_hash
from millpond.runtime.keeping.ledger import DEFINITION, FLOW, ONCE, STATEMENTS, Definition, definition_of, flow_entry
from millpond.runtime.keeping.widening import reshaping
from millpond.sql.statements import Drop

# Tables whose rows can be had again, from their source or from other tables.
REBUILDABLE = (TableKind.LOADED, TableKind.VIEW, TableKind.HIDDEN)
# What a hidden table holds, by the beginning of its name; the others hold what a source has told by key. The source is
# read again from its beginning, but topics drop what is old.
KEPT = {AWAITING: "the events that wait for a row", GROUPED: "the groups that it has gathered"}
OF_A_SOURCE = "the rows of a source that it reads as a table, which may not have them any more,"


class Change(StrEnum):
    """What becomes of something; REPLACED is a change that the file itself accepts."""

    KEPT = "kept"
    NEW = "new"
    REBUILT = "rebuilt"
    CHANGED = "changed"
    RESHAPED = "reshaped"  # it keeps its rows, with columns added or removed
    REPLACED = "replaced"
    DROPPED = "dropped"


@dataclass(frozen=True)
class TableChange:
    """A table, or what is kept for a statement; `loses`: rows that nobody can bring back."""

    name: str
    change: Change
    rows: int = 0
    loses: bool = False
    place: Place | None = None
    hidden: bool = False
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    # Whether its columns are aggregates, which count from now on.
    counts: bool = False
    # The source from whose beginning it is computed again; "" where it is not.
    again: str = ""


@dataclass(frozen=True)
class FlowChange:
    """A flow: the last batch that it has done (-1: none), the statements it did not have and those it no longer has."""

    name: str
    change: Change
    batch: int = -1
    added: tuple[Step, ...] = field(default=(), repr=False)
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShotChange:
    """A one-shot statement."""

    line: int
    kind: str
    has_run: bool
    repeat: bool


@dataclass(frozen=True)
class Difference:
    """All of it, in the order of the file; what is gone from it comes last."""

    tables: tuple[TableChange, ...]
    flows: tuple[FlowChange, ...]
    one_shots: tuple[ShotChange, ...]

    @property
    def losses(self) -> tuple[Problem, ...]:
        """MP806 for everything that would be lost."""
        return tuple(_loss(t) for t in self.tables if t.loses)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """MP813 for what is made again, MP814 for aggregates that count from now on, MP811 for what was added to a
        stream that has been read."""
        found = [_made_again(t) for t in self.tables if t.change is Change.REBUILT and not t.hidden]
        found += [_counts_from_now(t) for t in self.tables if t.counts and t.added and t.rows and not t.again]
        again = {t.name.lower() for t in self.tables if t.again}
        added = [(f, s) for f in self.flows if f.batch >= 0 for s in f.added if s.target.lower() not in again]
        return (*found, *(_from_now_on(flow, step) for flow, step in added))


def difference(plan: Plan, store: Store) -> Difference:
    """How the file stands to what is there."""
    tables = [_with_past(_table(t, plan, store), plan, store) for t in plan.tables if t.kind is not TableKind.SYSTEM]
    reshaped = {t.name.lower() for t in tables if t.change is Change.RESHAPED}
    flows = [_flow(f, store, reshaped) for f in plan.flows]
    return Difference(
        (*tables, *_gone_tables(plan, store), *_gone_groups(plan, store)),
        (*flows, *_gone_flows(plan, store)),
        tuple(_shot(s, store) for s in plan.one_shots),
    )


def statements_of(flow: FlowPlan) -> list[list[str]]:
    """What is remembered of a flow's statements: a name for each text, and what to call it."""
    return [[_key(step), _called(step)] for step in flow.steps if step.statement is not None]


def _key(step: Step) -> str:
    assert step.statement is not None
    return short_hash(plain_text(step.statement))


def _called(step: Step) -> str:
    return f"{step.kind} {step.target}"


def _table(table: TablePlan, plan: Plan, store: Store) -> TableChange:
    found = definition_of(store.get(DEFINITION + table.name.lower()))
    rows, hidden = _rows(store, table.name), table.spec.hidden
    if found is None:
        return TableChange(table.name, Change.NEW, place=table.place, hidden=hidden)
    there = table.name.lower() in {n.lower() for n in store.names()}
    if (
        there
        and found.meaning == table.definition
        and found.kind == table.kind
        and not _has_other_columns(table, store)
    ):
        return TableChange(table.name, Change.KEPT, rows, place=table.place, hidden=hidden)
    if table.replaces:
        return TableChange(table.name, Change.REPLACED, rows, place=table.place)
    other = reshaping(table, found, plan, store) if there else None
    if other is not None:
        loses, counts = rows > 0 and bool(other.removed), table.kind is TableKind.AGGREGATE
        return TableChange(
            table.name, Change.RESHAPED, rows, loses, table.place, hidden, other.added, other.removed, counts
        )
    if found.kind in REBUILDABLE and _can_be_had_again(table, plan):
        return TableChange(table.name, Change.REBUILT, rows, place=table.place, hidden=hidden)
    return TableChange(table.name, Change.CHANGED, rows, rows > 0, table.place, hidden)


def _with_past(change: TableChange, plan: Plan, store: Store) -> TableChange:
    """Whether a table is computed again from the beginning of its source: it asks for it, something of the source has
    been read, and that is not in the table."""
    flow = backfilled(plan, change.name)
    begins = change.change in (Change.NEW, Change.CHANGED, Change.REPLACED)
    if flow is None or flow_entry(store, flow.id).batch < 0 or not (begins or change.added):
        return change
    return replace(change, again=plan.source(flow.source).spec.shown)


def backfilled(plan: Plan, name: str) -> FlowPlan | None:
    """The flow that keeps a table with 'backfill'; None for another table."""
    table = plan.table(name)
    if table is None or not table.options.get("backfill"):
        return None
    return next((f for f in plan.flows for s in f.steps if s.aggregate and s.target.lower() == name.lower()), None)


def _can_be_had_again(table: TablePlan, plan: Plan) -> bool:
    """Whether the rows come from elsewhere still: not where a source has gone, whose columns nobody could see then."""
    return table.kind in REBUILDABLE and (not table.source or plan.source(table.source).columns is not None)


def _has_other_columns(plan: TablePlan, store: Store) -> bool:
    """Whether the files of a loaded table, or the tables of a view, have come to have other columns or types."""
    now, before = plan.spec.schema, store.table(plan.name).schema
    if plan.kind not in REBUILDABLE or not len(now):
        return False
    types = [c.type for c in before] if any(c.type is None for c in now) else [c.type for c in now]
    return [c.name for c in now] != [c.name for c in before] or types != [c.type for c in before]


def _rows(store: Store, name: str) -> int:
    return len(store.table(name)) if name.lower() in {n.lower() for n in store.names()} else 0


def _gone_tables(plan: Plan, store: Store) -> Iterator[TableChange]:
    """Tables that an earlier file had; one that a DROP of this file names is accepted."""
    there = {n.lower(): n for n in store.names()}
    dropped = {s.statement.name.key for s in plan.one_shots if isinstance(s.statement, Drop)}
    for key, value in store.items(DEFINITION).items():
        name, found = key.removeprefix(DEFINITION), definition_of(value)
        if found is not None and plan.table(name) is None:
            yield _gone(there.get(name, name), found, store, accepted=name in dropped)


def _gone(name: str, found: Definition, store: Store, *, accepted: bool) -> TableChange:
    rows = _rows(store, name)
    loses = rows > 0 and found.kind not in REBUILDABLE and not accepted
    # A source that yields changes by key is kept by a flow, under no name that the user gave.
    hidden = found.kind == TableKind.HIDDEN or (rows > 0 and store.table(name).spec.hidden)
    return TableChange(name, Change.DROPPED, rows, loses, hidden=hidden)


def _gone_groups(plan: Plan, store: Store) -> Iterator[TableChange]:
    """What is kept for statements that are no longer there, or no longer mean the same."""
    if any(source.columns is None for source in plan.sources):
        # Without the columns nobody can tell what a statement keeps.
        return
    steps = [s for f in plan.flows for s in f.steps]
    kept = {c.lower() for s in steps if s.aggregate for c in s.aggregate.companions} | {s.waiting for s in steps}
    for name in store.names():
        if name.lower().startswith((GROUPED, AWAITING)) and name.lower() not in kept and store.table(name).spec.hidden:
            rows = _rows(store, name)
            yield TableChange(name, Change.DROPPED, rows, rows > 0, hidden=True)


def _flow(plan: FlowPlan, store: Store, reshaped: set[str]) -> FlowChange:
    batch = flow_entry(store, plan.id).batch
    remembered: list[list[str]] = store.get(STATEMENTS + plan.id) or []
    if not remembered:
        return FlowChange(plan.name, Change.NEW if batch < 0 else Change.KEPT, batch)
    before = [key for key, _ in remembered]
    now = [key for key, _ in statements_of(plan)]
    steps = [s for s in plan.steps if s.statement is not None and s.target.lower() not in reshaped]
    added = tuple(s for s in steps if _key(s) not in before or _is_new(s, store))
    same = {_called(s) for s in plan.steps if s.target.lower() in reshaped}
    removed = tuple(called for key, called in remembered if key not in now and called not in same)
    return FlowChange(plan.name, Change.KEPT, batch, added, removed)


def _is_new(step: Step, store: Store) -> bool:
    """Whether what a statement has gathered starts anew, although its text is the same."""
    return step.aggregate is not None and step.aggregate.companion.lower() not in {n.lower() for n in store.names()}


def _gone_flows(plan: Plan, store: Store) -> Iterator[FlowChange]:
    known = {flow.id for flow in plan.flows}
    for key in store.items(FLOW):
        id_ = key.removeprefix(FLOW)
        if id_ not in known:
            yield FlowChange(id_, Change.DROPPED, flow_entry(store, id_).batch)


def _shot(shot: OneShot, store: Store) -> ShotChange:
    has_run = not shot.repeat and store.get(ONCE + shot.id) is not None
    return ShotChange(shot.place.line, type(shot.statement).__name__.upper(), has_run, shot.repeat)


def _loss(table: TableChange) -> Problem:
    if table.hidden:
        kept = next((what for prefix, what in KEPT.items() if table.name.lower().startswith(prefix)), OF_A_SOURCE)
        message = f"A statement was changed or removed; {kept} would be lost"
    elif table.change is Change.RESHAPED:
        columns = ", ".join(f"'{name}'" for name in table.removed)
        message = f"The table '{table.name}' no longer has {columns} as it was; the values in its rows would be lost"
    elif table.change is Change.CHANGED:
        message = f"The definition of the table '{table.name}' has changed; its rows would be lost"
    else:
        message = f"The table '{table.name}' is no longer in the file; its rows would be lost"
    other = {
        Change.CHANGED: "write CREATE OR REPLACE",
        Change.RESHAPED: "bring the columns back",
        Change.DROPPED: f"write DROP TABLE IF EXISTS {table.name}",
    }
    instead = "bring the statement back" if table.hidden else other[table.change]
    return Problem(
        "MP806", f"{message} ({table.rows}).", table.place, f"Run with --accept to let them go, or {instead}."
    )


def _made_again(table: TableChange) -> Problem:
    message = f"'{table.name}' is defined otherwise now: it is made again from what it is defined by."
    return Problem("MP813", message, table.place, "millpond explain --state DIR tells it before.", Severity.WARNING)


def _counts_from_now(table: TableChange) -> Problem:
    columns = ", ".join(f"'{name}'" for name in table.added)
    message = f"{columns} of '{table.name}' count what comes from now on; its {table.rows} rows are kept."
    hint = "To have them count everything, add WITH ('backfill' = 'true'), or start over with another --state."
    return Problem("MP814", message, table.place, hint, Severity.WARNING)


def _from_now_on(flow: FlowChange, step: Step) -> Problem:
    message = f"The stream '{flow.name}' has been read already; this statement sees what comes from now on."
    hint = "To have it see everything, start over with another --state."
    return Problem("MP811", message, step.place, hint, Severity.WARNING)
