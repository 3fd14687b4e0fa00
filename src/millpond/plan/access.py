"""How each table reaches Spark, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from millpond.plan.bound import BoundQuery, BoundSelect
from millpond.plan.model import Access, AccessKind

HINTS = {"lookup": AccessKind.LOOKUP, "snapshot": AccessKind.SNAPSHOT}


def choose_access(bound: BoundQuery) -> tuple[Access, ...]:
    """How a query reads each of its tables."""
    asked = _asked(bound)
    return tuple(_chosen(name, asked) for name in bound.tables)


def _chosen(name: str, asked: Mapping[str, AccessKind]) -> Access:
    """One table: a lookup by key equality would be decided here; until then every table is a snapshot."""
    wish = asked.get(name.lower())
    if wish is AccessKind.LOOKUP:
        return Access(name, AccessKind.SNAPSHOT, "LOOKUP was asked for, but this version hands over whole tables")
    if wish is AccessKind.SNAPSHOT:
        return Access(name, AccessKind.SNAPSHOT, "asked for by the hint SNAPSHOT")
    return Access(name, AccessKind.SNAPSHOT, "read whole, once per version; lookups by key are not there yet")


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
