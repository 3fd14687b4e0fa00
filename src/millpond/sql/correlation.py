"""Subqueries that look at the queries around them: how far out."""

from __future__ import annotations

from sqlglot import exp


def far_column(query: exp.Expr) -> exp.Column | None:
    """A column of a query two or more around the subquery that reads it, which Spark cannot resolve; None if there is
    none."""
    return next((column for column in query.find_all(exp.Column) if _distance(column) > 1), None)


def _distance(column: exp.Column) -> int:
    """How many queries out the relation of a column stands; 0 for one that is not qualified."""
    around, count = column.find_ancestor(exp.Select), 0
    while around is not None and column.table:
        if column.table.lower() in relation_names(around):
            return count
        around, count = around.find_ancestor(exp.Select), count + 1
    return 0


def relation_names(select: exp.Select) -> set[str]:
    """What the relations of FROM are called."""
    sides = [select.args.get("from_"), *(select.args.get("joins") or ())]
    relations = [side.this for side in sides if side is not None] + (select.args.get("laterals") or [])
    inside = [join.this for relation in relations for join in relation.args.get("joins") or ()]
    return {relation.alias_or_name.lower() for relation in (*relations, *inside)}


def is_correlated(query: exp.Expr) -> bool:
    """Whether a subquery reads columns of a query around it."""
    return any(not _is_known_inside(column, query) for column in query.find_all(exp.Column) if column.table)


def _is_known_inside(column: exp.Column, query: exp.Expr) -> bool:
    around = column.find_ancestor(exp.Select)
    while around is not None:
        if column.table.lower() in relation_names(around):
            return True
        around = None if around is query or around is query.this else around.find_ancestor(exp.Select)
    return False
