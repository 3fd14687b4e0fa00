"""Values of a driver made into Arrow: exact, or with the reason why one does not fit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.source import BAD, RAW
from millpond.schema import TIMESTAMP, Column, Schema, type_name

UNBOUNDED = pa.decimal128(38, 18)
# Characters of a number that 76 digits can hold up to this scale: a sign, a point and 38 digits.
TEXT_MAX, SCALE_MAX = 41, 35
# What does not fit, by the number of the row.
Reasons = dict[int, str]
_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, TypeError, InvalidOperation, OverflowError)
# A type of values that were seen -> the type of their column. The first that fits decides.
_SEEN: tuple[tuple[type, pa.DataType], ...] = (
    (bool, pa.bool_()),
    (int, pa.int64()),
    (float, pa.float64()),
    (Decimal, UNBOUNDED),
    (dt.datetime, TIMESTAMP),
    (dt.date, pa.date32()),
    (bytes, pa.binary()),
)


def seen_columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Schema:
    """The columns of rows whose types are not declared: as their values are, texts where these differ."""
    return Schema.of(Column(name, _seen_type([row[n] for row in rows])) for n, name in enumerate(names))


def _seen_type(values: Sequence[Any]) -> pa.DataType:
    there = [value for value in values if value is not None]
    kinds = {next((type_ for kind, type_ in _SEEN if isinstance(value, kind)), pa.string()) for value in there}
    if kinds == {pa.int64(), pa.float64()}:
        return pa.float64()
    return kinds.pop() if len(kinds) == 1 else pa.string()


def batch_of(rows: Sequence[Sequence[Any]], columns: Sequence[Column], zone: str) -> pa.RecordBatch:
    """Rows of a driver in the types of their columns, with BAD and RAW. In a bad row every column is NULL."""
    reasons: dict[int, str] = {}
    found = []
    for n, column in enumerate(columns):
        assert column.type is not None
        values, convert = [row[n] for row in rows], _converter(column.type, zone)
        try:
            found.append(pa.array([None if v is None else convert(v) for v in values], column.type))
        except _ERRORS:
            found.append(_each(values, column, convert, reasons))
    bad = pa.array([reasons.get(row) for row in range(len(rows))], pa.string())
    raw = pa.array([repr(tuple(rows[n])).encode() if n in reasons else None for n in range(len(rows))], pa.binary())
    if reasons:
        keep = pa.array([row not in reasons for row in range(len(rows))])
        found = [pc.if_else(keep, column, pa.scalar(None, column.type)) for column in found]
    return pa.RecordBatch.from_arrays([*found, bad, raw], names=[*(c.name for c in columns), BAD, RAW])


def _each(values: Sequence[Any], column: Column, convert: Callable[[Any], Any], reasons: dict[int, str]) -> pa.Array:
    found: list[Any] = []
    for row, value in enumerate(values):
        try:
            found.append(None if value is None else pa.array([convert(value)], column.type)[0].as_py())
        except _ERRORS:
            found.append(None)
            shown = str(value) if len(str(value)) <= 60 else str(value)[:57] + "..."
            reasons.setdefault(row, f"column '{column.name}': '{shown}' is not a {type_name(column.type)}")
    return pa.array(found, column.type)


def _converter(type_: pa.DataType, zone: str) -> Callable[[Any], Any]:
    if pa.types.is_string(type_):
        return _text
    if pa.types.is_boolean(type_):
        return _boolean
    if pa.types.is_decimal(type_):
        return _decimal
    if pa.types.is_timestamp(type_):
        return lambda value: _moment(value, zone)
    if pa.types.is_date(type_):
        return _date
    if pa.types.is_integer(type_):
        return _whole
    return lambda value: value


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _boolean(value: Any) -> bool:
    if value in (0, 1):
        return bool(value)
    raise ValueError(value)


def _whole(value: Any) -> int:
    found = int(value)
    if found != value and not isinstance(value, str):
        raise ValueError(value)
    return found


def _decimal(value: Any) -> Decimal:
    # A float has few digits that mean something, which are those of its text.
    found = Decimal(str(value)) if isinstance(value, float) else Decimal(value)
    if not found.is_finite():
        raise ValueError(value)
    return found


def _moment(value: Any, zone: str) -> dt.datetime:
    found = dt.datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(found, dt.datetime):
        if not isinstance(found, dt.date):
            raise ValueError(value)
        found = dt.datetime(found.year, found.month, found.day)
    return found if found.tzinfo is not None else found.replace(tzinfo=ZoneInfo(zone))


def _date(value: Any) -> dt.date:
    if isinstance(value, str):
        return dt.date.fromisoformat(value)
    return value.date() if isinstance(value, dt.datetime) else value


def decimals(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Exact decimals; raises for one that does not fit. A cast of a text to 128 bits would wrap around, so it goes
    through 256 bits, which are enough for a short text."""
    if (pc.max(pc.utf8_length(texts)).as_py() or 0) > TEXT_MAX or type_.scale > SCALE_MAX:
        values = [None if text is None else Decimal(text) for text in texts.to_pylist()]
        if any(value is not None and not value.is_finite() for value in values):
            raise ValueError("not a finite number")
        return pa.array(values, type_)
    return texts.cast(pa.decimal256(76, type_.scale)).cast(type_)


def in_zone(times: pa.Array, zone: str) -> pa.Array:
    """Times without a zone as moments; one that the zone has twice, or not at all, is the earlier."""
    if zone == "UTC":
        return times.cast(TIMESTAMP)
    return pc.assume_timezone(times, zone, ambiguous="earliest", nonexistent="earliest").cast(TIMESTAMP)


def last_of_each(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The last row of each key, in order."""
    numbered = rows.select(list(key)).append_column("n", pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(list(key)).aggregate([("n", "max")])["n_max"]
    return rows.take(last.combine_chunks().sort())
