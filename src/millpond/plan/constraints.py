"""CHECK constraints of a table: bound against its own columns, named, and kept as text."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.plan.binder import Binder
from millpond.plan.context import Context
from millpond.plan.functions import has_aggregate
from millpond.plan.ownership import Shares
from millpond.plan.relations import StatementRelations
from millpond.plan.scope import Item, Scope
from millpond.plan.typed import as_expression, type_of
from millpond.plan.with_clauses import Clauses
from millpond.schema import Check, Schema, type_name
from millpond.sql.dialect import MILLPOND
from millpond.sql.statements import CheckDef, CreateTable


def bind_checks(
    statement: CreateTable, columns: Schema, context: Context
) -> tuple[tuple[Check, ...], exp.Expression | None]:
    """The constraints of a table, and all of them as one bound condition, for the checks that look at expressions."""
    checks: list[Check] = []
    bound: list[exp.Expression] = []
    for check in statement.checks:
        condition = _bound(check, statement, columns, context)
        if condition is None:
            continue
        name = _name(check, statement, {c.name.lower() for c in checks}, context)
        checks.append(Check(name, _unqualified(condition).sql(dialect=MILLPOND)))
        bound.append(condition)
    whole = as_expression(exp.and_(*bound)) if len(bound) > 1 else bound[0] if bound else None
    return tuple(checks), whole


def _bound(check: CheckDef, statement: CreateTable, columns: Schema, context: Context) -> exp.Expression | None:
    """The condition over the table's columns; None, with a finding, where it is none."""
    findings, condition = context.findings, check.condition
    if condition.find(exp.Query) is not None:
        message = "CHECK cannot hold a subquery: it is asked of one row alone."
        findings.error("MP225", message, check.place, "Compare columns of the row with each other or with constants.")
        return None
    if has_aggregate(condition) or condition.find(exp.Window, exp.Placeholder) is not None:
        message = "CHECK cannot hold an aggregate, a window function or a parameter: it is asked of one row alone."
        findings.error("MP225", message, check.place, "Compare columns of the row with each other or with constants.")
        return None
    item = Item(statement.name.text, f"Table '{statement.name}'", columns, condition)
    binder = Binder(findings, StatementRelations(context, Clauses(Shares(), {})))
    before = findings.errors
    bound = as_expression(binder.bind_inside(condition.copy(), Scope(items=[item])))
    found = type_of(bound)
    if found is not None and not pa.types.is_boolean(found) and not pa.types.is_null(found):
        message = f"CHECK needs a condition, but this is {type_name(found)}."
        findings.error("MP225", message, check.place, "Compare it with something: CHECK (quantity >= 0).")
        return None
    return bound if findings.errors == before else None


def _name(check: CheckDef, statement: CreateTable, taken: set[str], context: Context) -> str:
    """The name as written, or made of the table and the column."""
    if check.name is not None:
        if check.name.key in taken:
            message = f"Two constraints of table '{statement.name}' are named '{check.name}'."
            context.findings.error("MP205", message, check.name.place, "Give one of them another name.")
        return check.name.text
    base = "_".join([statement.name.text, *([check.column.text] if check.column is not None else []), "check"])
    number, name = 1, base
    while name.lower() in taken:
        number, name = number + 1, f"{base}_{number + 1}"
    return name


def _unqualified(condition: exp.Expression) -> exp.Expression:
    """`t.quantity` as `quantity`."""

    def strip(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Column):
            return exp.column(exp.to_identifier(node.name))
        return node

    return as_expression(condition.copy().transform(strip))
