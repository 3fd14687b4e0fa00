"""How each table reaches Spark, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from millpond.plan.bound import BoundQuery, BoundSelect
from millpond.plan.lookups import Lookup, find_lookups
from millpond.plan.model import Access, AccessKind

HINTS = {"lookup": AccessKind.LOOKUP, "snapshot": AccessKind.SNAPSHOT}
_SPARK_HINTS = """
    BROADCAST BROADCASTJOIN MAPJOIN MERGE SHUFFLE_MERGE MERGEJOIN SHUFFLE_HASH SHUFFLE_REPLICATE_NL COALESCE REPARTITION
    REPARTITION_BY_RANGE REBALANCE
"""
SPARK_HINTS = tuple(_SPARK_HINTS.split())


def choose_access(bound: BoundQuery) -> tuple[Access, ...]:
    """How a query reads each of its tables."""
    asked = _asked(bound)
    read = [r.relation for r in bound.readings]
    keys = {r.name.lower(): r.key if r.columns is None else r.columns.key for r in read}
    lookups = find_lookups(bound.query)
    return tuple(_chosen(name, asked.get(name.lower()), keys.get(name.lower(), ()), lookups) for name in bound.tables)


def access_of(query: exp.Query, reads: tuple[Access, ...], keys: Mapping[str, tuple[str, ...]]) -> tuple[Access, ...]:
    """How one of the queries that a statement was taken apart into reads its part of the statement's tables."""
    named = {table.name.lower() for table in query.find_all(exp.Table)}
    lookups = find_lookups(query)
    own = (access for access in reads if access.table.lower() in named)
    return tuple(a if a.hinted else _chosen(a.table, None, keys.get(a.table.lower(), ()), lookups) for a in own)


def _chosen(name: str, wish: AccessKind | None, key: tuple[str, ...], lookups: tuple[Lookup, ...]) -> Access:
    """One table: by the batch's keys where an equality gives its whole key, else whole."""
    tied = [k for k in lookups if k.node.name.lower() == name.lower()]
    columns = {c.lower() for lookup in tied for c in lookup.columns}
    if wish is AccessKind.SNAPSHOT:
        return Access(name, AccessKind.SNAPSHOT, "asked for by the hint SNAPSHOT", True)
    if wish is AccessKind.LOOKUP:
        reason = "asked for by the hint LOOKUP" if tied else "LOOKUP was asked for, but nothing ties it to the batch"
        return Access(name, AccessKind.LOOKUP if tied else AccessKind.SNAPSHOT, reason, True)
    if key and all(k.lower() in columns for k in key):
        reason = f"{', '.join(key)} is its key: only rows of the batch's keys are read (all of them while it is small)"
        return Access(name, AccessKind.LOOKUP, reason)
    if tied:
        reason = f"read whole, once per version, unless there is an index on {', '.join(sorted(columns))}"
        return Access(name, AccessKind.LOOKUP, reason)
    return Access(name, AccessKind.SNAPSHOT, "read whole, once per version: no equality ties it to the batch")


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
