"""Check: aggregates and window functions are used only where they are allowed."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.bound import BoundSelect, Spot
from millpond.plan.checks.subject import Subject
from millpond.plan.context import Planned
from millpond.plan.expression_types import type_of
from millpond.plan.function_names import aggregates_in, function_name, is_aggregate, is_ranking, parts
from millpond.plan.outputs import is_star
from millpond.schema import type_name
from millpond.sql.statements import CreateStream, Merge, Update

OF_NUMBERS = frozenset({"SUM", "AVG", "MEAN", "STDDEV", "STDDEV_SAMP", "STDDEV_POP", "VARIANCE", "VAR_SAMP", "VAR_POP"})


def check(subject: Subject) -> Iterator[Problem]:
    yield from _in_set(subject)
    for planned, select in subject.selects():
        yield from _in_clauses(subject, select)
        yield from _nested(subject, select)
        yield from _arguments(subject, select)
        yield from _rankings(subject, select)
        yield from _over_streams(subject, planned, select)


def _in_set(subject: Subject) -> Iterator[Problem]:
    for planned in subject.planned:
        for value in _row_by_row(planned):
            for call in aggregates_in(value):
                where = "SET" if isinstance(planned.statement, Update) else "MERGE"
                message = f"The aggregate {function_name(_inner(call)).upper()} is not allowed in {where}."
                hint = "Aggregate in a subquery over a table: SET n = (SELECT COUNT(*) FROM ...)."
                yield subject.problem("MP220", message, call, hint)


def _row_by_row(planned: Planned) -> list[exp.Expr]:
    """Expressions that are evaluated for one row at a time."""
    if isinstance(planned.statement, Merge) and planned.bound is not None:
        return list(planned.bound.query.expressions)
    return [value for _, value in planned.assignments] if isinstance(planned.statement, Update) else []


def _in_clauses(subject: Subject, select: BoundSelect) -> Iterator[Problem]:
    where = select.rows.args.get("where")
    joins = [j.args["on"] for j in select.rows.args.get("joins") or () if j.args.get("on") is not None]
    clauses = [("WHERE", where.this)] if where is not None else []
    clauses += [("ON", on) for on in joins] + [("GROUP BY", g) for g in select.groups]
    for word, expr in clauses:
        for call in (c for c in aggregates_in(expr) if not _is_of_query_around(c, select)):
            hint = "Write the condition in HAVING." if word == "WHERE" else "Compute it in a subquery or table first."
            name = function_name(_inner(call)).upper()
            yield subject.problem("MP220", f"The aggregate {name} is not allowed in {word}.", call, hint)
        # Spark rejects these, and over a stream they would be evaluated for each batch on its own.
        for window in (node for node in parts(expr) if isinstance(node, exp.Window)):
            hint = "Write the condition in QUALIFY." if word == "WHERE" else "Compute it in a subquery or stream first."
            message = f"{function_name(window.this).upper()} OVER is not allowed in {word}."
            yield subject.problem("MP220", message, window, hint)


def _is_of_query_around(call: exp.Expr, select: BoundSelect) -> bool:
    """Whether an aggregate in a subquery is over columns of the outer query, which is allowed in its HAVING or SELECT
    list."""
    own = {item.alias.lower() for item in select.scope.items}
    tables = {column.table.lower() for column in call.find_all(exp.Column)}
    parent = select.node.parent
    while parent is not None and not isinstance(parent, exp.Where | exp.Join | exp.Group | exp.Select):
        parent = parent.parent
    return bool(tables) and not tables & own and isinstance(parent, exp.Select)


def _inner(call: exp.Expr) -> exp.Expr:
    return next((n for n in call.walk() if is_aggregate(n)), call)


def _nested(subject: Subject, select: BoundSelect) -> Iterator[Problem]:
    for output in select.outputs or ():
        for call in aggregates_in(output.expr):
            outer = _inner(call)
            for child in outer.iter_expressions():
                for inner in aggregates_in(child):
                    message = f"{function_name(_inner(inner)).upper()} is nested in {function_name(outer).upper()}."
                    yield subject.problem(
                        "MP220", message, inner, "Compute the inner one in a table or subquery first."
                    )


def _arguments(subject: Subject, select: BoundSelect) -> Iterator[Problem]:
    """COUNT requires an argument, and only COUNT accepts *."""
    for call in (c for o in select.outputs or () for c in aggregates_in(o.expr)):
        inner = _inner(call)
        name = function_name(inner).upper()
        arguments = list(inner.iter_expressions())
        if name == "COUNT" and not arguments:
            yield subject.problem("MP219", "COUNT requires an argument.", call, "Write COUNT(*).")
        elif name == "COUNT" and any(is_star(a) and isinstance(a, exp.Column) for a in arguments):
            message = f"COUNT({arguments[0].sql()}) is not allowed, because it could mean rows or values."
            yield subject.problem("MP219", message, call, "Write COUNT(*) for rows, or COUNT(column) for values.")
        elif name != "COUNT" and any(is_star(a) for a in arguments):
            yield subject.problem("MP219", f"{name} does not accept *.", call, f"Write a column: {name}(column).")
        elif name in OF_NUMBERS and arguments and _is_no_number(found := type_of(arguments[0])):
            message = f"{name} requires a number, but this is {type_name(found)}."
            hint = "Write COUNT_IF(condition)." if pa.types.is_boolean(found) else "Cast it, or aggregate a part of it."
            yield subject.problem("MP206", message, call, hint)


def _is_no_number(found: pa.DataType | None) -> bool:
    """Whether Spark cannot sum a type; it casts texts and timestamps."""
    return found is not None and (pa.types.is_nested(found) or pa.types.is_boolean(found) or pa.types.is_date(found))


def _rankings(subject: Subject, select: BoundSelect) -> Iterator[Problem]:
    for output in select.outputs or ():
        for node in parts(output.expr):
            if is_ranking(node) and not _before_over(node):
                name = function_name(node).upper()
                yield subject.problem(
                    "MP220", f"{name} requires OVER (...).", node, f"Write {name}() OVER (ORDER BY ...)."
                )
            if isinstance(node, exp.Window) and not select.streams and any(_windows_in(node.this)):
                message = "A window function is not allowed in another window function."
                yield subject.problem("MP220", message, node, "Compute the inner one in a subquery.")


def _windows_in(call: exp.Expr) -> Iterator[exp.Expr]:
    return (node for node in parts(call) if isinstance(node, exp.Window))


def _before_over(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, exp.IgnoreNulls | exp.RespectNulls):
        parent = parent.parent
    return isinstance(parent, exp.Window)


def _of_changes(planned: Planned) -> bool:
    """Whether CHANGES(table) drives a statement."""
    return any(driver.startswith("changes(") for driver in planned.drivers)


def _over_streams(subject: Subject, planned: Planned, select: BoundSelect) -> Iterator[Problem]:
    if not select.streams:
        return
    if _of_changes(planned):
        for output in select.outputs or ():
            for node in parts(output.expr):
                if isinstance(node, exp.Window):
                    message = "A window function with OVER is not supported over the stream of this statement."
                    hint = "Store the events in a table (CREATE TABLE t AS SELECT ...) and query the table."
                    yield subject.problem("MP220", message, node, hint)
    folded = select.grouped or select.node.args.get("distinct") is not None
    if folded and isinstance(planned.statement, CreateStream):
        name = planned.statement.name
        message = f"Stream '{name}' cannot group or aggregate: aggregates of a stream are stored in tables."
        hint = f"Write CREATE TABLE {name} AS SELECT ...; every statement can read the table."
        yield subject.problem("MP220", message, name.place, hint)
    elif folded and select.inner and select.spot is not Spot.SUBQUERY:
        message = "An aggregate over a stream is not allowed in a subquery."
        hint = "Store it in a table, CREATE TABLE t AS SELECT ... GROUP BY ...; and read the table."
        yield subject.problem("MP220", message, select.node, hint)
