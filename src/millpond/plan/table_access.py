"""How a statement reads each table, by key or as a whole, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from millpond.plan.bound import BoundQuery, BoundSelect
from millpond.plan.function_names import function_name, has_aggregate
from millpond.plan.model import BATCH, Access, AccessKind, TableKind, TablePlan
from millpond.sql.conditions import all_of

# Nondeterministic functions: evaluated twice, for the keys and for the rows, they may return different values.
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
# Clauses after which the rows of a derived stream are not computed from single events.
_MORE = ("group", "having", "limit", "offset", "qualify", "windows", "with_", "order", "sort", "cluster", "distribute")
_OUTER = ("RIGHT", "FULL")


@dataclass(frozen=True)
class Lookup:
    """One table of one FROM or JOIN: its `columns` must equal `keys`, which are unqualified expressions over the batch.
    With `source` they are the outputs k0, k1, ... of that query over the batch, if a derived stream or LATERAL VIEW
    computes the key."""

    node: exp.Table
    columns: tuple[str, ...]
    keys: tuple[exp.Expr, ...]
    source: exp.Select | None = None


@dataclass(frozen=True)
class _Driver:
    """The relation of the events in a SELECT: the batch or a derived stream, and lateral views over it."""

    relation: exp.Expr
    laterals: tuple[exp.Lateral, ...]

    @property
    def names(self) -> set[str]:
        return {relation.alias_or_name.lower() for relation in (self.relation, *self.laterals)}

    @property
    def is_batch(self) -> bool:
        return isinstance(self.relation, exp.Table)


def find_lookups(query: exp.Expr) -> tuple[Lookup, ...]:
    """All tables of a query that can be looked up by key, with their equalities."""
    found = (_lookup(select, table, conditions) for select, table, conditions in _places(query))
    return tuple(lookup for lookup in found if lookup is not None)


def find_ties(query: exp.Expr) -> Iterator[tuple[exp.Table, str]]:
    """Columns of tables that are compared by equality with other relations."""
    for _, table, conditions in _places(query):
        own = table.alias_or_name.lower()
        for ours, theirs in _equalities(table, conditions):
            others = {column.table.lower() for column in theirs.find_all(exp.Column)}
            if others and own not in others and theirs.find(exp.Query) is None:
                yield table, ours.name


def _places(query: exp.Expr) -> Iterator[tuple[exp.Select, exp.Table, list[exp.Expr]]]:
    """Each table with the conditions that its rows must satisfy to be relevant."""
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
    """Whether rows of a table may be in the result without a row of the batch."""
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
    """The columns of a table that are compared by equality, and with what."""
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
    """The drivers of this SELECT and of the outer ones whose columns it sees."""
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
    """Whether a relation is the batch, or a derived stream that is computed from single events only."""
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
    """Whether an expression is deterministic and reads only columns of these relations."""
    columns = list(node.find_all(exp.Column))
    over = bool(columns) and all(column.table.lower() in names for column in columns)
    return over and node.find(exp.Select) is None and _is_steady(node)


def _is_steady(node: exp.Expr) -> bool:
    return not any(function_name(call) in _CHANGING for call in node.find_all(exp.Func))


def _unqualified(node: exp.Expr) -> exp.Expr:
    return node.copy().transform(lambda n: exp.column(n.this.copy()) if isinstance(n, exp.Column) else n)


HINTS = {"lookup": AccessKind.LOOKUP, "snapshot": AccessKind.SNAPSHOT}
_SPARK_HINTS = """
    BROADCAST BROADCASTJOIN MAPJOIN MERGE SHUFFLE_MERGE MERGEJOIN SHUFFLE_HASH SHUFFLE_REPLICATE_NL COALESCE REPARTITION
    REPARTITION_BY_RANGE REBALANCE
"""
SPARK_HINTS = tuple(_SPARK_HINTS.split())


@dataclass(frozen=True)
class Ways:
    """The columns by which each table can be looked up, by its name in lower case."""

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    indexes: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    # Tables whose source is asked for rows, by any columns.
    looked_up: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tables: Iterable[TablePlan], added: Mapping[str, tuple[tuple[str, ...], ...]]) -> Ways:
        """The keys and indexes of tables, with the indexes that statements of the file add."""
        tables = list(tables)
        found = {table.name.lower(): table.spec for table in tables}
        looked_up = frozenset(table.name.lower() for table in tables if table.kind is TableKind.LOOKUP)
        indexes = {name: (*spec.indexes, *added.get(name, ())) for name, spec in found.items()}
        return cls({name: spec.schema.key for name, spec in found.items()}, indexes, looked_up)

    def among(self, table: str, columns: set[str]) -> tuple[str, tuple[str, ...]] | None:
        """The key or an index within some columns, and its description."""
        name = table.lower()
        if name in self.looked_up and columns:
            return "asked for in its source", tuple(sorted(columns))
        choices = [("its key", self.keys.get(name, ())), *(("an index of it", i) for i in self.indexes.get(name, ()))]
        return next(((word, way) for word, way in choices if way and {c.lower() for c in way} <= columns), None)


def choose_access(bound: BoundQuery, ways: Ways) -> tuple[Access, ...]:
    """How a query reads each of its tables."""
    asked = _asked(bound)
    if not bound.drivers:
        return tuple(_without_batch(name, asked.get(name.lower())) for name in bound.tables)
    return tuple(_chosen(name, asked.get(name.lower()), ways, bound.query) for name in bound.tables)


def access_of(query: exp.Query, reads: tuple[Access, ...], ways: Ways) -> tuple[Access, ...]:
    """How one of the queries of a split statement reads its tables."""
    named = {table.name.lower() for table in query.find_all(exp.Table)}
    own = (access for access in reads if access.table.lower() in named)
    return tuple(a if a.hinted else _chosen(a.table, None, ways, query) for a in own)


def _without_batch(name: str, wish: AccessKind | None) -> Access:
    """The access to a table in a query over tables only."""
    if wish is AccessKind.LOOKUP:
        return Access(
            name, AccessKind.SNAPSHOT, "the hint LOOKUP has no effect, because no stream drives the query", True
        )
    if wish is not None:
        return Access(name, wish, f"by the hint {wish.upper()}", True)
    return Access(name, AccessKind.SNAPSHOT, "the version when the statement runs")


def _chosen(name: str, wish: AccessKind | None, ways: Ways, query: exp.Query) -> Access:
    """The access to a table: by the batch's keys if equalities cover its key or an index, else as a whole."""
    columns = {c.lower() for k in find_lookups(query) if k.node.name.lower() == name.lower() for c in k.columns}
    if wish is AccessKind.SNAPSHOT:
        return Access(name, AccessKind.SNAPSHOT, "by the hint SNAPSHOT", True)
    way = ways.among(name, columns)
    if wish is AccessKind.LOOKUP:
        reason = "by the hint LOOKUP" if way else f"the hint LOOKUP has no effect: {_why_whole(name, columns)}"
        return Access(name, AccessKind.LOOKUP if way else AccessKind.SNAPSHOT, reason, True)
    if way is not None and name.lower() in ways.looked_up:
        keys = ", ".join(way[1])
        return Access(name, AccessKind.LOOKUP, f"its source is asked once for the values of {keys} of a batch", True)
    if way is not None:
        reason = f"{', '.join(way[1])} is {way[0]}: only rows of the batch's keys are read (a small table as a whole)"
        return Access(name, AccessKind.LOOKUP, reason)
    tied = {column.lower() for table, column in find_ties(query) if table.name.lower() == name.lower()}
    way = ways.among(name, tied)
    if way is not None:
        known = f"{', '.join(way[1])} is {way[0]}, and is compared with columns of joined tables"
        reason = f"{known}: Arrow reads only matching rows; Spark reads the whole table, once per version"
        return Access(name, AccessKind.LOOKUP, reason)
    return Access(
        name, AccessKind.SNAPSHOT, f"the whole table is read, once per version: {_why_whole(name, columns | tied)}"
    )


def _why_whole(name: str, columns: set[str]) -> str:
    if not columns:
        return "no column of it is compared with the batch by equality"
    listed = ", ".join(sorted(columns))
    return f"there is no index on {listed} (CREATE INDEX ON {name} ({listed}) would avoid it)"


def _asked(bound: BoundQuery) -> dict[str, AccessKind]:
    asked: dict[str, AccessKind] = {}
    for select in bound.selects:
        for name, word in _hinted(select):
            item = select.scope.item(name.name)
            if item is not None and item.relation is not None:
                asked[item.relation.name.lower()] = HINTS[word.lower()]
    return asked


def _hinted(select: BoundSelect) -> Iterator[tuple[exp.Expr, str]]:
    """The names in LOOKUP and SNAPSHOT hints; Spark's own hints are ignored."""
    hint = select.rows.args.get("hint")
    for call in hint.expressions if hint is not None else ():
        if call.name.lower() in HINTS:
            yield from ((name, call.name.upper()) for name in call.expressions)


def wrong_hints(select: BoundSelect) -> Iterator[tuple[exp.Expr, str]]:
    """Names in hints that are not tables of their SELECT."""
    for name, word in _hinted(select):
        item = select.scope.item(name.name)
        if item is None or item.drivers:
            yield name, word


def empty_hints(select: BoundSelect) -> Iterator[exp.Expr]:
    """Invalid hints: unknown ones, and LOOKUP and SNAPSHOT without a table."""
    hint = select.rows.args.get("hint")
    for call in hint.expressions if hint is not None else ():
        known = call.name.lower() in HINTS
        if (known and not call.expressions) or not (known or call.name.upper() in SPARK_HINTS):
            yield call


def without_hints(query: exp.Query) -> exp.Query:
    """The query without the hints that only the planner reads."""
    if not any(call.name.lower() in HINTS for hint in query.find_all(exp.Hint) for call in hint.expressions):
        return query
    copy = query.copy()
    for hint in list(copy.find_all(exp.Hint)):
        kept = [call for call in hint.expressions if call.name.lower() not in HINTS]
        assert hint.parent is not None
        hint.parent.set("hint", exp.Hint(expressions=kept) if kept else None)
    return copy
