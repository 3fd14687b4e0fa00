"""Changes of a table as the events of a stream: the columns of such a stream, for every source of changes."""

from __future__ import annotations

import pyarrow as pa

from millpond.contracts.changes import Operation
from millpond.contracts.source import HIDDEN_OFFSET, HIDDEN_TIMESTAMP, Found, SourcePlugin
from millpond.options import OptionValues
from millpond.schema import Column, Schema

OPERATION, BEFORE = "_op", "_before"
DEBEZIUM = "debezium"
# `_op` of each operation, and `op` of Debezium's envelope.
WORDS = {operation: operation.name.lower() for operation in Operation}
LETTERS = {Operation.SNAPSHOT: "r", Operation.INSERT: "c", Operation.UPDATE: "u", Operation.DELETE: "d"}
# The field `source` of the envelope; `lsn` is the position of the transaction in the log of the server, as a number.
ORIGIN = pa.struct(
    [
        pa.field("connector", pa.string()),
        pa.field("db", pa.string()),
        pa.field("schema", pa.string()),
        pa.field("table", pa.string()),
        pa.field("ts_ms", pa.int64()),
        pa.field("snapshot", pa.string()),
        pa.field("lsn", pa.int64()),
    ]
)


def streams_changes(plugin: SourcePlugin, values: OptionValues) -> bool:
    """Whether a source that is read as a stream with these options yields the changes of a table."""
    return plugin.open_changes is not None and plugin.captures(values)


def is_enveloped(values: OptionValues) -> bool:
    """Whether events have the columns of Debezium's envelope."""
    return values.get("cdc.format") == DEBEZIUM


def row_type(columns: Schema | None) -> pa.DataType | None:
    """A row of a table as a struct; None while its columns are unknown."""
    if columns is None or not columns.known:
        return None
    return pa.struct([pa.field(column.name, column.type) for column in columns])


def stream_columns(found: Found, values: OptionValues) -> Found:
    """The columns of a stream of changes, from those of its table."""
    if found.columns is None:
        return found
    if not is_enveloped(values):
        return Found(found.columns.with_key(()))
    row = row_type(found.columns)
    columns = [
        Column("before", row),
        Column("after", row),
        Column("op", pa.string()),
        Column("ts_ms", pa.int64()),
        Column("source", ORIGIN),
    ]
    return Found(Schema.of(columns))


def table_columns(columns: Schema, values: OptionValues) -> Schema:
    """The columns of the table, from those of the stream."""
    if not is_enveloped(values):
        return columns
    rows = [column.type for name in ("after", "before") if (column := columns.get(name)) is not None]
    struct = next((type_ for type_ in rows if type_ is not None and pa.types.is_struct(type_)), pa.struct([]))
    return Schema.of(Column(field.name, field.type) for field in struct)


def stream_hidden(plugin: SourcePlugin, values: OptionValues, columns: Schema | None) -> tuple[Column, ...]:
    """The hidden columns of a source that is read as a stream; a column of the table takes precedence."""
    plain = (Column(OPERATION, pa.string()), Column(BEFORE, row_type(columns)))
    if not streams_changes(plugin, values):
        return (*plugin.hidden, *plain) if values.get("format") == DEBEZIUM else plugin.hidden
    hidden = (*(() if is_enveloped(values) else plain), HIDDEN_TIMESTAMP, HIDDEN_OFFSET)
    return tuple(column for column in hidden if columns is None or column.name not in columns)
