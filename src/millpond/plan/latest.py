"""A table made AS SELECT over messages with keys: what its key is, and what its query yields besides its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.source import IDENTITY, Mode
from millpond.plan.bound import BoundQuery, Output, Spot
from millpond.plan.columns import Relations
from millpond.plan.context import Context
from millpond.plan.model import BATCH
from millpond.plan.outputs import is_star
from millpond.schema import Column, Schema
from millpond.sql import nodes

NONE = ("none",)
# Clauses after which a row is no longer one message.
_OTHER = ("group", "distinct", "having", "qualify", "order", "limit", "offset", "windows", "with_")
_JOINING = ("joins", "laterals")


@dataclass(frozen=True)
class MessageKey:
    """What a table of messages is kept by: its key columns, and the columns of the batch that they are. `traced`: the
    query is more than columns and rows of the batch, so messages are matched with what came of them."""

    columns: tuple[str, ...]
    behind: tuple[str, ...]
    traced: bool


def message_key(bound: BoundQuery, key: tuple[str, ...], context: Context) -> MessageKey | None:
    """What later messages replace earlier ones by; None for a query over which they cannot. The key is as written, else
    the columns that the message key holds, else the message key itself."""
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
        # A key that is computed is known of rows only, not of messages without a value.
        return MessageKey(columns, (), False) if plain else None
    if not columns and _multiplies(query):
        return None
    # Several columns can be told in a key that is an object, and only a value with names can leave them to the key.
    by_name = context.sources[source].plan.spec.values.get("format") == "json"
    if key and not named and (len(key) == 1 or by_name):
        context.sources.hold_key(source, tuple(behind[name] for name in key))
    held = columns or (IDENTITY,)
    return MessageKey(held, tuple(behind.get(c, c) for c in held), not plain)


def hold_written_key(key: tuple[str, ...], query: exp.Query, relations: Relations, context: Context) -> None:
    """Called before the query of a table is bound: the column that is written as its key is what the message key holds,
    where the values of the messages lack it and nothing else is said of their keys."""
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
    """The URI of a query that picks columns and rows of it alone."""
    if not isinstance(query, exp.Select) or any(query.args.get(clause) for clause in (*_OTHER, *_JOINING)):
        return None
    source = query.args.get("from_")
    found = source.this if source is not None else None
    return found if isinstance(found, exp.Table) and isinstance(found.this, nodes.Uri) else None


def _held_column(name: str, query: exp.Query) -> str | None:
    """The column of the source that an output of this name is."""
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
    """The outputs that are what the message key holds; none unless all of it is there."""
    by_source = {column.lower(): name for name, column in behind.items()}
    return tuple(by_source[n] for n in named) if named and all(n in by_source for n in named) else ()


def _keeps_messages(query: exp.Expr) -> bool:
    """Whether each row still comes from one message of the batch."""
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
    """Whether one message may give several rows."""
    inner = query.args["from_"].this
    own = any(query.args.get(clause) for clause in _JOINING) or query.find(exp.Explode) is not None
    return own or (isinstance(inner, exp.Subquery) and _multiplies(inner.this))


def _behind(expr: exp.Expr, query: exp.Select) -> str | None:
    """The column of the batch that an expression is, seen through derived streams."""
    source = query.args["from_"].this
    if not isinstance(expr, exp.Column) or expr.table.lower() != source.alias_or_name.lower():
        return None
    if isinstance(source, exp.Table):
        return str(expr.name)
    found = (e for e in source.this.expressions if e.alias_or_name.lower() == expr.name.lower())
    inner = next(found, None)
    return None if inner is None else _behind(inner.unalias(), source.this)


def with_identity(bound: BoundQuery, schema: Schema, key: MessageKey) -> tuple[BoundQuery, Schema]:
    """The query and the table with the message key as one more column, for a table that is kept by it."""
    columns = (*schema.columns, Column(IDENTITY, pa.binary(), nullable=False))
    if key.traced:
        return bound, Schema(columns, (IDENTITY,))
    query = bound.query.copy()
    assert isinstance(query, exp.Select)
    column = exp.column(IDENTITY, table=_alias(query), quoted=True)
    query.append("expressions", exp.alias_(column, IDENTITY, quoted=True))
    outputs = (*(bound.outputs or ()), Output(IDENTITY, column, pa.binary()))
    return replace(bound, query=query, outputs=outputs), Schema(columns, (IDENTITY,))


def _named(key: tuple[str, ...] | None) -> tuple[str, ...]:
    return tuple(name.lower() for name in key or ())


def _alias(query: exp.Select) -> str | None:
    """The name of the batch in a query that reads nothing else."""
    source = query.args.get("from_")
    table = source.this if source is not None else None
    return table.alias_or_name if isinstance(table, exp.Table) and table.name == BATCH else None
