"""The primary key of a table AS SELECT: as declared, its groups, or derived from the keys of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.source import IDENTITY, Mode
from millpond.errors import did_you_mean
from millpond.plan.bound import BoundQuery, BoundSelect, Output, Spot
from millpond.plan.columns import WINDOW_COLUMNS, Relations
from millpond.plan.context import Context
from millpond.plan.model import BATCH
from millpond.plan.outputs import expression_name, is_star
from millpond.plan.view_refresh import Bond, Input, bonds_of, inputs_of
from millpond.schema import Column, Schema
from millpond.sql import nodes
from millpond.sql.statements import CreateTable


def key_of_query(statement: CreateTable, bound: BoundQuery, context: Context) -> tuple[tuple[str, ...], bool]:
    """The key, and whether its columns may be NULL: if they are groups, also of a table that it copies."""
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
            hint = did_you_mean(name.text, names.values()) or f"Its columns are: {', '.join(names.values())}."
            message = f"PRIMARY KEY refers to '{name}', which is not a column of the query."
            context.findings.error("MP208", message, name.place, hint)
    return tuple(names[n.key] for n in statement.key if n.key in names)


def _group_key(statement: CreateTable, bound: BoundQuery, top: BoundSelect, context: Context) -> tuple[str, ...]:
    """The outputs that are groups; over a stream each group must be an output."""
    assert bound.outputs is not None
    group_by = top.rows.args.get("group")
    if group_by is not None and group_by.find(exp.Rollup, exp.Cube, exp.GroupingSets):
        # The row of a subtotal has NULL like a NULL group, so the groups do not identify a row.
        if bound.drivers and statement.key:
            message = f"Table '{statement.name}' has subtotals, whose groups are NULL, and cannot have a PRIMARY KEY."
            context.findings.error("MP208", message, statement.key[0].place, "Remove PRIMARY KEY.")
            return ()
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
        message = f"The key of table '{statement.name}' must be its groups ({', '.join(key) or 'it has none'})."
        hint = "Remove PRIMARY KEY: the key of a table with GROUP BY is its group columns."
        context.findings.error("MP208", message, statement.key[0].place, hint)
    return tuple(dict.fromkeys(key))


def _equal(outputs: tuple[Output, ...], group: exp.Expr) -> list[str]:
    return [o.name for o in outputs if o.expr == group][:1]


def _window_outputs(outputs: tuple[Output, ...]) -> list[str]:
    columns = [o for o in outputs if isinstance(o.expr, exp.Column) and not o.expr.table]
    return [o.name for o in columns if o.expr.name.lower() in WINDOW_COLUMNS]


def _report_group(statement: CreateTable, group: exp.Expr, context: Context) -> None:
    if isinstance(group, nodes.Window):
        message = f"The SELECT list of table '{statement.name}' must contain window_start, which is part of its key."
        context.findings.error("MP208", message, group, "Add window_start to the SELECT list.")
        return
    name = expression_name(group)
    message = f"The SELECT list of table '{statement.name}' must contain the group '{name}', which is part of its key."
    context.findings.error("MP208", message, group, f"Add {name} to the SELECT list.")


def _kept_key(bound: BoundQuery) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The key that follows from the keys of the input tables, and the tables whose keys it consists of: a table whose
    key equals columns of others does not multiply their rows."""
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
    """The tables of a FROM, each with a key; none if there are other relations."""
    node = top.rows
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
    """The tables that have at most one row for each combination of rows of `start`."""
    known = set(start)
    while start:
        more = {a for a in keys if a not in known and keys[a] and all(_tied(a, k, known, bonds) for k in keys[a])}
        if not more:
            break
        known |= more
    return known


def _tied(alias: str, column: str, known: set[str], bonds: tuple[Bond, ...]) -> bool:
    """Whether a column equals a column of the known tables."""
    ways = (bond.across(alias) for bond in bonds if bond.optional in (None, alias))
    return any(way is not None and way[0].lower() == column.lower() and way[1][0] in known for way in ways)


def _output_of(bound: BoundQuery, alias: str, column: str, bonds: tuple[Bond, ...]) -> str | None:
    """The output for a column, or for one that always equals it."""
    equal = [b.across(alias) for b in bonds if b.optional is None]
    wanted = [(alias, column.lower())]
    wanted += [(a[1][0], a[1][1].lower()) for a in equal if a is not None and a[0].lower() == column.lower()]
    for output in bound.outputs or ():
        found = output.expr
        if isinstance(found, exp.Column) and (found.table.lower(), found.name.lower()) in wanted:
            return output.name
    return None


NONE = ("none",)
# Clauses after which a row is no longer one message.
_OTHER = ("group", "distinct", "having", "qualify", "order", "limit", "offset", "windows", "with_")
_JOINING = ("joins", "laterals")


@dataclass(frozen=True)
class MessageKey:
    """The key of a table of messages: its key columns, and the corresponding columns of the batch. `traced`: the query
    is more than columns and rows of the batch, so messages are matched with their results."""

    columns: tuple[str, ...]
    behind: tuple[str, ...]
    traced: bool


def message_key(bound: BoundQuery, key: tuple[str, ...], context: Context) -> MessageKey | None:
    """The key by which later messages replace earlier ones; None for a query without one. It is the declared key, else
    the columns of the message key, else the message key itself."""
    query = bound.query
    if not _reads_messages(bound, context) or not isinstance(query, exp.Select) or not _keeps_messages(query):
        return None
    plain = _alias(query) is not None and not _multiplies(query) and len(bound.selects) == 1
    if bound.outputs is None:
        return MessageKey(key, (), False) if plain else None
    source = bound.drivers[0]
    named = _named(context.sources[source].plan.spec.values.get("key"))
    behind = {o.name: found for o in bound.outputs if (found := _behind(o.expr, query)) is not None}
    columns = key or _held(named, behind)
    if not all(name in behind for name in columns):
        # A computed key is not known for messages without a value, which delete.
        return MessageKey(columns, (), False) if plain else None
    if not columns and _multiplies(query):
        return None
    # Several columns require a key that is an object, and only a value with names can omit columns of the key.
    by_name = context.sources[source].plan.spec.values.get("format") == "json"
    if key and not named and (len(key) == 1 or by_name):
        context.sources.hold_key(source, tuple(behind[name] for name in key))
    held = columns or (IDENTITY,)
    return MessageKey(held, tuple(behind.get(c, c) for c in held), not plain)


def hold_written_key(key: tuple[str, ...], query: exp.Query, relations: Relations, context: Context) -> None:
    """Called before the query of a table is bound: the declared key column is that of the message key, if the values of
    the messages lack it and no option defines the key."""
    topic = _only_uri(query)
    held = _held_column(key[0], query) if len(key) == 1 else None
    if topic is None or held is None:
        return
    opened = [context.sources[d] for d in relations.of_node(topic, Spot.FROM, False).drivers if d in context.sources]
    if len(opened) != 1 or opened[0].plugin.table_mode is not Mode.CHANGES:
        return
    plan = opened[0].plan
    may_be = opened[0].plugin.key_may_be_column(plan.spec.values)
    if plan.columns is not None and held not in plan.columns and may_be:
        context.sources.hold_key(plan.id, (held,))


def _only_uri(query: exp.Query) -> exp.Table | None:
    """The URI of a query that selects columns and rows of a single URI."""
    if not isinstance(query, exp.Select) or any(query.args.get(clause) for clause in (*_OTHER, *_JOINING)):
        return None
    source = query.args.get("from_")
    found = source.this if source is not None else None
    return found if isinstance(found, exp.Table) and isinstance(found.this, nodes.Uri) else None


def _held_column(name: str, query: exp.Query) -> str | None:
    """The column of the source for an output of this name."""
    for output in query.expressions:
        if is_star(output):
            return name
        if output.alias_or_name.lower() == name.lower():
            return str(output.unalias().name) if isinstance(output.unalias(), exp.Column) else None
    return None


def _reads_messages(bound: BoundQuery, context: Context) -> bool:
    if len(bound.drivers) != 1 or bound.drivers[0] not in context.sources:
        return False
    opened = context.sources[bound.drivers[0]]
    return opened.plugin.table_mode is Mode.CHANGES and _named(opened.plan.spec.values.get("key")) != NONE


def _held(named: tuple[str, ...], behind: Mapping[str, str]) -> tuple[str, ...]:
    """The outputs for the columns of the message key; none unless all are outputs."""
    by_source = {column.lower(): name for name, column in behind.items()}
    return tuple(by_source[n] for n in named) if named and all(n in by_source for n in named) else ()


def _keeps_messages(query: exp.Expr) -> bool:
    """Whether each row comes from one message of the batch."""
    if not isinstance(query, exp.Select) or any(query.args.get(clause) for clause in _OTHER):
        return False
    if any(e.find(exp.AggFunc, exp.Window) for e in query.expressions):
        return False
    if any((j.side or "").upper() in ("RIGHT", "FULL") for j in query.args.get("joins") or ()):
        return False
    source = query.args.get("from_")
    inner = source.this if source is not None else None
    if isinstance(inner, exp.Subquery):
        return _keeps_messages(inner.this)
    return isinstance(inner, exp.Table) and inner.name == BATCH


def _multiplies(query: exp.Select) -> bool:
    """Whether one message may result in several rows."""
    inner = query.args["from_"].this
    own = any(query.args.get(clause) for clause in _JOINING) or query.find(exp.Explode) is not None
    return own or (isinstance(inner, exp.Subquery) and _multiplies(inner.this))


def _behind(expr: exp.Expr, query: exp.Select) -> str | None:
    """The column of the batch behind an expression, through derived streams."""
    source = query.args["from_"].this
    if not isinstance(expr, exp.Column) or expr.table.lower() != source.alias_or_name.lower():
        return None
    if isinstance(source, exp.Table):
        return str(expr.name)
    found = (e for e in source.this.expressions if e.alias_or_name.lower() == expr.name.lower())
    inner = next(found, None)
    return None if inner is None else _behind(inner.unalias(), source.this)


def with_identity(bound: BoundQuery, schema: Schema, key: MessageKey) -> tuple[BoundQuery, Schema]:
    """The query and the table with the message key as an additional column, for a table that is keyed by it."""
    columns = (*schema.columns, Column(IDENTITY, pa.binary(), nullable=False))
    if key.traced:
        return bound, Schema(columns, (IDENTITY,))
    query = bound.query.copy()
    assert isinstance(query, exp.Select)
    column = exp.column(IDENTITY, table=_alias(query), quoted=True)
    query.append("expressions", exp.alias_(column, IDENTITY, quoted=True))
    outputs = (*(bound.outputs or ()), Output(IDENTITY, column, pa.binary()))
    return replace(bound, query=query, outputs=outputs), Schema(columns, (IDENTITY,))


def with_hidden_key(schema: Schema) -> Schema:
    """A table of subtotals, whose rows are identified by a hidden column."""
    return Schema((*schema.columns, Column(IDENTITY, pa.binary(), nullable=False)), (IDENTITY,))


def _named(key: tuple[str, ...] | None) -> tuple[str, ...]:
    return tuple(name.lower() for name in key or ())


def _alias(query: exp.Select) -> str | None:
    """The name of the batch in a query that reads nothing else."""
    source = query.args.get("from_")
    table = source.this if source is not None else None
    return table.alias_or_name if isinstance(table, exp.Table) and table.name == BATCH else None
