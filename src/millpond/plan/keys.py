"""The primary key of a table made AS SELECT: as written, its groups, or the key of the one table it copies."""

from __future__ import annotations

from sqlglot import exp

from millpond.plan.bound import BoundQuery, BoundSelect, Output
from millpond.plan.columns import WINDOW_COLUMNS
from millpond.plan.context import Context
from millpond.plan.outputs import expression_name
from millpond.sql import nodes
from millpond.sql.statements import CreateTable
from millpond.suggest import did_you_mean


def key_of_query(statement: CreateTable, bound: BoundQuery, context: Context) -> tuple[tuple[str, ...], bool]:
    """The key, and whether its columns may be NULL: they may where they are groups, of a table that it copies too."""
    if bound.outputs is None:
        return (), False
    top = bound.top
    if top is not None and top.grouped:
        return _group_key(statement, bound, top, context), True
    if statement.key:
        return _written_key(statement, bound.outputs, context), False
    copied = context.tables.get(bound.tables[0].lower()) if bound.tables else None
    return _kept_key(bound), copied is not None and copied.spec.null_keys


def _written_key(statement: CreateTable, outputs: tuple[Output, ...], context: Context) -> tuple[str, ...]:
    names = {o.name.lower(): o.name for o in outputs}
    for name in statement.key:
        if name.key not in names:
            hint = did_you_mean(name.text, names.values()) or f"It yields: {', '.join(names.values())}."
            message = f"PRIMARY KEY names '{name}', which the query does not yield."
            context.findings.error("MP208", message, name.place, hint)
    return tuple(names[n.key] for n in statement.key if n.key in names)


def _group_key(statement: CreateTable, bound: BoundQuery, top: BoundSelect, context: Context) -> tuple[str, ...]:
    """The outputs that are the groups; over a stream each group must be among them."""
    assert bound.outputs is not None
    group_by = top.node.args.get("group")
    if group_by is not None and group_by.find(exp.Rollup, exp.Cube, exp.GroupingSets):
        # The row of a subtotal has NULL where it is not grouped, as a NULL group has.
        return _written_key(statement, bound.outputs, context)
    key: list[str] = []
    for group in top.groups:
        found = _window_outputs(bound.outputs) if isinstance(group, nodes.Window) else _equal(bound.outputs, group)
        if not found:
            if not bound.drivers:
                return _written_key(statement, bound.outputs, context)
            _report_group(statement, group, context)
        key += found
    if statement.key and {n.key for n in statement.key} != {k.lower() for k in key}:
        message = f"Table '{statement.name}' is keyed by its groups ({', '.join(key) or 'it has none'})."
        hint = "Leave PRIMARY KEY out: a table with GROUP BY is keyed by its group columns."
        context.findings.error("MP208", message, statement.key[0].place, hint)
    return tuple(dict.fromkeys(key))


def _equal(outputs: tuple[Output, ...], group: exp.Expr) -> list[str]:
    return [o.name for o in outputs if o.expr == group][:1]


def _window_outputs(outputs: tuple[Output, ...]) -> list[str]:
    columns = [o for o in outputs if isinstance(o.expr, exp.Column) and not o.expr.table]
    return [o.name for o in columns if o.expr.name.lower() in WINDOW_COLUMNS]


def _report_group(statement: CreateTable, group: exp.Expr, context: Context) -> None:
    if isinstance(group, nodes.Window):
        message = f"Table '{statement.name}' is kept by window, but its SELECT list has no window_start."
        context.findings.error("MP208", message, group, "Add window_start to the SELECT list.")
        return
    name = expression_name(group)
    message = f"Table '{statement.name}' is kept by '{name}', which is not in its SELECT list."
    context.findings.error("MP208", message, group, f"Add {name} to the SELECT list: the groups are the table's key.")


def _kept_key(bound: BoundQuery) -> tuple[str, ...]:
    """The key of the only relation below, when all its columns come through as they are."""
    top = bound.top
    if top is None or bound.drivers or len(top.scope.items) != 1 or top.node.args.get("distinct"):
        return ()
    item = top.scope.items[0]
    if item.columns is None or not item.columns.key:
        return ()
    passed = {
        o.expr.name.lower(): o.name
        for o in bound.outputs or ()
        if isinstance(o.expr, exp.Column) and o.expr.table == item.alias
    }
    key = [passed.get(k.lower()) for k in item.columns.key]
    return tuple(k for k in key if k) if all(key) else ()
