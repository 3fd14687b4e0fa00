"""Functions in a query: which are aggregates, and what they are called."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.plan.function_names import AGGREGATES, RANKINGS

# What stands around an aggregate and belongs to it: FILTER (WHERE ...), WITHIN GROUP (...), IGNORE NULLS.
WRAPPERS = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)


def function_name(node: exp.Expr) -> str:
    """The name under which Spark knows a function, in lower case."""
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return node.name.lower()
    written = node.meta_get("name")
    return str(written or (node.sql_name() if isinstance(node, exp.Func) else node.key)).lower()


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is a call of an aggregate function."""
    if isinstance(node, exp.Anonymous):
        return function_name(node) in AGGREGATES
    return isinstance(node, exp.AggFunc) and not is_ranking(node)


def is_ranking(node: exp.Expr) -> bool:
    """Whether a node is a function that only stands before OVER, such as row_number."""
    return isinstance(node, exp.Func) and function_name(node) in RANKINGS


def parts(expr: exp.Expr) -> Iterator[exp.Expr]:
    """A node and everything in it that belongs to the same query: subqueries are given, their inside is not."""
    return expr.walk(bfs=False, prune=lambda node: isinstance(node, exp.Query) and node is not expr)


def aggregates_in(expr: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregate calls of an expression, with what is wrapped around them; those before OVER are none."""
    for node in expr.walk(bfs=False, prune=_ends_search):
        if isinstance(node, WRAPPERS) or is_aggregate(node):
            yield node


def _ends_search(node: exp.Expr) -> bool:
    return isinstance(node, (exp.Query, exp.Window, *WRAPPERS)) or is_aggregate(node)


def has_aggregate(expr: exp.Expr) -> bool:
    return next(aggregates_in(expr), None) is not None
