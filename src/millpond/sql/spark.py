"""Renders query trees as Spark SQL, after rewriting what Spark would not accept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from sqlglot import ErrorLevel, exp

from millpond.errors import BindError
from millpond.sql.conditions import is_correlated
from millpond.sql.dialect import MILLPOND
from millpond.sql.function_calls import REFUSED_HINT, refusal


def render(node: exp.Expr) -> str:
    """The Spark SQL of a tree, with names in backquotes where necessary; the tree is not changed.

    MP219 for a function that is not allowed: conditions that are passed to a table from Python are not planned
    before."""
    for call in node.find_all(exp.Anonymous):
        if refused := refusal(call):
            raise BindError("MP219", refused, hint=REFUSED_HINT)
    return MILLPOND.generate(node, copy=True, comments=False, unsupported_level=ErrorLevel.RAISE)


Tree = TypeVar("Tree", bound=exp.Expr)

# Nodes around a subquery that does not return a single value.
_COMPARING = (exp.In, exp.Any, exp.All, exp.Exists)


def rewrite_grouped(tree: Tree) -> Tree:
    """A new tree with FIRST around correlated scalar subqueries of grouped SELECT lists. Spark requires an aggregate
    there; the subquery depends only on the group, so that all rows of it have the same value."""
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


# Names that no user writes.
ROWS = "_ordered_rows"
VALUE = "_order_value_"
# Clauses that are applied after ORDER BY.
AFTER = ("order", "limit", "offset")


def rewrite_ordering(query: exp.Query) -> exp.Query:
    """A new query that computes its ORDER BY expressions in a subquery, if one of them contains a subquery."""
    order = query.args.get("order")
    if not isinstance(query, exp.Select) or order is None or order.find(exp.Query) is None:
        return query.copy()
    if query.args.get("distinct") is not None:
        return query.copy()
    rows = query.copy()
    order = rows.args["order"]
    outputs = [e.alias_or_name for e in rows.expressions]
    wanted = dict(zip(outputs, rows.expressions, strict=True))
    for number, key in enumerate(order.expressions):
        # A bare name may refer to an output column.
        named = isinstance(key.this, exp.Column) and not key.this.table and wanted.get(key.this.name)
        value = wanted[key.this.name].unalias() if named else key.this
        # Not exp.alias_, which would make the name an alias of the subquery's relation.
        named_value = exp.Alias(this=value.copy(), alias=exp.to_identifier(f"{VALUE}{number}", quoted=True))
        rows.append("expressions", named_value)
        key.set("this", exp.column(f"{VALUE}{number}", table=ROWS, quoted=True))
    alias = exp.TableAlias(this=exp.to_identifier(ROWS))
    ordered = exp.Select(
        expressions=[exp.alias_(exp.column(name, table=ROWS, quoted=True), name, quoted=True) for name in outputs]
    )
    for clause in AFTER:
        ordered.set(clause, rows.args.get(clause))
        rows.set(clause, None)
    return ordered.from_(exp.Subquery(this=rows, alias=alias), copy=False)
