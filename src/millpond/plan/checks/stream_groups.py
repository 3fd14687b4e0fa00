"""Check: an event of a stream belongs to one group, and no group depends on others."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.checks.table_changes import CHANGES
from millpond.plan.context import Planned
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
        group = select.node.args.get("group")
        sets = group.find(exp.Rollup, exp.Cube, exp.GroupingSets) if group is not None else None
        if sets is not None:
            word = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE"}.get(type(sets), "GROUPING SETS")
            message = f"{word} is not supported over a stream, because one event would be in several groups."
            hint = f"Store the finest groups in a table, and use {word} in a view over it."
            yield subject.problem("MP220", message, subject.at(sets, planned.statement.place), hint)
        elif select.grouped and select.node.args.get("distinct") is not None:
            message = "DISTINCT of groups is not supported over a stream, because a group changes with every batch."
            hint = "Store the groups in a table, and use DISTINCT in a view over it."
            yield subject.problem("MP220", message, planned.statement.place, hint)
    for planned in subject.planned:
        if planned.bound is None or any(d.startswith(CHANGES) for d in planned.drivers):
            continue
        for operation in planned.bound.query.find_all(exp.SetOperation):
            if any(table.name == BATCH for table in operation.find_all(exp.Table)):
                yield from _set_operation(subject, planned, operation)


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
