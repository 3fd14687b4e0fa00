"""Column values as SQLite stores them, and back, without loss.

Decimals are text, as SQLite would make doubles of them; days and microseconds are whole numbers; lists, maps and
structs are Arrow's own bytes. SQLite has no NaN and no negative zero: these doubles are stored as their eight bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_DOUBLE = struct.Struct("<d")


def to_sqlite(column: pa.Array) -> list[Any]:
    """The values of a column as sqlite3 takes them."""
    type_ = column.type
    if pa.types.is_nested(type_):
        return _nested_to_sqlite(column)
    if pa.types.is_date32(type_):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(type_):
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    if pa.types.is_decimal(type_):
        return [None if v is None else format(v, "f") for v in values]
    if pa.types.is_floating(type_):
        return [_DOUBLE.pack(v) if v is not None and _is_special(v) else v for v in values]
    return values


def from_sqlite(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """The column that `to_sqlite` was given."""
    if pa.types.is_nested(type_):
        return _nested_from_sqlite(values, type_)
    if pa.types.is_boolean(type_):
        return pa.array([None if v is None else bool(v) for v in values], type_)
    if pa.types.is_date32(type_):
        return pa.array(values, pa.int32()).cast(type_)
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(type_)
    if pa.types.is_decimal(type_):
        return pc.cast(pa.array(values, pa.string()), type_)
    if pa.types.is_floating(type_):
        return pa.array([_DOUBLE.unpack(v)[0] if isinstance(v, bytes) else v for v in values], type_)
    return pa.array(values, type_)


def sqlite_type(type_: pa.DataType) -> str:
    """The declared type of a column: only for people who look at the file. None converts what is stored."""
    names: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
        (pa.types.is_integer, "INTEGER"),
        (pa.types.is_boolean, "INTEGER"),
        (pa.types.is_date32, "INTEGER"),
        (pa.types.is_timestamp, "INTEGER"),
        (pa.types.is_string, "TEXT"),
        (pa.types.is_decimal, "TEXT"),
    )
    return next((name for is_, name in names if is_(type_)), "BLOB")


def _is_special(value: float) -> bool:
    return math.isnan(value) or (value == 0 and math.copysign(1, value) < 0)


def _nested_to_sqlite(column: pa.Array) -> list[Any]:
    schema = pa.schema([pa.field("v", column.type)])
    return [
        pa.RecordBatch.from_arrays([_alone(column, i)], schema=schema).serialize().to_pybytes()
        if column[i].is_valid
        else None
        for i in range(len(column))
    ]


def _alone(column: pa.Array, row: int) -> pa.Array:
    # Taken, not sliced: a slice would be stored with the rest of the column behind it.
    return column.take(pa.array([row]))


def _nested_from_sqlite(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    schema = pa.schema([pa.field("v", type_)])
    parts = [
        pa.nulls(1, type_) if v is None else pa.ipc.read_record_batch(pa.py_buffer(v), schema).column(0) for v in values
    ]
    return pa.concat_arrays(parts) if parts else pa.array([], type_)
