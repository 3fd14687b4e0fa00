"""Values in the form in which a column of ClickHouse stores them: what does not fit is an error, not another value."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.databases.clickhouse.types import LARGE, WHOLE, ChType
from millpond.rendering import plain_texts
from millpond.schema import TIMESTAMP

DAY_S, SECOND_US = 86_400, 1_000_000
# The server stores other moments for those outside of these: days, and microseconds.
_FIRST_DAY, _LAST_DAY = -25_567, 120_529
RANGES = {
    "Date": (0, 65_535),
    "Date32": (_FIRST_DAY, _LAST_DAY),
    "DateTime": (0, (2**32 - 1) * SECOND_US),
    "DateTime64": (_FIRST_DAY * DAY_S * SECOND_US, (_LAST_DAY + 1) * DAY_S * SECOND_US - 1),
}


class UnstorableError(ValueError):
    """A value that a column cannot store; the message is the reason."""


def stored(values: pa.ChunkedArray, type_: ChType, name: str) -> pa.ChunkedArray:
    """Values as a column of a type takes them; UnstorableError if one does not fit."""
    try:
        return pa.chunked_array([_fitted(values.combine_chunks(), type_)])
    except (pa.ArrowInvalid, UnstorableError) as error:
        raise UnstorableError(f"Column '{name}', {type_.name}, cannot store a value: {error}.") from error


def _fitted(values: pa.Array, type_: ChType) -> pa.Array:
    if values.null_count and not type_.is_nullable:
        raise UnstorableError("NULL, because it is not Nullable")
    if type_.element is not None and pa.types.is_list(values.type):
        inner = _fitted(values.flatten(), type_.element)
        return pa.ListArray.from_arrays(_offsets(values), inner)
    if pa.types.is_string(type_.arrow):
        is_text = pa.types.is_string(values.type) or pa.types.is_binary(values.type)
        return values if is_text else pa.array(plain_texts(values), pa.string())
    if type_.name in LARGE:
        return _not_negative(values, type_)
    if type_.name in RANGES:
        return _within(values.cast(TIMESTAMP if pa.types.is_timestamp(type_.arrow) else pa.date32()), type_)
    if pa.types.is_decimal(type_.arrow) and type_.name not in WHOLE:
        return (values.cast(pa.decimal128(38, 0)) if pa.types.is_integer(values.type) else values).cast(type_.arrow)
    return values.cast(type_.sent)


def _offsets(values: pa.ListArray) -> pa.Array:
    lengths = pc.list_value_length(values).cast(pa.int64())
    return pa.concat_arrays([pa.array([0]), pc.cumulative_sum(lengths)]).cast(pa.int32())


def _not_negative(values: pa.Array, type_: ChType) -> pa.Array:
    least = pc.min(values).as_py()
    if type_.name.startswith("U") and least is not None and least < 0:
        raise UnstorableError(f"{least} is negative")
    return values


def _within(values: pa.Array, type_: ChType) -> pa.Array:
    first, last = RANGES[type_.name]
    numbers = values.cast(pa.int64() if pa.types.is_timestamp(values.type) else pa.int32())
    found = pc.min_max(numbers).as_py()
    if found["min"] is not None and (found["min"] < first or found["max"] > last):
        raise UnstorableError("the time is outside of what the type stores")
    return values
