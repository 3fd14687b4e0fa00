"""The parts of a Kafka message: which columns become key, headers and value; built by Arrow if possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from millpond.contracts.sink import BATCH, ROW, Mark
from millpond.errors import SinkError
from millpond.sinks.text_columns import json_objects

# Formats without column names, in which the value is one column, so that it does not include the key.
BARE = ("raw", "text", "bytes")


@dataclass(frozen=True)
class Parts:
    """The names of the columns of each part. The value includes the key's columns, unless it can be one column only."""

    key: list[str]
    headers: list[str]
    value: list[str]


def parts_of(values: Mapping[str, Any], columns: Sequence[str]) -> Parts:
    """The parts by the sink's options; MP601 if the columns do not match them."""
    key, headers = (_named(values[option], columns, option) for option in ("key", "headers"))
    value = [name for name in columns if name not in headers]
    if values["format"] in BARE and len(value) > 1:
        value = [name for name in value if name not in key]
    if values["format"] in BARE and len(value) != 1:
        message = f"The format '{values['format']}' writes one column, but the query returns {len(value)} columns."
        raise SinkError("MP601", message, hint="Select one column besides key and headers, or use 'format' = 'json'.")
    return Parts(key, headers, value)


def _named(names: Sequence[str] | None, columns: Sequence[str], option: str) -> list[str]:
    found = {name.lower(): name for name in columns}
    for name in names or ():
        if name.lower() not in found:
            message = f"'{option}' refers to '{name}', which is not a column of the query."
            raise SinkError("MP601", message, hint=f"Its columns are: {', '.join(found.values())}.")
    return [found[name.lower()] for name in names or ()]


# Reserved names: rows whose first two columns are these are finished messages.
KEY, VALUE, HEADERS = "_mp_key", "_mp_value", "_mp_headers"


def messages_of(rows: pa.Table, values: Mapping[str, Any]) -> pa.Table:
    """The rows as messages with key and value, or the rows unchanged if only Spark can convert them."""
    marks = [name for name in (ROW, BATCH) if name in rows.column_names]
    own = rows.drop_columns(marks)
    if values["format"] != "json" or values["headers"] or not own.num_columns:
        return rows
    key = _key_of(own, values)
    if key is None:
        return rows
    value = json_objects(own).cast(pa.binary())
    return pa.table({KEY: key, VALUE: value, **{name: rows[name] for name in marks}})


def are_messages(rows: pa.Table) -> bool:
    """Whether rows are finished messages."""
    return bool(rows.column_names[:2] == [KEY, VALUE])


def mark_headers(rows: pa.RecordBatch, mark: Mark, writer: str) -> list[list[tuple[str, bytes]]]:
    """The headers of finished messages by which a reader recognizes one that was sent twice."""
    app, flow, batch, row = (f"millpond.{name}" for name in ("app", "flow", "batch", "row"))
    first = [(app, writer.encode()), (flow, mark.flow.encode())]
    statement = f"{mark.statement}-".encode()
    marks = [(row, statement + found) for found in rows[ROW].cast(pa.binary()).to_pylist()]
    if BATCH not in rows.schema.names:
        first = [*first, (batch, str(mark.batch).encode())]
        return [[*first, own] for own in marks]
    numbers = rows[BATCH].cast(pa.binary()).to_pylist()
    return [[*first, (batch, number), own] for number, own in zip(numbers, marks, strict=True)]


def _key_of(rows: pa.Table, values: Mapping[str, Any]) -> pa.ChunkedArray | pa.Array | None:
    """The key of each row; None unless there is none, or one column whose bytes are the same as Spark's."""
    names = {name.lower(): name for name in rows.column_names}
    keys = [names.get(name.lower()) for name in values["key"] or ()]
    if not keys:
        return pa.nulls(rows.num_rows, pa.binary())
    if len(keys) > 1 or keys[0] is None or values["key.format"] != "raw":
        return None
    key = rows[keys[0]]
    if pt.is_integer(key.type):
        return key.cast(pa.string()).cast(pa.binary())
    return key.cast(pa.binary()) if pt.is_string(key.type) or pt.is_binary(key.type) else None
