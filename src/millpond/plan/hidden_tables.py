"""Tables without a declaration: dead_letters, and tables of sources that a statement reads by URI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.source import HIDDEN_KEY, HIDDEN_TIMESTAMP, IDENTITY, Mode, SourcePlugin, Wanted
from millpond.contracts.table import TableSpec
from millpond.errors import Place
from millpond.plan.model import BATCH, SourcePlan, Step, StepKind, TableKind, TablePlan
from millpond.plan.source_catalog import Opened, short_hash
from millpond.schema import TIMESTAMP, Column, Schema

# The backend of tables whose rows are looked up in their source.
LOOKUP = "lookup"
DEAD_LETTERS = Schema.of(
    [
        Column("at", TIMESTAMP),
        Column("flow", pa.string()),
        Column("statement", pa.int32()),
        Column("line", pa.int32()),
        Column("source", pa.string()),
        Column("partition", pa.string()),
        Column("position", pa.string()),
        Column("code", pa.string()),
        Column("reason", pa.string()),
        Column("raw", pa.binary()),
    ]
)


def dead_letters_table(place: Place) -> TablePlan:
    """The table of records and rows that could not be read, cast or applied."""
    return TablePlan("dead_letters", TableKind.SYSTEM, TableSpec("dead_letters", DEAD_LETTERS), place, "system")


# Hidden columns of messages that are stored in an unnamed table, because joins may read them.
KEPT_HIDDEN = (HIDDEN_KEY, HIDDEN_TIMESTAMP)
NONE = ("none",)


def hidden_table(opened: Opened) -> TablePlan:
    """The table with a source's content, named by the source's id."""
    source = opened.plan
    schema = source.columns or Schema(())
    if opened.plugin.looks_up(source.spec.values):
        return looked_up_table(opened, TableSpec(source.id, schema, hidden=True), source.place)
    return TablePlan(
        source.id,
        TableKind.HIDDEN,
        TableSpec(source.id, schema, hidden=True),
        source.place,
        # Columns of a catalog are known only when it was asked.
        short_hash(source.id if opened.plugin.has_catalog else f"{source.id} {[str(c) for c in schema]}"),
        source.id,
        whole_batch(source.columns),
        watch=opened.plugin.watched(source.spec.values),
    )


def looked_up_table(opened: Opened, spec: TableSpec, place: Place, names: Sequence[str] = ()) -> TablePlan:
    """A table whose rows are looked up in a source; `names` are the source's columns in the order of the table's, all
    of them by default."""
    source = opened.plan
    columns = source.columns
    if columns is not None and names:
        columns = Schema.of(columns[name] for name in names)
    read = replace(source.spec, columns=columns, wanted=Wanted(tuple(names) or None))
    made = replace(spec, backend=LOOKUP, values={"source": read, "type": source.type})
    return TablePlan(spec.name, TableKind.LOOKUP, made, place, short_hash(source.id), source.id)


def with_hidden(plan: TablePlan, source: SourcePlan, named: Set[str]) -> TablePlan:
    """The table of a source with those of its hidden columns that queries use; the others would only make it larger,
    and change it whenever a file is rewritten."""
    added = [column for column in source.hidden if column.name.lower() in named]
    if not added or source.columns is None or plan.kind is TableKind.LOOKUP:
        return plan
    schema = Schema((*plan.spec.schema.columns, *added), plan.spec.schema.key)
    definition = short_hash(f"{source.id} {[str(c) for c in schema]}")
    spec = replace(plan.spec, schema=schema)
    return replace(plan, spec=spec, definition=definition, query=whole_batch(schema))


def kept_hidden(plugin: SourcePlugin) -> tuple[Column, ...]:
    """The hidden columns that a followed table stores: those of messages with keys."""
    return KEPT_HIDDEN if plugin.table_mode is Mode.CHANGES else ()


def followed_table(opened: Opened) -> TablePlan:
    """The table of a source that returns changes by key, in which a flow stores the last record of each key; for a
    source that returns events, all records."""
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
    """The step that maintains a followed table, before any statement that reads it."""
    schema = table.spec.schema
    kind = StepKind.LATEST if schema.key or not len(schema) else StepKind.APPEND
    return Step(-1, kind, table.place, table.name, whole_batch(schema or None), schema, schema.names)


def whole_batch(columns: Iterable[Column] | None) -> exp.Select:
    """All columns of the batch, by name if they are known."""
    batch = exp.to_table(BATCH, dialect=None)
    batch.set("this", exp.Identifier(this=BATCH, quoted=True))
    names = [exp.column(c.name, quoted=True) for c in columns] if columns is not None else [exp.Star()]
    return exp.Select(expressions=names).from_(batch, copy=False)
