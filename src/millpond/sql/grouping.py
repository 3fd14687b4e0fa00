"""Scalar subqueries beside groups, in a form that Spark runs: it takes correlated ones only inside an aggregate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from sqlglot import exp

from millpond.sql.correlation import is_correlated

Tree = TypeVar("Tree", bound=exp.Expr)

# What stands around a subquery that is no value by itself.
_COMPARING = (exp.In, exp.Any, exp.All, exp.Exists)


def rewrite_grouped(tree: Tree) -> Tree:
    """The tree with FIRST around correlated scalar subqueries of grouped SELECT lists: they look at groups, so that all
    rows of a group give the same; a new tree."""
    tree = tree.copy()
    for select in list(tree.find_all(exp.Select)):
        group = select.args.get("group")
        if group is not None:
            for value in list(_scalars(select, group)):
                value.replace(exp.First(this=value.copy()))
    return tree


def _scalars(select: exp.Select, group: exp.Expr) -> Iterator[exp.Expr]:
    for projection in select.expressions:
        for node in projection.walk(bfs=False, prune=lambda n: isinstance(n, exp.Query | exp.AggFunc)):
            if not isinstance(node, exp.Subquery) or isinstance(node.parent, _COMPARING):
                continue
            if node not in group.expressions and is_correlated(node):
                yield node
