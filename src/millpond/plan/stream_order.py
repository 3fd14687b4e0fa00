"""The place of events in their stream, carried along by the queries over them."""

from __future__ import annotations

from sqlglot import exp

from millpond.contracts.source import ORDER_MAJOR, ORDER_MINOR
from millpond.plan.model import BATCH

ORDER = (ORDER_MAJOR, ORDER_MINOR)
ASCENDING = [(name, "ascending") for name in ORDER]


def carry_order(query: exp.Query) -> exp.Query | None:
    """The query with the stream order as two more columns, or None where the result has an order of its own or none
    (aggregates, DISTINCT, ORDER BY, LIMIT, set operations other than UNION ALL)."""
    copy = query.copy()
    return copy if _carry(copy) else None


def _carry(query: exp.Expr) -> bool:
    if isinstance(query, exp.Union):
        keeps = not query.args.get("distinct") and not query.args.get("order") and not query.args.get("limit")
        return keeps and _carry(query.this) and _carry(query.expression)
    if not isinstance(query, exp.Select) or _has_own_order(query):
        return False
    alias = _driving_alias(query)
    if alias is None:
        return False
    for name in ORDER:
        query.append("expressions", exp.column(name, table=alias, quoted=True))
    return True


def _has_own_order(query: exp.Select) -> bool:
    if any(query.args.get(part) for part in ("group", "having", "distinct", "order", "limit", "offset", "windows")):
        return True
    return any(e.find(exp.AggFunc) and not e.find(exp.Subquery) for e in query.expressions)


def _driving_alias(query: exp.Select) -> str | None:
    """The alias of the relation that carries the batch; a derived stream carries it inside."""
    relations = [query.args.get("from_") or query.args.get("from")]
    found = [r.this for r in relations if r is not None] + [j.this for j in query.args.get("joins") or []]
    outer = {"RIGHT", "FULL"}
    if any((j.side or "").upper() in outer for j in query.args.get("joins") or []):
        return None
    for relation in found:
        if isinstance(relation, exp.Table) and relation.name.lower() == BATCH:
            return relation.alias_or_name
        if isinstance(relation, exp.Subquery) and _reads_batch(relation) and _carry(relation.this):
            return relation.alias_or_name
    return None


def _reads_batch(relation: exp.Expr) -> bool:
    return any(t.name.lower() == BATCH for t in relation.find_all(exp.Table))
