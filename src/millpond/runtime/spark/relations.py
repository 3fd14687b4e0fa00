"""Queries of the plan made ready for Spark: relations renamed to temporary views, stream order carried along."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from millpond.contracts.source import ORDER_MAJOR, ORDER_MINOR
from millpond.plan.missing import rewrite_missing
from millpond.plan.model import BATCH
from millpond.sql.correlation import rewrite_correlated
from millpond.sql.grouping import rewrite_grouped
from millpond.sql.ordering import rewrite_ordering
from millpond.sql.rewrites import rewrite_any_all
from millpond.sql.spark import render

ORDER = (ORDER_MAJOR, ORDER_MINOR)


def tables_of(query: exp.Expr) -> tuple[str, ...]:
    """The relations a query reads, in lower case, without its own WITH names."""
    return tuple(dict.fromkeys(table.name.lower() for table in _real_tables(query)))


def spark_text(query: exp.Query, views: Mapping[str, str]) -> str:
    """The query as Spark runs it: each relation is its temporary view, known by its own name."""
    ready = query.copy()
    for table in list(_real_tables(ready)):
        view = views[table.name.lower()]
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        table.set("this", exp.to_identifier(view, quoted=True))
    return render(rewrite_correlated(rewrite_any_all(rewrite_grouped(rewrite_ordering(rewrite_missing(ready))))))


def _real_tables(query: exp.Expr) -> list[exp.Table]:
    own = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    return [t for t in query.find_all(exp.Table) if isinstance(t.this, exp.Identifier) and t.name.lower() not in own]


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
