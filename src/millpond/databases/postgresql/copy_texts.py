"""Arrow's values as PostgreSQL reads them: texts for COPY, and the types of a table that is made."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from millpond.rendering import plain_texts

_TYPES: tuple[tuple[Any, str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "smallint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_float32, "real"),
    (pa.types.is_float64, "double precision"),
    (pa.types.is_date, "date"),
    (pa.types.is_timestamp, "timestamptz"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_struct, "jsonb"),
    (pa.types.is_map, "jsonb"),
)


def type_text(type_: pa.DataType) -> str:
    """The type of a column that is made for values of a type."""
    if pa.types.is_decimal(type_):
        return f"numeric({type_.precision},{type_.scale})"
    if pa.types.is_list(type_):
        inner = type_.value_type
        # An array of arrays has no fixed shape here.
        return "jsonb" if pa.types.is_nested(inner) else f"{type_text(inner)}[]"
    return next((text for fits, text in _TYPES if fits(type_)), "text")


def copy_bytes(rows: pa.Table, arrays: Mapping[str, bool], operations: pa.ChunkedArray | None) -> bytes:
    """Rows as CSV, with their numbers and operations behind them. Nothing but NULL is without quotes."""
    texts = [value_texts(rows[name], is_array=arrays[name]) for name in rows.column_names]
    numbers = pa.array(np.arange(rows.num_rows)).cast(pa.string())
    op = pa.nulls(rows.num_rows, pa.string()) if operations is None else operations.cast(pa.string())
    table = pa.table([*texts, numbers, op], names=[str(n) for n in range(len(texts) + 2)])
    out = io.BytesIO()
    options = pa.csv.WriteOptions(include_header=False, quoting_style="all_valid")
    pa.csv.write_csv(table, out, options)
    return out.getvalue()


def value_texts(column: pa.ChunkedArray, *, is_array: bool) -> pa.Array:
    """Values as PostgreSQL reads them."""
    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], column.type)
    type_ = values.type
    if pa.types.is_string(type_):
        return values
    if pa.types.is_timestamp(type_):
        plain = values.cast(pa.timestamp("us")).cast(pa.string())
        return pc.binary_join_element_wise(plain, pa.scalar("+00"), "")
    if pa.types.is_binary(type_):
        return pa.array([None if v is None else "\\x" + v.hex() for v in values.to_pylist()], pa.string())
    if pa.types.is_list(type_) and is_array:
        return pa.array([None if v is None else array_text(v) for v in _element_texts(values)], pa.string())
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return values.cast(pa.string())
    if pa.types.is_date(type_) or pa.types.is_decimal(type_):
        return values.cast(pa.string())
    return pa.array(plain_texts(values), pa.string())


def _element_texts(values: pa.ListArray) -> list[list[str | None] | None]:
    flat = values.flatten()
    texts = value_texts(pa.chunked_array([flat]), is_array=False).to_pylist()
    lengths, found, at = pc.list_value_length(values).to_pylist(), list[list[str | None] | None](), 0
    for length in lengths:
        found.append(None if length is None else texts[at : at + length])
        at += length or 0
    return found


def array_text(elements: list[str | None]) -> str:
    """An array as PostgreSQL reads it."""
    escaped = ("NULL" if e is None else '"' + e.replace("\\", "\\\\").replace('"', '\\"') + '"' for e in elements)
    return "{" + ",".join(escaped) + "}"
