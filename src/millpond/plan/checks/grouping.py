"""Check: in a query with GROUP BY or aggregates, every column is grouped or aggregated."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.binder import WRONG
from millpond.plan.bound import BoundSelect
from millpond.plan.checks.subject import Subject
from millpond.plan.function_names import WRAPPERS, is_aggregate
from millpond.sql.conditions import relation_names


def check(subject: Subject) -> Iterator[Problem]:
    for _, select in subject.selects():
        if not select.grouped or select.outputs is None or any(g.meta_get(WRONG) for g in select.groups):
            continue
        for expr in _places(select):
            for column in _ungrouped(expr, select):
                yield _problem(subject, column, select)


def _places(select: BoundSelect) -> list[exp.Expr]:
    places = [o.expr for o in select.outputs or ()]
    if (having := select.rows.args.get("having")) is not None:
        places.append(having.this)
    if (order := select.node.args.get("order")) is not None:
        places += [o.this for o in order.expressions]
    return places


def _ungrouped(expr: exp.Expr, select: BoundSelect) -> Iterator[exp.Column]:
    def ends(node: exp.Expr) -> bool:
        return isinstance(node, WRAPPERS) or is_aggregate(node) or node in select.groups

    for node in expr.walk(bfs=False, prune=ends):
        if not isinstance(node, exp.Column) or node in select.groups:
            continue
        if _is_known(node, select) and not _is_of_subquery(node, select):
            yield node


def _is_of_subquery(column: exp.Column, select: BoundSelect) -> bool:
    """Whether a column belongs to a subquery inside the expression that has a relation of the same name."""
    around = column.find_ancestor(exp.Select)
    while around is not None and around is not select.node:
        if column.table.lower() in relation_names(around):
            return True
        around = around.find_ancestor(exp.Select)
    return False


def _is_known(column: exp.Column, select: BoundSelect) -> bool:
    """Whether a column belongs to the query's own relations; an unknown one was reported before."""
    item = select.scope.item(column.table or " ")
    return item is not None and (item.loose or item.column(column.name) is not None)


def _problem(subject: Subject, column: exp.Column, select: BoundSelect) -> Problem:
    alone = len(select.scope.items) == 1 or column.table.startswith("_")
    shown = column.name if alone else f"{column.table}.{column.name}"
    message = f"Column '{column.name}' is neither grouped nor aggregated."
    add = f"Add {shown} to GROUP BY" if select.groups else f"Add GROUP BY {shown}"
    return subject.problem("MP210", message, column, f"{add}, or aggregate it: MAX({shown}).")
