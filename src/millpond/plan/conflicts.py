"""INSERT ... ON CONFLICT: bound against the row that is there and the one that was to be inserted."""

from __future__ import annotations

from sqlglot import exp

from millpond.errors import Place
from millpond.plan.binder import Binder
from millpond.plan.bound import BoundQuery
from millpond.plan.context import Context
from millpond.plan.functions import has_aggregate
from millpond.plan.merge_model import EXCLUDED, OnConflict
from millpond.plan.relations import StatementRelations
from millpond.plan.scope import Item, Scope
from millpond.plan.typed import as_expression
from millpond.plan.with_clauses import Clauses
from millpond.schema import Schema
from millpond.sql.statements import Assignment, Conflict
from millpond.suggest import did_you_mean


def bind_conflict(conflict: Conflict, table: str, columns: Schema, clauses: Clauses, context: Context) -> OnConflict:
    """What DO says; names without a qualifier are those of the row that is there."""
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
    """A group of a stream comes again with each batch that changes it, so what DO makes of it would hang on batches."""
    if grouped and bound.drivers:
        message = "ON CONFLICT cannot take groups of a stream: each comes again whenever it changes."
        hint = "Keep the groups in a table: CREATE TABLE ... AS SELECT ... GROUP BY; or UPSERT the groups."
        context.findings.error("MP220", message, conflict.place, hint)


def _check_key(conflict: Conflict, table: str, columns: Schema, context: Context) -> None:
    if not columns.key:
        message = f"ON CONFLICT needs a PRIMARY KEY, and table '{table}' has none: nothing in it can be in conflict."
        hint = "Declare a PRIMARY KEY, or leave ON CONFLICT out."
        context.findings.error("MP208", message, conflict.place, hint)
    elif conflict.columns and {n.key for n in conflict.columns} != {k.lower() for k in columns.key}:
        key = ", ".join(columns.key)
        message = f"ON CONFLICT names other columns than the key of table '{table}', which is ({key})."
        context.findings.error("MP208", message, conflict.columns[0].place, f"Write ON CONFLICT ({key}).")


def _column(assignment: Assignment, table: str, columns: Schema, context: Context) -> str:
    """The column that is set, in the case of the table; "" where it cannot be."""
    name = assignment.column
    column = columns.get(name.text)
    if column is None:
        hint = did_you_mean(name.text, columns.names) or f"There are: {', '.join(columns.names)}."
        context.findings.error("MP202", f"Table '{table}' has no column '{name}'.", name.place, hint)
    elif column.name in columns.key:
        message = f"ON CONFLICT cannot set '{name}': it is in the key, by which the row was found."
        context.findings.error("MP208", message, name.place, "Leave it out; MERGE can do more.")
    else:
        return column.name
    return ""


def _check_twice(conflict: Conflict, context: Context) -> None:
    seen: set[str] = set()
    for assignment in conflict.assignments:
        name = assignment.column
        if name.key in seen:
            context.findings.error("MP205", f"SET names column '{name}' twice.", name.place, "Remove one of them.")
        seen.add(name.key)


def _check_plain(expression: exp.Expression, place: Place, context: Context) -> None:
    """Only the two rows are at hand."""
    if expression.find(exp.Query) is not None:
        message = "DO UPDATE cannot hold a subquery: it sees the row that is there and the new one."
        context.findings.error("MP224", message, place, "Write MERGE, or read the value in the SELECT.")
    elif has_aggregate(expression):
        message = "DO UPDATE cannot hold an aggregate: it sees one row that is there and the new one."
        context.findings.error("MP220", message, place, "Compute it in the SELECT.")
