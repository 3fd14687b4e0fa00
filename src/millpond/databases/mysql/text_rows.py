"""Rows of MySQL, whose values are texts, made into Arrow: exact, or with the reason why one does not fit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.source import BAD, RAW
from millpond.databases.driver_values import Reasons, decimals, in_zone
from millpond.schema import Column, type_name

# The first day that Spark and Python have, in days before 1970; what is before it is a date that no calendar has.
FIRST_DAY = dt.date(1, 1, 1).toordinal() - dt.date(1970, 1, 1).toordinal()
Texts = Sequence[bytes | None]
_ERRORS = (pa.ArrowInvalid, ValueError, InvalidOperation, OverflowError)


def batch_of_texts(rows: Sequence[Texts], columns: Sequence[Column], zones: Sequence[str]) -> pa.RecordBatch:
    """Rows in the types of their columns, with BAD and RAW; `zones` has the zone of each column's times. In a bad row
    every column is NULL."""
    reasons: Reasons = {}
    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    found = [column_of(texts, c, zone, reasons) for texts, c, zone in zip(values, columns, zones, strict=True)]
    names, count = [*(c.name for c in columns), BAD, RAW], len(rows)
    if not reasons:
        return pa.RecordBatch.from_arrays([*found, pa.nulls(count, pa.string()), pa.nulls(count, pa.binary())], names)
    keep = pa.array([row not in reasons for row in range(count)])
    found = [pc.if_else(keep, column, pa.scalar(None, column.type)) for column in found]
    bad = pa.array([reasons.get(row) for row in range(count)], pa.string())
    raw = pa.array([repr(tuple(rows[n])).encode() if n in reasons else None for n in range(count)], pa.binary())
    return pa.RecordBatch.from_arrays([*found, bad, raw], names)


def column_of(texts: Texts, column: Column, zone: str, reasons: Reasons) -> pa.Array:
    """The values of a column. A date that no calendar has is NULL; one that does not fit too, with its reason."""
    assert column.type is not None
    try:
        return _all(texts, column.type, zone)
    except _ERRORS:
        pass
    found: list[pa.Array] = []
    for row, text in enumerate(texts):
        try:
            found.append(_all([text], column.type, zone))
        except _ERRORS:
            found.append(pa.nulls(1, column.type))
            if text is not None and not (pa.types.is_temporal(column.type) and _is_zero(text)):
                shown = text.decode("utf-8", "replace")
                shown = shown if len(shown) <= 60 else shown[:57] + "..."
                reasons.setdefault(row, f"column '{column.name}': '{shown}' is not a {type_name(column.type)}")
    return pa.concat_arrays(found) if found else pa.nulls(0, column.type)


def _all(texts: Texts, type_: pa.DataType, zone: str) -> pa.Array:
    """All values at once; raises when one of them does not fit."""
    values = pa.array(texts, pa.binary())
    if pa.types.is_binary(type_):
        return values
    strings = values.cast(pa.string())
    if pa.types.is_decimal(type_):
        return decimals(strings, type_)
    if pa.types.is_timestamp(type_):
        times = strings.cast(pa.timestamp("us"))
        return in_zone(_known(times, times.cast(pa.date32())), zone)
    if pa.types.is_date(type_):
        days = strings.cast(type_)
        return _known(days, days)
    return strings if pa.types.is_string(type_) else strings.cast(type_)


def _known(times: pa.Array, days: pa.Array) -> pa.Array:
    """NULL in place of times in the year 0."""
    first = pc.min(days.cast(pa.int32())).as_py()
    if first is None or first >= FIRST_DAY:
        return times
    return pc.if_else(pc.greater_equal(days.cast(pa.int32()), FIRST_DAY), times, pa.scalar(None, times.type))


def _is_zero(text: bytes) -> bool:
    """Whether a text is a date that no calendar has, such as 0000-00-00."""
    try:
        dt.date.fromisoformat(text[:10].decode())
    except ValueError:
        return text[:4].isdigit() and text[4:5] == b"-"
    return False
