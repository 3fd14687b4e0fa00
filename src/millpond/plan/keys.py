"""The primary key of a table made AS SELECT: as written, its groups, or what follows from the keys of its tables."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from millpond.plan.bound import BoundQuery, BoundSelect, Output
from millpond.plan.columns import WINDOW_COLUMNS
from millpond.plan.context import Context
from millpond.plan.outputs import expression_name
from millpond.plan.refresh import Bond, Input, bonds_of, inputs_of
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
    key, tables = _kept_key(bound)
    below = [context.tables.get(name.lower()) for name in tables]
    return key, any(table is not None and table.spec.null_keys for table in below)


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


def _kept_key(bound: BoundQuery) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The key that follows from the keys of the tables below, and the tables whose keys make it: a table whose key is
    equal to columns of others adds no row to theirs."""
    top = bound.top
    inputs = _joined_inputs(bound, top) if top is not None else ()
    if top is None or not inputs:
        return (), ()
    keys = {i.alias.lower(): i.columns.key for i in top.scope.items if i.columns is not None}
    bonds = tuple(bonds_of(top, inputs))
    base = [i.alias for i in inputs if not i.optional]
    for alias in list(reversed(base)):
        others = [a for a in base if a != alias]
        if alias in _determined(others, keys, bonds):
            base = others
    if not base or not all(i.alias in _determined(base, keys, bonds) for i in inputs):
        return (), ()
    names = [_output_of(bound, alias, column, bonds) for alias in base for column in keys[alias]]
    tables = tuple(i.table for i in inputs if i.alias in base)
    return (tuple(dict.fromkeys(n for n in names if n)), tables) if all(names) else ((), ())


def _joined_inputs(bound: BoundQuery, top: BoundSelect) -> tuple[Input, ...]:
    """The tables of a FROM, each with a key; none where rows come from anything else too."""
    node = top.node
    if bound.drivers or node.args.get("distinct") or node.args.get("laterals") or top.grouped:
        return ()
    if any(any(word in _words(join) for word in ("RIGHT", "FULL")) for join in node.args.get("joins") or ()):
        return ()
    if any(isinstance(i.node, exp.Table) and i.node.args.get("joins") for i in top.scope.items):
        return ()
    items = {i.alias.lower(): i for i in top.scope.items if i.shown}
    found = tuple(i for i in inputs_of(top) if i.alias in items)
    keyed = all(item.columns is not None and item.columns.key for item in items.values())
    return found if keyed and len(found) == len(items) else ()


def _words(join: exp.Join) -> list[str]:
    return f"{join.args.get('side') or ''} {join.args.get('kind') or ''}".upper().split()


def _determined(start: list[str], keys: Mapping[str, tuple[str, ...]], bonds: tuple[Bond, ...]) -> set[str]:
    """The tables of which there is at most one row for each combination of rows of some."""
    known = set(start)
    while start:
        more = {a for a in keys if a not in known and keys[a] and all(_tied(a, k, known, bonds) for k in keys[a])}
        if not more:
            break
        known |= more
    return known


def _tied(alias: str, column: str, known: set[str], bonds: tuple[Bond, ...]) -> bool:
    """Whether a column equals one of tables that are known."""
    ways = (bond.across(alias) for bond in bonds if bond.optional in (None, alias))
    return any(way is not None and way[0].lower() == column.lower() and way[1][0] in known for way in ways)


def _output_of(bound: BoundQuery, alias: str, column: str, bonds: tuple[Bond, ...]) -> str | None:
    """The output that is a column, or one that always equals it."""
    equal = [b.across(alias) for b in bonds if b.optional is None]
    wanted = [(alias, column.lower())]
    wanted += [(a[1][0], a[1][1].lower()) for a in equal if a is not None and a[0].lower() == column.lower()]
    for output in bound.outputs or ():
        found = output.expr
        if isinstance(found, exp.Column) and (found.table.lower(), found.name.lower()) in wanted:
            return output.name
    return None
