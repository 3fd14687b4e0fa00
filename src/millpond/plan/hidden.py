"""Hidden tables: a source that a statement reads as a table without naming it."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.source import HIDDEN_KEY, HIDDEN_TIMESTAMP, IDENTITY, Mode, SourcePlugin
from millpond.contracts.table import TableSpec
from millpond.plan.model import BATCH, SourcePlan, Step, StepKind, TableKind, TablePlan
from millpond.plan.sources import Opened, short_hash
from millpond.schema import Column, Schema

# What a message has besides its columns and is kept in a table without a name: joins may ask for it.
KEPT_HIDDEN = (HIDDEN_KEY, HIDDEN_TIMESTAMP)
NONE = ("none",)


def hidden_table(opened: Opened) -> TablePlan:
    """The table that holds a source's content under the source's id."""
    source = opened.plan
    schema = source.columns or Schema(())
    return TablePlan(
        source.id,
        TableKind.HIDDEN,
        TableSpec(source.id, schema, hidden=True),
        source.place,
        short_hash(f"{source.id} {[str(c) for c in schema]}"),
        source.id,
        whole_batch(source.columns),
        watch=bool(source.spec.values.get("watch")),
    )


def with_hidden(plan: TablePlan, source: SourcePlan, named: Set[str]) -> TablePlan:
    """The table of a source with those of the source's hidden columns that queries name; the others would only make
    it larger, and different whenever a file is written anew."""
    added = [column for column in source.hidden if column.name.lower() in named]
    if not added or source.columns is None:
        return plan
    schema = Schema((*plan.spec.schema.columns, *added), plan.spec.schema.key)
    definition = short_hash(f"{source.id} {[str(c) for c in schema]}")
    spec = replace(plan.spec, schema=schema)
    return replace(plan, spec=spec, definition=definition, query=whole_batch(schema))


def kept_hidden(plugin: SourcePlugin) -> tuple[Column, ...]:
    """The hidden columns that a followed table keeps: those of messages with keys."""
    return KEPT_HIDDEN if plugin.table_mode is Mode.CHANGES else ()


def followed_table(opened: Opened) -> TablePlan:
    """The table of a source that yields changes by key: a flow keeps the last record of each key in it. Of one that
    yields events it keeps all."""
    source = opened.plan
    keyed = opened.plugin.table_mode is Mode.CHANGES
    named = tuple(name.lower() for name in source.spec.values.get("key") or ()) if keyed else NONE
    columns = [*(source.columns or ()), *kept_hidden(opened.plugin)]
    key = tuple(c.name for name in named for c in columns if c.name.lower() == name)
    if named != NONE and (not key or len(key) != len(named)):
        columns, key = [*columns, Column(IDENTITY, pa.binary(), nullable=False)], (IDENTITY,)
    schema = Schema(tuple(columns), () if named == NONE else key) if source.columns is not None else Schema(())
    spec = TableSpec(source.id, schema, hidden=True)
    return TablePlan(source.id, TableKind.AGGREGATE, spec, source.place, short_hash(source.id))


def following_step(table: TablePlan) -> Step:
    """What keeps a followed table up to date, before any statement that reads it."""
    schema = table.spec.schema
    kind = StepKind.LATEST if schema.key or not len(schema) else StepKind.APPEND
    return Step(-1, kind, table.place, table.name, whole_batch(schema or None), schema, schema.names)


def whole_batch(columns: Iterable[Column] | None) -> exp.Select:
    """All columns of the batch, by name where they are known."""
    batch = exp.to_table(BATCH, dialect=None)
    batch.set("this", exp.Identifier(this=BATCH, quoted=True))
    names = [exp.column(c.name, quoted=True) for c in columns] if columns is not None else [exp.Star()]
    return exp.Select(expressions=names).from_(batch, copy=False)
