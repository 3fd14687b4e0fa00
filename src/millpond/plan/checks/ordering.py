"""Check: ORDER BY and LIMIT of a table's definition, which has no order, and positions of ORDER BY."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.model import StepKind
from millpond.sql.statements import CreateTable


def check(subject: Subject) -> Iterator[Problem]:
    yield from _positions(subject)
    for planned in subject.planned:
        if not isinstance(planned.statement, CreateTable) or planned.bound is None:
            continue
        name, clauses = planned.statement.name, planned.bound.query.args
        if clauses.get("limit") is not None and planned.kind is StepKind.AGGREGATE:
            message = f"LIMIT is not allowed in the definition of table '{name}': the groups of a stream never end."
            yield subject.problem("MP220", message, clauses["limit"], "Read the table with ORDER BY and LIMIT instead.")
        elif clauses.get("order") is not None and clauses.get("limit") is None:
            message = f"ORDER BY has no effect here: table '{name}' has no order."
            yield subject.warning("MP223", message, clauses["order"], "Order the query that reads it.")


def _positions(subject: Subject) -> Iterator[Problem]:
    """ORDER BY 3 must be a position of the SELECT list."""
    for _, select in subject.selects():
        order = select.node.args.get("order")
        for ordered in order.expressions if order is not None and select.outputs is not None else ():
            value, count = ordered.this, len(select.outputs or ())
            if isinstance(value, exp.Literal) and value.is_int and not 1 <= int(value.this) <= count:
                message = f"ORDER BY {value.this} is out of range: the SELECT list ends at {count}."
                yield subject.problem("MP210", message, value, "Positions start at 1.")
