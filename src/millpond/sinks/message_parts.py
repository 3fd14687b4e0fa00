"""The parts of a Kafka message: which columns become key, headers and value; built by Arrow if possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from millpond.contracts.sink import BATCH, ROW
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
        message = f"A message of the format '{values['format']}' is one column, but the query returns {len(value)}."
        raise SinkError("MP601", message, hint="Select one column besides key and headers, or use 'format' = 'json'.")
    return Parts(key, headers, value)


def _named(names: Sequence[str] | None, columns: Sequence[str], option: str) -> list[str]:
    found = {name.lower(): name for name in columns}
    for name in names or ():
        if name.lower() not in found:
            message = f"'{option}' refers to '{name}', which is not a column of the query."
            raise SinkError("MP601", message, hint=f"Its columns are: {', '.join(found.values())}.")
    return [found[name.lower()] for name in names or ()]


# Reserved names: a DataFrame with exactly these columns contains finished messages.
KEY, VALUE = "_mp_key", "_mp_value"


def messages_of(rows: pa.Table, values: Mapping[str, Any]) -> pa.Table:
    """The rows as messages with key and value, or the rows unchanged if only Spark can convert them."""
    marks = [name for name in (ROW, BATCH) if name in rows.column_names]
    own = rows.drop_columns(marks)
    names = {name.lower(): name for name in own.column_names}
    keys = [names.get(name.lower()) for name in values["key"] or ()]
    if values["format"] != "json" or values["headers"] or not own.num_columns or not _is_plain(own, keys, values):
        return rows
    key = own[keys[0]].cast(pa.binary()) if keys else pa.nulls(own.num_rows, pa.binary())
    value = json_objects(own).cast(pa.binary())
    return pa.table({KEY: key, VALUE: value, **{name: rows[name] for name in marks}})


def _is_plain(rows: pa.Table, keys: list[str | None], values: Mapping[str, Any]) -> bool:
    """Whether there is no key, or it is one column of text."""
    if not keys:
        return True
    key = keys[0]
    return len(keys) == 1 and key is not None and values["key.format"] == "raw" and pt.is_string(rows[key].type)
