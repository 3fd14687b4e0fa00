"""How each table reaches Spark, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from millpond.plan.bound import BoundQuery, BoundSelect
from millpond.plan.lookups import find_lookups, find_ties
from millpond.plan.model import Access, AccessKind, TablePlan

HINTS = {"lookup": AccessKind.LOOKUP, "snapshot": AccessKind.SNAPSHOT}
_SPARK_HINTS = """
    BROADCAST BROADCASTJOIN MAPJOIN MERGE SHUFFLE_MERGE MERGEJOIN SHUFFLE_HASH SHUFFLE_REPLICATE_NL COALESCE REPARTITION
    REPARTITION_BY_RANGE REBALANCE
"""
SPARK_HINTS = tuple(_SPARK_HINTS.split())


@dataclass(frozen=True)
class Ways:
    """By which columns each table can be asked for rows, by its name in lower case."""

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    indexes: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: Iterable[TablePlan], added: Mapping[str, tuple[tuple[str, ...], ...]]) -> Ways:
        """Those of tables as they are declared, with the indexes that statements of the file add."""
        found = {table.name.lower(): table.spec for table in tables}
        indexes = {name: (*spec.indexes, *added.get(name, ())) for name, spec in found.items()}
        return cls({name: spec.schema.key for name, spec in found.items()}, indexes)

    def among(self, table: str, columns: set[str]) -> tuple[str, tuple[str, ...]] | None:
        """The key or an index that lies within some columns, and what to call it."""
        name = table.lower()
        choices = [("its key", self.keys.get(name, ())), *(("an index of it", i) for i in self.indexes.get(name, ()))]
        return next(((word, way) for word, way in choices if way and {c.lower() for c in way} <= columns), None)


def choose_access(bound: BoundQuery, ways: Ways) -> tuple[Access, ...]:
    """How a query reads each of its tables."""
    asked = _asked(bound)
    if not bound.drivers:
        return tuple(_without_batch(name, asked.get(name.lower())) for name in bound.tables)
    return tuple(_chosen(name, asked.get(name.lower()), ways, bound.query) for name in bound.tables)


def access_of(query: exp.Query, reads: tuple[Access, ...], ways: Ways) -> tuple[Access, ...]:
    """How one of the queries that a statement was taken apart into reads its part of the statement's tables."""
    named = {table.name.lower() for table in query.find_all(exp.Table)}
    own = (access for access in reads if access.table.lower() in named)
    return tuple(a if a.hinted else _chosen(a.table, None, ways, query) for a in own)


def _without_batch(name: str, wish: AccessKind | None) -> Access:
    """A table of a query over tables alone."""
    if wish is AccessKind.LOOKUP:
        return Access(name, AccessKind.SNAPSHOT, "LOOKUP was asked for, but no stream drives the query", True)
    if wish is not None:
        return Access(name, wish, f"asked for by the hint {wish.upper()}", True)
    return Access(name, AccessKind.SNAPSHOT, "as it is when the statement runs")


def _chosen(name: str, wish: AccessKind | None, ways: Ways, query: exp.Query) -> Access:
    """One table: by the batch's keys where an equality gives its whole key or an index, else whole."""
    columns = {c.lower() for k in find_lookups(query) if k.node.name.lower() == name.lower() for c in k.columns}
    if wish is AccessKind.SNAPSHOT:
        return Access(name, AccessKind.SNAPSHOT, "asked for by the hint SNAPSHOT", True)
    way = ways.among(name, columns)
    if wish is AccessKind.LOOKUP:
        reason = "asked for by the hint LOOKUP" if way else f"LOOKUP was asked for, but {_why_whole(name, columns)}"
        return Access(name, AccessKind.LOOKUP if way else AccessKind.SNAPSHOT, reason, True)
    if way is not None:
        reason = (
            f"{', '.join(way[1])} is {way[0]}: only rows of the batch's keys are read (all of them while it is small)"
        )
        return Access(name, AccessKind.LOOKUP, reason)
    tied = {column.lower() for table, column in find_ties(query) if table.name.lower() == name.lower()}
    way = ways.among(name, tied)
    if way is not None:
        known = f"{', '.join(way[1])} is {way[0]}, and equals columns of joined tables"
        reason = f"{known}: on the driver only the rows that are met are read; Spark reads it whole, once per version"
        return Access(name, AccessKind.LOOKUP, reason)
    return Access(name, AccessKind.SNAPSHOT, f"read whole, once per version: {_why_whole(name, columns | tied)}")


def _why_whole(name: str, columns: set[str]) -> str:
    if not columns:
        return "no equality ties a column of it to the batch"
    listed = ", ".join(sorted(columns))
    return f"there is no index on {listed} (CREATE INDEX ON {name} ({listed}) would save that)"


def _asked(bound: BoundQuery) -> dict[str, AccessKind]:
    asked: dict[str, AccessKind] = {}
    for select in bound.selects:
        for name, word in _hinted(select):
            item = select.scope.item(name.name)
            if item is not None and item.relation is not None:
                asked[item.relation.name.lower()] = HINTS[word.lower()]
    return asked


def _hinted(select: BoundSelect) -> Iterator[tuple[exp.Expr, str]]:
    """The names in LOOKUP and SNAPSHOT hints; Spark's own hints are Spark's business."""
    hint = select.node.args.get("hint")
    for call in hint.expressions if hint is not None else ():
        if call.name.lower() in HINTS:
            yield from ((name, call.name.upper()) for name in call.expressions)


def wrong_hints(select: BoundSelect) -> Iterator[tuple[exp.Expr, str]]:
    """Names in hints that are no table of their SELECT."""
    for name, word in _hinted(select):
        item = select.scope.item(name.name)
        if item is None or item.drivers:
            yield name, word


def empty_hints(select: BoundSelect) -> Iterator[exp.Expr]:
    """Hints that mean nothing: unknown ones, and those of ours that name no table."""
    hint = select.node.args.get("hint")
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
