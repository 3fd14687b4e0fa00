"""Check: groups of a stream do not depend on each other, and grouping sets have a form that is supported."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.bound import BoundSelect
from millpond.plan.checks.subject import Subject
from millpond.plan.checks.table_changes import CHANGES
from millpond.plan.context import Planned
from millpond.plan.grouping_sets import grouping_sets, has_sets
from millpond.plan.model import BATCH


def check(subject: Subject) -> Iterator[Problem]:
    for planned, select in subject.selects():
        if not select.streams or any(d.startswith(CHANGES) for d in planned.drivers):
            continue
        for pivot in (p for item in select.streams for p in item.node.args.get("pivots") or ()):
            if not pivot.args.get("unpivot"):
                message = "PIVOT is not supported over a stream, because its columns are aggregates of all events."
                hint = "Store the groups in a table, and use PIVOT in a view over it."
                yield subject.problem("MP220", message, subject.at(pivot, planned.statement.place), hint)
        yield from _sets(subject, planned, select)
        if select.grouped and select.node.args.get("distinct") is not None:
            message = "DISTINCT of groups is not supported over a stream, because a group changes with every batch."
            hint = "Store the groups in a table, and use DISTINCT in a view over it."
            yield subject.problem("MP220", message, planned.statement.place, hint)
    for planned in subject.planned:
        if planned.bound is None or any(d.startswith(CHANGES) for d in planned.drivers):
            continue
        for operation in planned.bound.query.find_all(exp.SetOperation):
            if any(table.name == BATCH for table in operation.find_all(exp.Table)):
                yield from _set_operation(subject, planned, operation)


def _sets(subject: Subject, planned: Planned, select: BoundSelect) -> Iterator[Problem]:
    """Grouping sets over a stream: their form, and the groups that GROUPING refers to."""
    has = has_sets(select.node)
    found = grouping_sets(select.node) if has else None
    if has and found is None:
        message = "This form of GROUP BY is not supported over a stream."
        hint = "Write GROUP BY ROLLUP (a, b), CUBE (a, b) or GROUPING SETS ((a, b), ()), with a window beside it."
        yield subject.problem("MP220", message, planned.statement.place, hint)
        return
    clauses = [o.expr for o in select.outputs or ()]
    clauses += [c.this for name in ("having", "qualify") if (c := select.node.args.get(name)) is not None]
    for node in (n for clause in clauses for n in clause.find_all(exp.Grouping, exp.GroupingId)):
        wrong = next((key for key in node.expressions if found is None or key not in found.keys), None)
        if found is None or wrong is not None:
            name = "GROUPING" if isinstance(node, exp.Grouping) else "GROUPING_ID"
            message = f"{name} requires a group of ROLLUP, CUBE or GROUPING SETS."
            yield subject.problem(
                "MP220", message, subject.at(node, planned.statement.place), "Name one of its groups."
            )


def _set_operation(subject: Subject, planned: Planned, operation: exp.SetOperation) -> Iterator[Problem]:
    word = operation.key.upper()
    if word != "UNION":
        message = f"{word} is not supported over a stream, because it compares all rows with each other."
        hint = f"Use LEFT {'SEMI' if word == 'INTERSECT' else 'ANTI'} JOIN with a table."
        yield subject.problem("MP220", message, planned.statement.place, hint)
    elif (side := _table_side(operation)) is not None:
        message = "This UNION ALL emits all rows of its tables in every batch."
        hint = "Join the table, or insert its rows by a separate statement, which runs once."
        yield subject.warning("MP216", message, subject.at(side, planned.statement.place), hint)
    elif operation.args.get("distinct"):
        message = "UNION without ALL is not allowed inside a query over a stream."
        hint = "Write UNION ALL here, and SELECT DISTINCT around it."
        yield subject.problem("MP220", message, planned.statement.place, hint)


def _table_side(operation: exp.SetOperation) -> exp.Expr | None:
    """The side of UNION ALL that reads only tables."""
    if operation.args.get("distinct"):
        return None
    sides = (operation.left, operation.right)
    of_stream = [any(t.name == BATCH for t in side.find_all(exp.Table)) for side in sides]
    return next((s for s, streamed in zip(sides, of_stream, strict=True) if not streamed and any(of_stream)), None)
