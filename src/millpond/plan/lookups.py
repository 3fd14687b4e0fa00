"""Tables of a query whose rows can be fetched by the batch's keys: an equality ties their columns to the event.

Only the rows that the equality lets through can matter, so that nothing changes when the others are left out: a table
of FROM or of an inner join, the right side of a LEFT, SEMI or ANTI join, and tables of a correlated subquery.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from millpond.plan.functions import function_name, has_aggregate
from millpond.plan.model import BATCH
from millpond.sql.conditions import all_of

# Evaluated twice, these may give two answers: once for the keys and once for the rows.
_CHANGING = frozenset(
    [
        "rand",
        "randn",
        "random",
        "randstr",
        "uniform",
        "uuid",
        "shuffle",
        "monotonically_increasing_id",
        "spark_partition_id",
        "now",
        "current_timestamp",
        "localtimestamp",
        "current_time",
        "current_date",
        "curdate",
        "unix_timestamp",
        "input_file_name",
    ]
)
# Clauses after which the rows of a derived stream are more than events and what was computed of each.
_MORE = ("group", "having", "limit", "offset", "qualify", "windows", "with_", "order", "sort", "cluster", "distribute")
_OUTER = ("RIGHT", "FULL")


@dataclass(frozen=True)
class Lookup:
    """One table of one FROM or JOIN: `columns` of it must equal `keys`, expressions over the batch alone, without
    qualifiers. With `source` they are the outputs k0, k1, ... of that query over the batch: a derived stream or LATERAL
    VIEW makes the key."""

    node: exp.Table
    columns: tuple[str, ...]
    keys: tuple[exp.Expr, ...]
    source: exp.Select | None = None


@dataclass(frozen=True)
class _Driver:
    """What brings the events into a SELECT: the batch or a derived stream, and lateral views over it."""

    relation: exp.Expr
    laterals: tuple[exp.Lateral, ...]

    @property
    def names(self) -> set[str]:
        return {relation.alias_or_name.lower() for relation in (self.relation, *self.laterals)}

    @property
    def is_batch(self) -> bool:
        return isinstance(self.relation, exp.Table)


def find_lookups(query: exp.Expr) -> tuple[Lookup, ...]:
    """All tables of a query that can be looked up, with the equalities that say so."""
    found = (_lookup(select, table, conditions) for select, table, conditions in _places(query))
    return tuple(lookup for lookup in found if lookup is not None)


def find_ties(query: exp.Expr) -> Iterator[tuple[exp.Table, str]]:
    """Columns of tables that equal something of other relations, whatever these are."""
    for _, table, conditions in _places(query):
        own = table.alias_or_name.lower()
        for ours, theirs in _equalities(table, conditions):
            others = {column.table.lower() for column in theirs.find_all(exp.Column)}
            if others and own not in others and theirs.find(exp.Query) is None:
                yield table, ours.name


def _places(query: exp.Expr) -> Iterator[tuple[exp.Select, exp.Table, list[exp.Expr]]]:
    """Each table with the conditions that every row of it must satisfy to matter."""
    for select in query.find_all(exp.Select):
        where = select.args.get("where")
        inner = list(all_of(where.this)) if where is not None else []
        source = select.args.get("from_")
        if _is_outer(select):
            continue
        if source is not None and isinstance(source.this, exp.Table):
            yield select, source.this, inner
        for join in select.args.get("joins") or []:
            if isinstance(join.this, exp.Table) and not join.args.get("using"):
                own = list(all_of(join.args.get("on")))
                yield select, join.this, own + (inner if _is_inner(join) else [])


def _is_outer(select: exp.Select) -> bool:
    """Whether a row of the batch may be missing beside rows of a table."""
    return any((join.side or "").upper() in _OUTER for join in select.args.get("joins") or [])


def _is_inner(join: exp.Join) -> bool:
    return not join.side and (join.kind or "").upper() in ("", "INNER", "CROSS")


def _lookup(select: exp.Select, table: exp.Table, conditions: list[exp.Expr]) -> Lookup | None:
    if table.name.lower() == BATCH or not isinstance(table.this, exp.Identifier):
        return None
    best: Lookup | None = None
    for driver in _drivers(select):
        pairs: dict[str, exp.Expr] = {}
        for ours, theirs in _equalities(table, conditions):
            if _is_over(theirs, driver.names):
                pairs.setdefault(ours.name, theirs)
        if pairs and (best is None or len(pairs) > len(best.columns)):
            best = _made(table, pairs, driver)
    return best


def _equalities(table: exp.Table, conditions: list[exp.Expr]) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """The columns of a table that must equal something, and what."""
    for condition in conditions:
        if isinstance(condition, exp.EQ):
            for ours, theirs in ((condition.this, condition.expression), (condition.expression, condition.this)):
                if isinstance(ours, exp.Column) and ours.table.lower() == table.alias_or_name.lower():
                    yield ours, theirs


def _made(table: exp.Table, pairs: dict[str, exp.Expr], driver: _Driver) -> Lookup:
    keys = tuple(pairs.values())
    of_batch = {driver.relation.alias_or_name.lower()}
    if driver.is_batch and all(_is_over(key, of_batch) for key in keys):
        return Lookup(table, tuple(pairs), tuple(_unqualified(key) for key in keys))
    outputs = [exp.alias_(key.copy(), f"k{number}") for number, key in enumerate(keys)]
    source = exp.Select(expressions=outputs, distinct=exp.Distinct()).from_(driver.relation.copy(), copy=False)
    if driver.laterals:
        source.set("laterals", [lateral.copy() for lateral in driver.laterals])
    return Lookup(table, tuple(pairs), keys, source)


def _drivers(select: exp.Select) -> Iterator[_Driver]:
    """What brings the events into this SELECT, and into those around it whose columns it sees."""
    around: exp.Expr | None = select
    while around is not None:
        if isinstance(around, exp.Select) and not _is_outer(around):
            driver = _driver(around)
            if driver is not None:
                yield driver
        around = around.parent


def _driver(select: exp.Select) -> _Driver | None:
    source = select.args.get("from_")
    inner = [join.this for join in select.args.get("joins") or [] if _is_inner(join)]
    relations = [*([source.this] if source is not None else []), *inner]
    found = next((r for r in relations if _brings_events(r)), None)
    if found is None:
        return None
    known, laterals = {found.alias_or_name.lower()}, []
    for lateral in select.args.get("laterals") or []:
        if not _is_over(lateral.this, known):
            break
        known.add(lateral.alias_or_name.lower())
        laterals.append(lateral)
    return _Driver(found, tuple(laterals))


def _brings_events(relation: exp.Expr) -> bool:
    """The batch, or a derived stream that computes something of each event and reads nothing else."""
    if isinstance(relation, exp.Table):
        return relation.name.lower() == BATCH
    query = relation.this if isinstance(relation, exp.Subquery) else None
    if not isinstance(query, exp.Select) or any(query.args.get(clause) for clause in _MORE):
        return False
    if query.args.get("joins") or any(has_aggregate(e) or e.find(exp.Window) for e in query.expressions):
        return False
    source = query.args.get("from_")
    tables = all(table.name.lower() == BATCH for table in query.find_all(exp.Table))
    return source is not None and tables and _is_steady(query) and _brings_events(source.this)


def _is_over(node: exp.Expr, names: set[str]) -> bool:
    """Whether an expression reads columns of these relations and of nothing else, and is the same each time."""
    columns = list(node.find_all(exp.Column))
    over = bool(columns) and all(column.table.lower() in names for column in columns)
    return over and node.find(exp.Select) is None and _is_steady(node)


def _is_steady(node: exp.Expr) -> bool:
    return not any(function_name(call) in _CHANGING for call in node.find_all(exp.Func))


def _unqualified(node: exp.Expr) -> exp.Expr:
    return node.copy().transform(lambda n: exp.column(n.this.copy()) if isinstance(n, exp.Column) else n)
