"""Check: a subquery returns as many columns as its position requires."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.bound import BoundSelect
from millpond.plan.checks.subject import Subject
from millpond.plan.outputs import counted

RELATION_PLACES = (exp.From, exp.Join, exp.Subquery, exp.SetOperation, exp.CTE, exp.Lateral, exp.Exists)


def check(subject: Subject) -> Iterator[Problem]:
    for _, select in subject.selects():
        wanted = _wanted(select.node)
        if wanted is None or select.outputs is None or len(select.outputs) == wanted:
            continue
        found = counted(len(select.outputs), "column")
        message = f"This subquery returns {found}, but {counted(wanted, 'column', 'is')} expected here."
        yield subject.problem("MP224", message, _at(select), f"Select {counted(wanted, 'column')}.")


def _at(select: BoundSelect) -> exp.Expr:
    assert select.outputs is not None
    return select.outputs[-1].expr if select.outputs else select.node


def _wanted(node: exp.Expr) -> int | None:
    """The number of columns that the position of a query requires; None for any number."""
    parent = node.parent
    while isinstance(parent, exp.Subquery):
        node, parent = parent, parent.parent
    if parent is None or isinstance(parent, RELATION_PLACES):
        return None
    if isinstance(parent, exp.Any | exp.All):
        parent = parent.parent
    if isinstance(parent, exp.In | exp.Binary):
        left = parent.this
        return len(left.expressions) if isinstance(left, exp.Tuple) else 1
    return 1
