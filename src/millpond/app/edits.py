"""The difference between a SQL file and a state directory: what is kept, rebuilt, dropped, new or would be lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from millpond.app.table_reshape import reshaping
from millpond.contracts.table import Store
from millpond.engine.ledger import DEFINITION, FLOW, ONCE, STATEMENTS, Definition, definition_of, flow_entry
from millpond.errors import Place, Problem, Severity
from millpond.plan.definition import plain_text
from millpond.plan.model import AWAITING, GROUPED, FlowPlan, OneShot, Plan, Step, TableKind, TablePlan
from millpond.plan.over_model import OVER
from millpond.plan.source_catalog import short_hash
from millpond.registry import find
from millpond.sql.statements import Drop

# Kinds of tables whose rows can be computed again, from their source or from other tables.
REBUILDABLE = (TableKind.LOADED, TableKind.VIEW, TableKind.LOOKUP, TableKind.HIDDEN)
# The content of a hidden table, by the prefix of its name; all others contain the rows of a source by key. The source
# is read again from its beginning, but a topic may have dropped old messages.
KEPT = {
    AWAITING: "the events that wait for a row",
    GROUPED: "the groups that it has aggregated",
    OVER: "what its window functions look back at",
}
OF_A_SOURCE = "the rows of a source that it reads as a table, and that the source may no longer have,"


class EditKind(StrEnum):
    """What happens to a table or flow; REPLACED is a change that the file itself accepts."""

    KEPT = "kept"
    NEW = "new"
    REBUILT = "rebuilt"
    CHANGED = "changed"
    RESHAPED = "reshaped"  # it keeps its rows, with columns added or removed
    REPLACED = "replaced"
    DROPPED = "dropped"


@dataclass(frozen=True)
class TableChange:
    """A table, or the state of a statement; `loses`: rows that cannot be recovered."""

    name: str
    change: EditKind
    rows: int = 0
    loses: bool = False
    place: Place | None = None
    hidden: bool = False
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    # Whether the added columns are aggregates, which count from now on.
    counts: bool = False
    # The source from whose beginning it is recomputed; "" if it is not.
    again: str = ""
    # The backends between which it moves; "" if it stays where it is.
    moves: str = ""


@dataclass(frozen=True)
class FlowChange:
    """A flow: its last committed batch (-1: none), its added statements and the removed ones."""

    name: str
    change: EditKind
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
    """The whole difference, in the order of the file; what was removed from it comes last."""

    tables: tuple[TableChange, ...]
    flows: tuple[FlowChange, ...]
    one_shots: tuple[ShotChange, ...]

    @property
    def losses(self) -> tuple[Problem, ...]:
        """MP806 for everything that would be lost."""
        return tuple(_loss(t) for t in self.tables if t.loses)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """MP813 for what is rebuilt, MP814 for aggregates that count from now on, MP811 for statements that were added
        to a stream that has already been read."""
        found = [_made_again(t) for t in self.tables if t.change is EditKind.REBUILT and not t.hidden]
        found += [_counts_from_now(t) for t in self.tables if t.counts and t.added and t.rows and not t.again]
        again = {t.name.lower() for t in self.tables if t.again}
        added = [(f, s) for f in self.flows if f.batch >= 0 for s in f.added if s.target.lower() not in again]
        return (*found, *(_from_now_on(flow, step) for flow, step in added))


def difference(plan: Plan, store: Store) -> Difference:
    """Compare the plan of a file with the stored tables, flows and statements."""
    dropped = {shot.statement.name.key for shot in drops_to_run(plan, store) if isinstance(shot.statement, Drop)}
    made = [t for t in plan.tables if t.kind is not TableKind.SYSTEM]
    tables = [_with_past(_table(t, plan, store, dropped), plan, store) for t in made]
    reshaped = {t.name.lower() for t in tables if t.change is EditKind.RESHAPED}
    flows = [_flow(f, store, reshaped) for f in plan.flows]
    return Difference(
        (*tables, *_gone_tables(plan, store), *_gone_groups(plan, store)),
        (*flows, *_gone_flows(plan, store)),
        tuple(_shot(s, store) for s in plan.one_shots),
    )


def drops_to_run(plan: Plan, store: Store) -> tuple[OneShot, ...]:
    """The DROPs before a CREATE of the same name that have not run: they are part of the edit."""
    return tuple(shot for shot in plan.one_shots if shot.early and store.get(ONCE + shot.id) is None)


def statements_of(flow: FlowPlan) -> list[list[str]]:
    """What the ledger stores of a flow's statements: an identifier for each text, and a description for messages."""
    return [[_key(step), _called(step)] for step in flow.steps if step.statement is not None]


def _key(step: Step) -> str:
    assert step.statement is not None
    return short_hash(plain_text(step.statement))


def _called(step: Step) -> str:
    return f"{step.kind} {step.target}"


def _table(table: TablePlan, plan: Plan, store: Store, dropped: set[str]) -> TableChange:
    found = definition_of(store.get(DEFINITION + table.name.lower()))
    rows, hidden = _rows(store, table.name), table.spec.hidden
    there = table.name.lower() in {n.lower() for n in store.names()}
    if table.name.lower() in dropped and (there or found is not None):
        return TableChange(table.name, EditKind.REPLACED, rows, place=table.place)
    if found is None:
        return TableChange(table.name, EditKind.NEW, place=table.place, hidden=hidden)
    if (
        there
        and found.meaning == table.definition
        and found.kind == table.kind
        and not _has_other_columns(table, store)
    ):
        return TableChange(table.name, EditKind.KEPT, rows, place=table.place, hidden=hidden)
    if table.replaces:
        return TableChange(table.name, EditKind.REPLACED, rows, place=table.place)
    other = reshaping(table, found, plan, store) if there else None
    if other is not None:
        loses, counts = rows > 0 and bool(other.removed or other.moves), table.kind is TableKind.AGGREGATE
        change = TableChange(table.name, EditKind.RESHAPED, rows, loses, table.place, hidden)
        return replace(change, added=other.added, removed=other.removed, counts=counts, moves=other.moves)
    if found.kind in REBUILDABLE and _can_be_had_again(table, plan):
        return TableChange(table.name, EditKind.REBUILT, rows, place=table.place, hidden=hidden)
    return TableChange(table.name, EditKind.CHANGED, rows, rows > 0, table.place, hidden)


def _with_past(change: TableChange, plan: Plan, store: Store) -> TableChange:
    """Whether a table is recomputed from the beginning of its source: it has 'backfill', records have been read, and
    the table does not contain them."""
    flow = backfilled(plan, change.name)
    begins = change.change in (EditKind.NEW, EditKind.CHANGED, EditKind.REPLACED)
    if flow is None or flow_entry(store, flow.id).batch < 0 or not (begins or change.added):
        return change
    return replace(change, again=plan.source(flow.source).spec.shown)


def backfilled(plan: Plan, name: str) -> FlowPlan | None:
    """The flow that maintains a table with 'backfill'; None for any other table."""
    table = plan.table(name)
    if table is None or not table.options.get("backfill"):
        return None
    return next((f for f in plan.flows for s in f.steps if s.aggregate and s.target.lower() == name.lower()), None)


def _can_be_had_again(table: TablePlan, plan: Plan) -> bool:
    """Whether the rows can be computed again; not if a source has disappeared, because its columns are unknown then."""
    return table.kind in REBUILDABLE and (not table.source or plan.source(table.source).columns is not None)


def _has_other_columns(plan: TablePlan, store: Store) -> bool:
    """Whether the files of a loaded table, or the tables of a view, have other columns or types than before."""
    now, before = plan.spec.schema, store.table(plan.name).schema
    if plan.kind not in REBUILDABLE or not len(now):
        return False
    types = [c.type for c in before] if any(c.type is None for c in now) else [c.type for c in now]
    return [c.name for c in now] != [c.name for c in before] or types != [c.type for c in before]


def _rows(store: Store, name: str) -> int:
    if name.lower() not in {n.lower() for n in store.names()}:
        return 0
    table = store.table(name)
    return 0 if find("backend", table.spec.backend).capabilities.looked_up else len(table)


def _gone_tables(plan: Plan, store: Store) -> Iterator[TableChange]:
    """Tables of an earlier file; the loss of one that this file drops is accepted."""
    there = {n.lower(): n for n in store.names()}
    dropped = {s.statement.name.key for s in plan.one_shots if isinstance(s.statement, Drop)}
    for key, value in store.items(DEFINITION).items():
        name, found = key.removeprefix(DEFINITION), definition_of(value)
        if found is not None and plan.table(name) is None:
            yield _gone(there.get(name, name), found, store, accepted=name in dropped)


def _gone(name: str, found: Definition, store: Store, *, accepted: bool) -> TableChange:
    rows = _rows(store, name)
    loses = rows > 0 and found.kind not in REBUILDABLE and not accepted
    # The table of a source that returns changes by key is maintained by a flow, and has no name of the user's.
    hidden = found.kind == TableKind.HIDDEN or (rows > 0 and store.table(name).spec.hidden)
    return TableChange(name, EditKind.DROPPED, rows, loses, hidden=hidden)


def _gone_groups(plan: Plan, store: Store) -> Iterator[TableChange]:
    """The state of statements that were removed or whose meaning changed."""
    if any(source.columns is None for source in plan.sources):
        # Without the columns of its source, the state of a statement cannot be determined.
        return
    steps = [s for f in plan.flows for s in f.steps]
    kept = {c.lower() for s in steps if s.aggregate for c in s.aggregate.companions} | {s.waiting for s in steps}
    kept |= {table for s in steps if s.over for table in s.over.tables}
    for name in store.names():
        if (
            name.lower().startswith((GROUPED, AWAITING, OVER))
            and name.lower() not in kept
            and store.table(name).spec.hidden
        ):
            rows = _rows(store, name)
            yield TableChange(name, EditKind.DROPPED, rows, rows > 0, hidden=True)


def _flow(plan: FlowPlan, store: Store, reshaped: set[str]) -> FlowChange:
    batch = flow_entry(store, plan.id).batch
    remembered: list[list[str]] = store.get(STATEMENTS + plan.id) or []
    if not remembered:
        return FlowChange(plan.name, EditKind.NEW if batch < 0 else EditKind.KEPT, batch)
    before = [key for key, _ in remembered]
    now = [key for key, _ in statements_of(plan)]
    steps = [s for s in plan.steps if s.statement is not None and s.target.lower() not in reshaped]
    added = tuple(s for s in steps if _key(s) not in before or _is_new(s, store))
    same = {_called(s) for s in plan.steps if s.target.lower() in reshaped}
    removed = tuple(called for key, called in remembered if key not in now and called not in same)
    return FlowChange(plan.name, EditKind.KEPT, batch, added, removed)


def _is_new(step: Step, store: Store) -> bool:
    """Whether the state of a statement starts empty, although its text is the same."""
    return step.aggregate is not None and step.aggregate.companion.lower() not in {n.lower() for n in store.names()}


def _gone_flows(plan: Plan, store: Store) -> Iterator[FlowChange]:
    known = {flow.id for flow in plan.flows}
    for key in store.items(FLOW):
        id_ = key.removeprefix(FLOW)
        if id_ not in known:
            yield FlowChange(id_, EditKind.DROPPED, flow_entry(store, id_).batch)


def _shot(shot: OneShot, store: Store) -> ShotChange:
    has_run = not shot.repeat and store.get(ONCE + shot.id) is not None
    return ShotChange(shot.place.line, type(shot.statement).__name__.upper(), has_run, shot.repeat)


def _loss(table: TableChange) -> Problem:
    if table.moves and not table.removed:
        message = f"The table '{table.name}' moves {table.moves}; its rows ({table.rows}) would be copied."
        return Problem("MP806", message, table.place, "Run with --accept to move them, or restore its options.")
    if table.hidden:
        kept = next((what for prefix, what in KEPT.items() if table.name.lower().startswith(prefix)), OF_A_SOURCE)
        message = f"A statement was changed or removed; {kept} would be lost"
    elif table.change is EditKind.RESHAPED:
        columns = ", ".join(f"'{name}'" for name in table.removed)
        message = f"The table '{table.name}' no longer has {columns} as it was; the values in its rows would be lost"
    elif table.change is EditKind.CHANGED:
        message = f"The definition of the table '{table.name}' has changed; its rows would be lost"
    else:
        message = f"The table '{table.name}' is no longer in the file; its rows would be lost"
    other = {
        EditKind.CHANGED: "write CREATE OR REPLACE",
        EditKind.RESHAPED: "restore the columns",
        EditKind.DROPPED: f"write DROP TABLE IF EXISTS {table.name}",
    }
    instead = "restore the statement" if table.hidden else other[table.change]
    return Problem("MP806", f"{message} ({table.rows}).", table.place, f"Run with --accept to drop them, or {instead}.")


def _made_again(table: TableChange) -> Problem:
    message = f"The definition of '{table.name}' changed: it is rebuilt."
    return Problem(
        "MP813", message, table.place, "millpond explain --state DIR shows this in advance.", Severity.WARNING
    )


def _counts_from_now(table: TableChange) -> Problem:
    columns = ", ".join(f"'{name}'" for name in table.added)
    message = f"{columns} of '{table.name}' count only events from now on; its {table.rows} rows are kept."
    hint = "To count all events, add WITH ('backfill' = 'true'), or start again with another --state."
    return Problem("MP814", message, table.place, hint, Severity.WARNING)


def _from_now_on(flow: FlowChange, step: Step) -> Problem:
    message = f"The stream '{flow.name}' has already been read; this statement sees only events from now on."
    hint = "To process all events, start again with another --state."
    return Problem("MP811", message, step.place, hint, Severity.WARNING)
