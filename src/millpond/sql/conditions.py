"""Conditions of a query: their conjuncts, and the correlation of subqueries with the queries around them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from sqlglot import exp

from millpond.sql.function_calls import AGGREGATES, function_name


def all_of(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """The conjuncts of a condition; none for None."""
    plain = condition.unnest() if condition is not None else None
    if isinstance(plain, exp.And):
        yield from all_of(plain.this)
        yield from all_of(plain.expression)
    elif plain is not None:
        yield plain


Tree = TypeVar("Tree", bound=exp.Expr)
# Clauses of a subquery through which Spark cannot move a comparison with the outer query.
_ABOVE = ("group", "having", "distinct", "limit", "offset", "windows", "qualify")


def rewrite_correlated(tree: Tree) -> Tree:
    """A new tree whose correlated subqueries Spark runs as hash joins on their equalities.

    `(SELECT COUNT(*) FROM p WHERE p.card = t.card AND p.ts < t.ts)`: Spark pairs the values of t.ts with every row of
    p, in a nested loop, because it replaces t.card by p.card where both are plain columns. With another expression of
    the same value on one side, it joins (t.card, t.ts) with p by a hash of the card.
    """
    tree = tree.copy()
    for select in list(tree.find_all(exp.Select)):
        equalities, others = _ties(select)
        if equalities and others and _is_more_than_rows(select):
            for column in equalities:
                column.replace(exp.Coalesce(this=column.copy(), expressions=[column.copy()]))
    return tree


def _ties(select: exp.Select) -> tuple[list[exp.Expr], int]:
    """The columns of a subquery that must equal an outer column, and the number of other correlated conditions."""
    names = relation_names(select)
    where = select.args.get("where")
    equalities: list[exp.Expr] = []
    others = 0
    for condition in all_of(where.this if where is not None else None):
        columns = [column for column in condition.find_all(exp.Column) if column.table]
        if all(_is_known_inside(column, select) for column in columns):
            continue
        own = _own_side(condition, names)
        if own is not None:
            equalities.append(own)
        else:
            others += 1
    return equalities, others


def _own_side(condition: exp.Expr, names: set[str]) -> exp.Expr | None:
    """The subquery's own column of `own = around` or `around = own`."""
    sides = (condition.this, condition.expression) if isinstance(condition, exp.EQ) else ()
    if not all(isinstance(side, exp.Column) for side in sides):
        return None
    own = [side for side in sides if side.table.lower() in names]
    return own[0] if len(own) == 1 else None


def _is_more_than_rows(select: exp.Select) -> bool:
    if any(select.args.get(clause) for clause in _ABOVE):
        return True
    return any(function_name(node) in AGGREGATES for e in select.expressions for node in e.walk())


def far_column(query: exp.Expr) -> exp.Column | None:
    """A column that a subquery reads from a query two or more levels out, which Spark cannot resolve; None if there
    is none."""
    return next((column for column in query.find_all(exp.Column) if _distance(column) > 1), None)


def _distance(column: exp.Column) -> int:
    """The number of query levels between a column and its relation; 0 for an unqualified column."""
    around, count = column.find_ancestor(exp.Select), 0
    while around is not None and column.table:
        if column.table.lower() in relation_names(around):
            return count
        around, count = around.find_ancestor(exp.Select), count + 1
    return 0


def relation_names(select: exp.Select) -> set[str]:
    """The names or aliases of the relations in FROM."""
    sides = [select.args.get("from_"), *(select.args.get("joins") or ())]
    relations = [side.this for side in sides if side is not None] + (select.args.get("laterals") or [])
    inside = [join.this for relation in relations for join in relation.args.get("joins") or ()]
    return {relation.alias_or_name.lower() for relation in (*relations, *inside)}


def is_correlated(query: exp.Expr) -> bool:
    """Whether a subquery reads columns of an outer query."""
    return any(not _is_known_inside(column, query) for column in query.find_all(exp.Column) if column.table)


def _is_known_inside(column: exp.Column, query: exp.Expr) -> bool:
    around = column.find_ancestor(exp.Select)
    while around is not None:
        if column.table.lower() in relation_names(around):
            return True
        around = None if around is query or around is query.this else around.find_ancestor(exp.Select)
    return False
