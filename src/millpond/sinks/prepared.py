"""Rows of the driver as Kafka messages: keys and values made by Arrow, where these are as Spark makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from millpond.contracts.sink import BATCH, ROW
from millpond.sinks.json_text import json_objects

# Names that no query yields beside each other: a DataFrame of just these columns is messages already.
KEY, VALUE = "_mp_key", "_mp_value"


def messages_of(rows: pa.Table, values: Mapping[str, Any]) -> pa.Table:
    """A key and a value for each row, or the rows as they are where only Spark can make them."""
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
    """Whether the key is none, or one text as it stands."""
    if not keys:
        return True
    key = keys[0]
    return len(keys) == 1 and key is not None and values["key.format"] == "raw" and pt.is_string(rows[key].type)
