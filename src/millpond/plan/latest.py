"""A table made AS SELECT over messages with keys: what its key is, and what its query yields besides its columns."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.source import IDENTITY, Mode
from millpond.plan.bound import BoundQuery, Output
from millpond.plan.context import Context
from millpond.plan.model import BATCH
from millpond.schema import Column, Schema

NONE = ("none",)
# Clauses after which a row is no longer one message.
_OTHER = ("joins", "distinct", "having", "qualify", "order", "limit", "offset", "windows", "with_", "laterals")


def keeps_latest(bound: BoundQuery, context: Context) -> bool:
    """Whether a query picks columns and rows of messages with keys, so that later ones replace earlier ones."""
    top = bound.top
    if top is None or top.grouped or len(bound.drivers) != 1 or bound.drivers[0] not in context.sources:
        return False
    opened = context.sources[bound.drivers[0]]
    if opened.plugin.table_mode is not Mode.CHANGES or _named(opened.plan.spec.values.get("key")) == NONE:
        return False
    plain = not any(top.node.args.get(clause) for clause in _OTHER)
    return plain and len(bound.selects) == 1 and _alias(top.node) is not None


def key_of_messages(bound: BoundQuery, key: tuple[str, ...], context: Context) -> tuple[str, ...]:
    """The key as written, else the columns that the message key holds, else the message key itself. A written key of
    one column is what the message key holds, unless the source says otherwise."""
    source = bound.drivers[0]
    named = _named(context.sources[source].plan.spec.values.get("key"))
    passed = {o.name.lower(): o for o in bound.outputs or () if isinstance(o.expr, exp.Column)}
    if key:
        behind = passed.get(key[0].lower())
        if not named and len(key) == 1 and behind is not None:
            context.sources.hold_key(source, (behind.expr.name,))
        return key
    by_source = {o.expr.name.lower(): o.name for o in passed.values()}
    found = tuple(by_source[name] for name in named if name in by_source)
    return found if found and len(found) == len(named) else (IDENTITY,)


def with_identity(bound: BoundQuery, schema: Schema) -> tuple[BoundQuery, Schema]:
    """The query and the table with the message key as one more column, for a table that is kept by it."""
    query = bound.query.copy()
    assert isinstance(query, exp.Select)
    column = exp.column(IDENTITY, table=_alias(query), quoted=True)
    query.append("expressions", exp.alias_(column, IDENTITY, quoted=True))
    outputs = (*(bound.outputs or ()), Output(IDENTITY, column, pa.binary()))
    columns = (*schema.columns, Column(IDENTITY, pa.binary(), nullable=False))
    return replace(bound, query=query, outputs=outputs), Schema(columns, (IDENTITY,))


def _named(key: tuple[str, ...] | None) -> tuple[str, ...]:
    return tuple(name.lower() for name in key or ())


def _alias(query: exp.Select) -> str | None:
    """The name of the batch in a query that reads nothing else."""
    source = query.args.get("from_")
    table = source.this if source is not None else None
    return table.alias_or_name if isinstance(table, exp.Table) and table.name == BATCH else None
