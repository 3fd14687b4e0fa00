"""UNION over a stream: each row the first time it is seen, which is DISTINCT of UNION ALL."""

from __future__ import annotations

from sqlglot import exp

from millpond.plan.catalog import Catalog

ROWS = "_union"
# Clauses of a UNION that hold for what is left of it.
AFTER = ("order", "limit", "offset", "with_")


def as_distinct(query: exp.Query, catalog: Catalog) -> exp.Query:
    """A UNION that a stream takes part in as SELECT DISTINCT; any other query as it is."""
    if not isinstance(query, exp.Union) or not query.args.get("distinct") or not _reads_stream(query, catalog):
        return query
    union: exp.Expr = query
    while isinstance(union, exp.Union):
        union.set("distinct", False)
        union = union.this
    outer = exp.Select(expressions=[exp.Star()], distinct=exp.Distinct())
    for clause in AFTER:
        outer.set(clause, query.args.get(clause))
        query.set(clause, None)
    alias = exp.TableAlias(this=exp.to_identifier(ROWS))
    return outer.from_(exp.Subquery(this=query, alias=alias), copy=False)


def _reads_stream(query: exp.Query, catalog: Catalog) -> bool:
    for from_ in query.find_all(exp.From):
        table = from_.this
        if not isinstance(table, exp.Table):
            continue
        relation = catalog.find(table.name) if isinstance(table.this, exp.Identifier) else None
        if relation is None or relation.is_stream:
            return True
    return False
