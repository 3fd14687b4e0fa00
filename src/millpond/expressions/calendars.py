"""Calendar functions: parts of dates, months, seconds since 1970, and formatting and parsing by a pattern."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.coercion import BIGINT, BOOLEAN, DATE, DOUBLE, INT, INTEGERS, STRING
from millpond.expressions.failures import NotCompilable, RowError, attempt
from millpond.expressions.frames import Datum
from millpond.expressions.rules import Operands, Signature, fits
from millpond.expressions.signatures import (
    Function,
    Functions,
    Kernel,
    Run,
    Site,
    elementwise,
    on_arrays,
    on_columns,
    python_values,
    takes,
)
from millpond.expressions.text_casts import Malformed
from millpond.expressions.time_formats import DAYS, MONTHS, reader, slices, writer
from millpond.expressions.times import (
    DAY_US,
    MONTHS_PER_UNIT,
    Numbers,
    as_text,
    days_plus_months,
    first_day,
    from_numbers,
    months_of,
    numbers,
    truncating,
)
from millpond.schema import TIMESTAMP

SECOND_US = 1_000_000
MONTHS_MAX = 100_000
SECOND_TYPE = pa.decimal128(8, 6)
SECONDS_TAKEN = pa.decimal128(16, 6)


def _part(function: Callable[..., Any]) -> Run:
    return on_arrays(lambda array: pc.cast(function(array), INT))


def _name(names: tuple[str, ...], index: Callable[[pa.Array], pa.Array]) -> Run:
    def run(array: pa.Array) -> pa.Array:
        short = pa.array([name[:3] for name in names])
        return short.take(pc.cast(index(array), INT))

    return on_arrays(run)


def _seconds(array: pa.Array) -> pa.Array:
    """The seconds within the minute with their fraction."""
    micros = numbers(array) % 60_000_000
    found = [Decimal(int(value)).scaleb(-6) for value in micros]
    return pc.if_else(array.is_null(), pa.scalar(None, SECOND_TYPE), pa.array(found, SECOND_TYPE))


def _last_day(array: pa.Array) -> pa.Array:
    return from_numbers(first_day(months_of(numbers(array)) + 1) - 1, array, DATE)


def _add_months(days: pa.Array, months: pa.Array) -> pa.Array:
    known = pc.and_(days.is_valid(), months.is_valid())
    moved = days_plus_months(numbers(pc.if_else(known, days, pa.scalar(0, INT).cast(DATE))), _whole(months, known))
    return pc.if_else(known, from_numbers(moved, days, DATE), pa.scalar(None, DATE))


def _whole(array: pa.Array, known: pa.Array) -> Numbers:
    kept = pc.fill_null(pc.if_else(known, array, pa.scalar(0, array.type)), 0)
    return np.asarray(kept.to_numpy(zero_copy_only=False), dtype=np.int64)


# The days of the week as Spark counts them: day 0 was a Thursday.
_WEEK = ("THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY")
_WEEK_NAMES = {name[:size]: place for place, name in enumerate(_WEEK) for size in (2, 3, len(name))}


def _next_day(day: int, name: str) -> int:
    wanted = _WEEK_NAMES.get(name.upper())
    if wanted is None:
        raise RowError(f"'{name}' is not a day of the week")
    return day + 1 + (wanted - 1 - day) % 7


_next_days = elementwise(_next_day, INT)


def _next(days: Datum, names: Datum) -> Datum:
    return pc.cast(_next_days(pc.cast(days, INT), names), DATE)


def _months_between(site: Site) -> Run:
    """Whole months if both are the same day of the month or both the last one, else with a fraction of 31 days."""
    rounded = site.constant(2) if len(site.takes) == 3 else True
    if rounded is None:
        raise NotCompilable("a literal that is NULL")

    def compute(left: pa.Array, right: pa.Array, *_: pa.Array) -> pa.Array:
        (month, day, last, second), (month2, day2, last2, second2) = map(_split, (left, right))
        whole = (month - month2).astype(np.float64)
        seconds = (day - day2) * 86_400 + second - second2
        exact = whole + seconds / (31 * 86_400.0)
        if rounded:
            scaled = exact * 1e8
            below = np.floor(scaled)
            exact = (below + (scaled - below >= 0.5)) / 1e8
        found = np.where((day == day2) | (last & last2), whole, exact)
        known = pc.and_(left.is_valid(), right.is_valid())
        return pc.if_else(known, pa.array(found), pa.scalar(None, DOUBLE))

    return on_columns(compute)


def _split(array: pa.Array) -> tuple[Numbers, Numbers, Any, Numbers]:
    """The month, the day within it, whether it is the last one, and the second within the day."""
    days, rest = np.divmod(numbers(array), DAY_US)
    month = months_of(days)
    day = days - first_day(month)
    return month, day, days == first_day(month + 1) - 1, rest // SECOND_US


def _make_date(year: int, month: int, day: int) -> date:
    if not 1 <= year <= 9999:
        raise NotCompilable("a year outside of 1 to 9999")
    try:
        return date(year, month, day)
    except (ValueError, OverflowError) as error:
        raise RowError("the date does not exist") from error


def _make_timestamp(year: int, month: int, day: int, hour: int, minute: int, exact: Decimal) -> datetime:
    second, rest = divmod(exact, 1)
    if not 1 <= year <= 9998:
        raise NotCompilable("a year outside of 1 to 9998")
    minute_more = timedelta(minutes=1) if second == 60 and not rest else timedelta()
    full = 0 if minute_more else int(second)
    try:
        moment = datetime(year, month, day, hour, minute, full, int(rest * SECOND_US), tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise RowError("the time does not exist") from error
    return moment + minute_more


def make_timestamp_rule(operands: Operands) -> Signature | None:
    *whole, second = operands
    exact = second.type in INTEGERS or (pa.types.is_decimal(second.type) and second.type.scale <= 6)
    if len(whole) != 5 or not exact or not all(fits(o, INT) for o in whole):
        return None
    return Signature((INT,) * 5 + (SECONDS_TAKEN,), TIMESTAMP)


def _trunc(array: pa.Array, unit: str) -> pa.Array:
    days = numbers(array)
    if unit == "WEEK":
        return from_numbers((days + 3) // 7 * 7 - 3, array, DATE)
    size = MONTHS_PER_UNIT[unit]
    return from_numbers(first_day(months_of(days) // size * size), array, DATE)


def _per_second(size: int) -> Run:
    """Whole units since 1970, rounded down."""
    return on_arrays(lambda array: from_numbers(numbers(array) // size, array, BIGINT))


def _since_1970(size: int) -> Run:
    """A timestamp from units since 1970."""
    return on_arrays(lambda array: attempt(pc.multiply_checked, array, pa.scalar(size, BIGINT)).view(TIMESTAMP))


def whole_rule(operands: Operands) -> Signature | None:
    return Signature((BIGINT,), TIMESTAMP) if len(operands) == 1 and operands[0].type in INTEGERS else None


def _as_date(days: Datum) -> Datum:
    return pc.cast(days, DATE)


def _formatted(site: Site) -> Run:
    pattern = _pattern(site)
    write, cuts = writer(pattern), slices(pattern)

    def by_rows(array: pa.Array) -> pa.Array:
        encoded = array.dictionary_encode()
        texts = [write(moment) for moment in python_values(encoded.dictionary, len(array))]
        return pa.array(texts, STRING).take(encoded.indices)

    def by_slices(array: pa.Array) -> pa.Array:
        text = as_text(numbers(array), "us", array)
        parts = [cut if isinstance(cut, str) else pc.utf8_slice_codeunits(text, *cut) for cut in cuts or ()]
        return pc.binary_join_element_wise(*parts, "")

    function = on_arrays(by_rows if cuts is None else by_slices)
    return lambda moment, _: function(moment)


def _pattern(site: Site) -> str:
    found = site.constant(1)
    if found is None:
        raise NotCompilable("a format that is NULL")
    return str(found)


def _from_unixtime(site: Site) -> Run:
    write, moment = _formatted(site), _since_1970(SECOND_US)
    return lambda seconds, pattern: write(moment(seconds), pattern)


def _read(gives: pa.DataType, *, safe: bool = False) -> Kernel:
    """A text parsed by a pattern, as a timestamp, a date, or seconds since 1970."""

    def make(site: Site) -> Run:
        read = reader(_pattern(site)).read

        def one(text: str) -> datetime | None:
            try:
                return read(text)
            except Malformed as error:
                if safe:
                    return None
                raise RowError(f"'{text}' does not match the format") from error

        def moments(array: pa.Array) -> pa.Array:
            encoded = array.dictionary_encode()
            return pa.array([one(text) for text in encoded.dictionary.to_pylist()], TIMESTAMP).take(encoded.indices)

        function = on_arrays(lambda array: _as(moments(array), gives))
        return lambda text, _: function(text)

    return Kernel(make, fallible=not safe)


def _as(moments: pa.Array, gives: pa.DataType) -> pa.Array:
    if gives == TIMESTAMP:
        return moments
    size, type_ = (DAY_US, DATE) if gives == DATE else (SECOND_US, BIGINT)
    return from_numbers(numbers(moments) // size, moments, type_)


_UNIT_US = {"MICROSECOND": 1, "MILLISECOND": 1_000, "SECOND": SECOND_US, "MINUTE": 60 * SECOND_US} | {
    "HOUR": 3_600 * SECOND_US,
    "DAY": DAY_US,
    "DAYOFYEAR": DAY_US,
    "WEEK": 7 * DAY_US,
}
_UNIT_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def _unit(site: Site) -> tuple[int, int]:
    """The months or the microseconds of a unit."""
    word = str(site.constant(0))
    if word not in _UNIT_US and word not in _UNIT_MONTHS:
        raise NotCompilable(f"'{word}' as a unit of time")
    return _UNIT_MONTHS.get(word, 0), _UNIT_US.get(word, 0)


def _timestamp_add(site: Site) -> Run:
    months, micros = _unit(site)

    def add(counts: pa.Array, moments: pa.Array) -> pa.Array:
        known = pc.and_(counts.is_valid(), moments.is_valid())
        if micros:
            distance = attempt(pc.multiply_checked, counts, pa.scalar(micros, BIGINT))
            return attempt(pc.add_checked, moments.view(BIGINT), distance).view(TIMESTAMP)
        steps = _whole(counts, known)
        if steps.size and np.abs(steps).max() > MONTHS_MAX:
            raise NotCompilable("a very long time")
        days, rest = np.divmod(_whole(moments.view(BIGINT), known), DAY_US)
        moved = days_plus_months(days, steps * months) * DAY_US + rest
        return pc.if_else(known, from_numbers(moved, moments, TIMESTAMP), pa.scalar(None, TIMESTAMP))

    function = on_columns(add)
    return lambda _, counts, moments: function(counts, moments)


def _timestamp_diff(site: Site) -> Run:
    """Whole units from the first time to the second, truncated towards zero."""
    months, micros = _unit(site)

    def subtract(start: pa.Array, end: pa.Array) -> pa.Array:
        known = pc.and_(start.is_valid(), end.is_valid())
        first, last = _whole(start.view(BIGINT), known), _whole(end.view(BIGINT), known)
        distance = last - first if micros else _months_until(first, last)
        found = np.sign(distance) * (np.abs(distance) // (micros or months))
        return pc.if_else(known, pa.array(found), pa.scalar(None, BIGINT))

    function = on_columns(subtract)
    return lambda _, start, end: function(start, end)


def _months_until(first: Numbers, last: Numbers) -> Numbers:
    """Whole months; a month that the time of day does not complete is not counted."""
    (day1, time1), (day2, time2) = np.divmod(first, DAY_US), np.divmod(last, DAY_US)
    day2 = day2 - ((day2 > day1) & (time2 < time1)) + ((day2 < day1) & (time2 > time1))
    month1, month2 = months_of(day1), months_of(day2)
    packed = (month2 - month1) * 32 + (day2 - first_day(month2)) - (day1 - first_day(month1))
    found: Numbers = np.sign(packed) * (np.abs(packed) // 32)
    return found


def format_rule(gives: pa.DataType) -> Function:
    """A text and a literal format."""

    def rule(operands: Operands) -> Signature | None:
        text, pattern = operands
        return Signature((STRING, STRING), gives) if text.type == pattern.type == STRING else None

    return Function(rule, gives)


_DATE_PART = takes(INT, DATE)
_WHOLE_SINCE = Function(whole_rule, TIMESTAMP)

FUNCTIONS: Functions = {
    "weekofyear": _DATE_PART.by_columns(_part(pc.iso_week), "the week of the year by ISO 8601"),
    "yearofweek": _DATE_PART.by_columns(_part(pc.iso_year)),
    "dayofweek_iso": _DATE_PART.by_columns(
        _part(lambda array: pc.day_of_week(array, count_from_zero=False, week_start=1))
    ),
    "seconds": takes(SECOND_TYPE, TIMESTAMP).by_columns(on_arrays(_seconds)),
    "dayname": takes(STRING, DATE).by_columns(
        _name(DAYS, lambda array: pc.day_of_week(array, week_start=1)), "the day of the week, such as Mon"
    ),
    "monthname": takes(STRING, DATE).by_columns(
        _name(MONTHS, lambda array: pc.subtract(pc.month(array), pa.scalar(1, BIGINT))), "the month, such as Jan"
    ),
    "last_day": takes(DATE, DATE).by_columns(on_arrays(_last_day), "the last day of the month"),
    "add_months": takes(DATE, DATE, INT).by_columns(
        on_columns(_add_months), "the date with months added", fallible=True
    ),
    "next_day": takes(DATE, DATE, STRING).by_columns(_next, "the next date with this day of the week", fallible=True),
    "months_between": takes(DOUBLE, TIMESTAMP, TIMESTAMP, BOOLEAN, optional=1).by(
        Kernel(_months_between), "the months between two times, with a fraction"
    ),
    "make_date": takes(DATE, INT, INT, INT).by_rows(_make_date, "the date of year, month and day", fallible=True),
    "make_timestamp": Function(make_timestamp_rule, TIMESTAMP).by_rows(
        _make_timestamp, "the timestamp of year, month, day, hour, minute and second", fallible=True
    ),
    "trunc": takes(DATE, DATE, STRING).by(
        truncating({*MONTHS_PER_UNIT, "WEEK"}, 1, _trunc), "the date truncated to a unit, such as 'month'"
    ),
    "unix_date": takes(INT, DATE).by_columns(lambda days: pc.cast(days, INT), "the days since 1970"),
    "date_from_unix_date": takes(DATE, INT).by_columns(_as_date, "the date of a number of days since 1970"),
    "unix_seconds": takes(BIGINT, TIMESTAMP).by_columns(_per_second(SECOND_US), "the seconds since 1970, rounded down"),
    "unix_millis": takes(BIGINT, TIMESTAMP).by_columns(_per_second(1_000), "the milliseconds since 1970, rounded down"),
    "unix_micros": takes(BIGINT, TIMESTAMP).by_columns(_per_second(1), "the microseconds since 1970"),
    "timestamp_seconds": _WHOLE_SINCE.by_columns(
        _since_1970(SECOND_US), "seconds since 1970 as a timestamp", fallible=True
    ),
    "timestamp_millis": _WHOLE_SINCE.by_columns(
        _since_1970(1_000), "milliseconds since 1970 as a timestamp", fallible=True
    ),
    "timestamp_micros": _WHOLE_SINCE.by_columns(
        _since_1970(1), "microseconds since 1970 as a timestamp", fallible=True
    ),
    "timestampadd": takes(TIMESTAMP, STRING, BIGINT, TIMESTAMP).by(
        Kernel(_timestamp_add, fallible=True), "the time with units added: timestampadd(HOUR, 2, time)"
    ),
    "timestampdiff": takes(BIGINT, STRING, TIMESTAMP, TIMESTAMP).by(
        Kernel(_timestamp_diff), "whole units between two times: timestampdiff(HOUR, start, end)"
    ),
    "date_format": takes(STRING, TIMESTAMP, STRING).by(Kernel(_formatted), "a date or timestamp as text in a format"),
    "from_unixtime/2": takes(STRING, BIGINT, STRING).by(Kernel(_from_unixtime, fallible=True)),
    "to_timestamp": format_rule(TIMESTAMP).by(_read(TIMESTAMP), "a text parsed as a timestamp, optionally by a format"),
    "to_date": format_rule(DATE).by(_read(DATE), "a text parsed as a date, optionally by a format"),
    "try_to_timestamp": format_rule(TIMESTAMP).by(_read(TIMESTAMP, safe=True), "to_timestamp, or NULL"),
    "try_to_date": format_rule(DATE).by(_read(DATE, safe=True), "to_date, or NULL"),
    "unix_timestamp/2": format_rule(BIGINT).by(_read(BIGINT)),
}
