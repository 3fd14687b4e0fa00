"""Binding of INSERT ... ON CONFLICT against the existing row and the new row."""

from __future__ import annotations

from sqlglot import exp

from millpond.errors import Place, did_you_mean
from millpond.plan.binder import Binder
from millpond.plan.bound import BoundQuery, Item, Scope
from millpond.plan.change_model import EXCLUDED, OnConflict
from millpond.plan.context import Context
from millpond.plan.expression_types import as_expression
from millpond.plan.function_names import has_aggregate
from millpond.plan.statement_relations import StatementRelations
from millpond.plan.with_clauses import Clauses
from millpond.schema import Schema
from millpond.sql.statements import Assignment, Conflict


def bind_conflict(conflict: Conflict, table: str, columns: Schema, clauses: Clauses, context: Context) -> OnConflict:
    """The DO clause; names without a qualifier refer to the existing row."""
    _check_key(conflict, table, columns, context)
    node = exp.Star()
    there = Item(table, f"Table '{table}'", columns, node)
    new = Item(EXCLUDED, "The new row", columns, node, shown=False)
    scope = Scope(items=[there, new])
    binder = Binder(context.findings, StatementRelations(context, clauses))
    assignments = [
        (_column(a, table, columns, context), as_expression(binder.bind_inside(a.value.copy(), scope)))
        for a in conflict.assignments
    ]
    _check_twice(conflict, context)
    where = None if conflict.where is None else as_expression(binder.bind_inside(conflict.where.copy(), scope))
    for expression in (*(value for _, value in assignments), *([where] if where is not None else [])):
        _check_plain(expression, conflict.place, context)
    return OnConflict(tuple((name, value) for name, value in assignments if name), where)


def check_groups(conflict: Conflict, bound: BoundQuery, grouped: bool, context: Context) -> None:
    """A group of a stream is emitted with each batch that changes it, so the result of DO would depend on batches."""
    if grouped and bound.drivers:
        message = "ON CONFLICT is not supported for groups of a stream, which are emitted again whenever they change."
        hint = "Store the groups in a table: CREATE TABLE ... AS SELECT ... GROUP BY; or UPSERT the groups."
        context.findings.error("MP220", message, conflict.place, hint)


def _check_key(conflict: Conflict, table: str, columns: Schema, context: Context) -> None:
    if not columns.key:
        message = f"ON CONFLICT requires a PRIMARY KEY, which table '{table}' does not have."
        hint = "Declare a PRIMARY KEY, or remove ON CONFLICT."
        context.findings.error("MP208", message, conflict.place, hint)
    elif conflict.columns and {n.key for n in conflict.columns} != {k.lower() for k in columns.key}:
        key = ", ".join(columns.key)
        message = f"The columns of ON CONFLICT are not the key of table '{table}', which is ({key})."
        context.findings.error("MP208", message, conflict.columns[0].place, f"Write ON CONFLICT ({key}).")


def _column(assignment: Assignment, table: str, columns: Schema, context: Context) -> str:
    """The column that is set, in the case of the table; "" if it is invalid."""
    name = assignment.column
    column = columns.get(name.text)
    if column is None:
        hint = did_you_mean(name.text, columns.names) or f"Its columns are: {', '.join(columns.names)}."
        context.findings.error("MP202", f"Table '{table}' has no column '{name}'.", name.place, hint)
    elif column.name in columns.key:
        message = f"ON CONFLICT cannot set '{name}', because it is part of the key."
        context.findings.error("MP208", message, name.place, "Remove it, or use MERGE.")
    else:
        return column.name
    return ""


def _check_twice(conflict: Conflict, context: Context) -> None:
    seen: set[str] = set()
    for assignment in conflict.assignments:
        name = assignment.column
        if name.key in seen:
            context.findings.error("MP205", f"SET assigns column '{name}' twice.", name.place, "Remove one of them.")
        seen.add(name.key)


def _check_plain(expression: exp.Expression, place: Place, context: Context) -> None:
    """Reject subqueries and aggregates: only the two rows are available."""
    if expression.find(exp.Query) is not None:
        message = "A subquery is not allowed in DO UPDATE, which sees only the existing and the new row."
        context.findings.error("MP224", message, place, "Write MERGE, or read the value in the SELECT.")
    elif has_aggregate(expression):
        message = "An aggregate is not allowed in DO UPDATE, which sees only the existing and the new row."
        context.findings.error("MP220", message, place, "Compute it in the SELECT.")
