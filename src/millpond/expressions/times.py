"""Functions of dates and timestamps: parts, truncation and intervals; the session's time zone is UTC."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.coercion import BIGINT, DATE, INT, STRING
from millpond.expressions.failures import NotCompilable, RowError, attempt
from millpond.expressions.frames import Datum, Frame, Node
from millpond.expressions.rules import unix_timestamp_rule
from millpond.expressions.signatures import Function, Functions, Kernel, Run, Site, SpecialForm, on_arrays, takes
from millpond.expressions.terms import Interval
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ

Numbers = npt.NDArray[np.int64]

DAY_US = 86_400_000_000
# Truncation and month arithmetic overflow 64 bits near the ends of the range; Spark evaluates those.
MICROSECONDS_SAFE = 9_000_000_000_000_000_000


def numbers(array: pa.Array) -> Numbers:
    """Dates or timestamps as integers, zero for NULL."""
    width = pa.int32() if array.type == DATE else BIGINT
    return np.asarray(pc.fill_null(array.view(width), 0).to_numpy(zero_copy_only=False), dtype=np.int64)


def from_numbers(values: Numbers, like: pa.Array, type_: pa.DataType) -> pa.Array:
    """Dates or timestamps from integers, with the NULLs of another array."""
    nulls = like.is_null().to_numpy(zero_copy_only=False)
    width = np.int32 if type_ == DATE else np.int64
    return pa.array(values.astype(width), mask=nulls).view(type_)


def _part(function: Callable[..., Any]) -> Kernel:
    def run(array: pa.Array) -> pa.Array:
        zoneless = array.view(TIMESTAMP_NTZ) if array.type == TIMESTAMP else array
        return pc.cast(function(zoneless), INT)

    return Kernel(lambda _: on_arrays(run))


def _day_of_week(array: pa.Array) -> pa.Array:
    return pc.day_of_week(array, count_from_zero=False, week_start=7)


def _weekday(array: pa.Array) -> pa.Array:
    return pc.day_of_week(array, count_from_zero=True, week_start=1)


def _as_int(value: Datum) -> Datum:
    return pc.cast(value, INT)


def add_days(sign: int) -> Run:
    """A date with days added; Java's integers wrap around, and so does Arrow's unchecked addition."""
    step = pc.add if sign > 0 else pc.subtract
    return lambda date, days: pc.cast(step(_as_int(date), days), DATE)


def _date_diff(left: Datum, right: Datum) -> Datum:
    return pc.subtract(_as_int(left), _as_int(right))


def move(site: Site, sign: int) -> Run:
    """A date or timestamp with an INTERVAL literal added or subtracted."""
    interval = site.constant(1)
    if not isinstance(interval, Interval):
        raise NotCompilable("an interval that is not a literal")
    if interval.months:
        return _fixed(on_arrays(lambda array: _plus_months(array, sign * interval.months)))
    if site.gives == DATE:
        days = pa.scalar(sign * interval.microseconds // DAY_US, INT)
        return _fixed(lambda date: add_days(1)(date, days))
    distance = pa.scalar(sign * interval.microseconds, BIGINT)
    return _fixed(on_arrays(lambda array: _plus(array, distance)))


def _fixed(function: Callable[[Datum], Datum]) -> Run:
    return lambda moment, _: function(moment)


def _plus(array: pa.Array, distance: pa.Scalar) -> pa.Array:
    return attempt(pc.add_checked, array.view(BIGINT), distance).view(array.type)


def _plus_months(array: pa.Array, months: int) -> pa.Array:
    values = numbers(array)
    if array.type == DATE:
        return from_numbers(days_plus_months(values, months), array, DATE)
    _refuse_far(values)
    days, rest = np.divmod(values, DAY_US)
    return from_numbers(days_plus_months(days, months) * DAY_US + rest, array, array.type)


def days_plus_months(days: Numbers, months: int | Numbers) -> Numbers:
    """The same day of another month, or its last day if the month is shorter."""
    month = months_of(days)
    day = days - first_day(month)
    target = month + months
    first = first_day(target)
    last = first_day(target + 1) - first - 1
    found: Numbers = first + np.minimum(day, last)
    if found.size and not -(2**31) <= int(found.min()) <= int(found.max()) < 2**31:
        raise RowError("the date is out of range")
    return found


def months_of(days: Numbers) -> Numbers:
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def first_day(months: Numbers) -> Numbers:
    return months.astype("M8[M]").astype("M8[D]").astype(np.int64)


def _refuse_far(values: Numbers) -> None:
    if values.size and max(abs(int(values.min())), abs(int(values.max()))) > MICROSECONDS_SAFE:
        raise NotCompilable("a timestamp near the end of its range")


MONTHS_PER_UNIT = {"MONTH": 1, "MM": 1, "MON": 1, "QUARTER": 3, "YEAR": 12, "YYYY": 12, "YY": 12}
_MICROSECONDS_PER_UNIT = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": DAY_US,
    "DD": DAY_US,
}


def truncating(units: Collection[str], place: int, cut: Callable[[pa.Array, str], pa.Array]) -> SpecialForm:
    """A date or time truncated to the unit in the argument at `place`; NULL, without evaluation, for an unknown
    unit."""

    def make(nodes: Sequence[Node], site: Site) -> Callable[[Frame], Datum]:
        unit = str(site.constant(place)).upper()
        if unit not in units:
            return lambda _: pa.scalar(None, site.gives)
        function, moment = on_arrays(lambda array: cut(array, unit)), nodes[1 - place]
        return lambda frame: function(moment.run(frame))

    return SpecialForm(make)


def _truncated(array: pa.Array, unit: str) -> pa.Array:
    values = numbers(array)
    _refuse_far(values)
    if unit in _MICROSECONDS_PER_UNIT:
        size = _MICROSECONDS_PER_UNIT[unit]
        return from_numbers(values // size * size, array, array.type)
    if unit == "WEEK":
        # Day 0 was a Thursday; weeks start on Monday.
        return from_numbers(((values // DAY_US + 3) // 7 * 7 - 3) * DAY_US, array, array.type)
    size = MONTHS_PER_UNIT[unit]
    first = first_day(months_of(values // DAY_US) // size * size)
    return from_numbers(first * DAY_US, array, array.type)


def _unix_timestamp(array: pa.Array) -> pa.Array:
    # Truncated towards zero, unlike a cast: Spark divides the microseconds as Java does.
    values = numbers(array)
    return from_numbers(np.sign(values) * (np.abs(values) // 1_000_000), array, BIGINT)


def _from_unixtime(array: pa.Array) -> pa.Array:
    seconds = np.asarray(pc.fill_null(array, 0).to_numpy(zero_copy_only=False), dtype=np.int64)
    return as_text(seconds, "s", array)


_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_PER_SECOND = {"us": 1_000_000.0, "s": 1.0, "D": 1 / 86_400}


def as_text(values: Numbers, unit: str, like: pa.Array) -> pa.Array:
    """Dates or timestamps as text; NotCompilable for years that do not have four digits."""
    seconds = values / _PER_SECOND[unit]
    if values.size and (seconds.min() < _FIRST_SECOND or seconds.max() >= _LAST_SECOND + 1):
        raise NotCompilable("a year outside of 1 to 9999")
    text = pa.array(np.datetime_as_string(values.astype(f"M8[{unit}]")).astype(object), pa.string())
    nulls = like.is_null()
    return pc.if_else(nulls, pa.scalar(None, pa.string()), text)


def timestamp_text(array: pa.Array) -> pa.Array:
    """A timestamp as text as Spark casts it: with a blank, and a fraction without trailing zeros."""
    text = as_text(numbers(array), "us", array)
    spaced = pc.utf8_replace_slice(text, 10, 11, " ")
    return pc.utf8_rtrim(pc.utf8_rtrim(spaced, "0"), ".")


def _spaced(array: pa.Array) -> pa.Array:
    return pc.utf8_replace_slice(_from_unixtime(array), 10, 11, " ")


def _today(_: Sequence[Node], site: Site) -> Callable[[Frame], Datum]:
    return lambda frame: pa.scalar(frame.now.date(), DATE)


def _now(_: Sequence[Node], site: Site) -> Callable[[Frame], Datum]:
    return lambda frame: pa.scalar(frame.now, TIMESTAMP)


def _local_now(_: Sequence[Node], site: Site) -> Callable[[Frame], Datum]:
    return lambda frame: pa.scalar(frame.now.replace(tzinfo=None), TIMESTAMP_NTZ)


def _time_zone(_: Sequence[Node], site: Site) -> Callable[[Frame], Datum]:
    return lambda frame: pa.scalar("UTC")


_DATE_PART = takes(INT, DATE)
_TIME_PART = takes(INT, TIMESTAMP)

FUNCTIONS: Functions = {
    "year": _DATE_PART.by(_part(pc.year), "the year"),
    "quarter": _DATE_PART.by(_part(pc.quarter), "the quarter, 1 to 4"),
    "month": _DATE_PART.by(_part(pc.month), "the month, 1 to 12"),
    "day": _DATE_PART.by(_part(pc.day), "the day of the month"),
    "dayofweek": _DATE_PART.by(_part(_day_of_week), "the day of the week, 1 for Sunday"),
    "weekday": _DATE_PART.by(_part(_weekday), "the day of the week, 0 for Monday"),
    "dayofyear": _DATE_PART.by(_part(pc.day_of_year), "the day of the year"),
    "hour": _TIME_PART.by(_part(pc.hour), "the hour"),
    "minute": _TIME_PART.by(_part(pc.minute), "the minute"),
    "second": _TIME_PART.by(_part(pc.second), "the second, without its fraction"),
    "date_add": takes(DATE, DATE, INT).by_columns(add_days(1), "the date with days added"),
    "date_sub": takes(DATE, DATE, INT).by_columns(add_days(-1), "the date with days subtracted"),
    "datediff": takes(INT, DATE, DATE).by_columns(_date_diff, "the days from the second date to the first"),
    "date_trunc": takes(TIMESTAMP, STRING, TIMESTAMP).by(
        truncating({*MONTHS_PER_UNIT, *_MICROSECONDS_PER_UNIT, "WEEK"}, 0, _truncated),
        "the timestamp truncated to a unit, such as 'hour'",
    ),
    "unix_timestamp": Function(unix_timestamp_rule, BIGINT).by_columns(
        on_arrays(_unix_timestamp), "the seconds since 1970 of a date or timestamp"
    ),
    "from_unixtime": takes(STRING, BIGINT).by_columns(on_arrays(_spaced), "seconds since 1970 as text"),
    "current_date": takes(DATE).by(SpecialForm(_today), "the date of the batch"),
    "localtimestamp": takes(TIMESTAMP_NTZ).by(SpecialForm(_local_now), "the time of the batch, without a time zone"),
    "current_timezone": takes(STRING).by(SpecialForm(_time_zone), "the time zone of the app, which is UTC"),
    "current_timestamp": takes(TIMESTAMP).by(SpecialForm(_now), "the time of the batch"),
}
