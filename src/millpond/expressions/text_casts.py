"""Parsing of text as numbers, booleans, dates and timestamps, by Spark's rules of CAST."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation

from millpond.expressions.decimals import EXACT, nearest_single
from millpond.expressions.failures import NotCompilable

# Spark trims blanks and control characters around a value.
_AROUND = "".join(map(chr, range(0x21))) + "\x7f"
_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_SPECIAL_FLOATS = {"inf": "inf", "+inf": "inf", "infinity": "inf", "+infinity": "inf", "-inf": "-inf"} | {
    "-infinity": "-inf",
    "nan": "nan",
}
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
_DATE = re.compile(r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIMESTAMP = re.compile(
    r"([+-]?[0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?\s*(Z|UTC|[+-][0-9]{1,2}:[0-9]{2})?)?)?)?"
)
# A text with these characters may be a time in a format that is not supported here: a zone by name, a bare time.
_SUSPECT = re.compile(r"(?=.*[0-9]).*[A-Za-z/:].*", re.DOTALL)


class Malformed(Exception):
    """The text is not a value of the type."""


def whole(bits: int) -> Callable[[str], int]:
    top = 2 ** (bits - 1)

    def parse(text: str) -> int:
        trimmed = text.strip(_AROUND)
        if not _WHOLE.fullmatch(trimmed) or not -top <= int(trimmed) < top:
            raise Malformed
        return int(trimmed)

    return parse


def double(text: str) -> float:
    trimmed = text.strip(_AROUND)
    if _NUMBER.fullmatch(trimmed):
        return float(trimmed)
    special = _SPECIAL_FLOATS.get(trimmed.lower())
    if special is not None:
        return float(special)
    if re.search(r"[0-9]", trimmed) and re.search(r"[dDfFxXpP]", trimmed):
        raise NotCompilable("a number with a suffix or in hexadecimal digits")
    raise Malformed


def single(text: str) -> float:
    """The nearest FLOAT, without rounding to DOUBLE first."""
    near = double(text)
    return nearest_single(Decimal(text.strip(_AROUND))) if math.isfinite(near) and near else near


def decimal(text: str) -> Decimal:
    trimmed = text.strip(_AROUND)
    if not trimmed.isascii():
        raise NotCompilable("a number in other than ASCII digits")
    if not _NUMBER.fullmatch(trimmed):
        raise Malformed
    try:
        value = EXACT.create_decimal(trimmed)
    except InvalidOperation as error:
        raise Malformed from error
    if abs(value.adjusted()) > 300:
        raise NotCompilable("a number of a very high exponent")
    return value


def boolean(text: str) -> bool:
    trimmed = text.strip(_AROUND).lower()
    if trimmed in _TRUE or trimmed in _FALSE:
        return trimmed in _TRUE
    raise Malformed


def day(text: str) -> date:
    found = _DATE.fullmatch(text.strip(_AROUND))
    if not found:
        raise Malformed
    year, month, day_ = int(found[1]), int(found[2] or 1), int(found[3] or 1)
    _check_year(year)
    try:
        return date(year, month, day_)
    except ValueError as error:
        raise Malformed from error


def timestamp(text: str) -> datetime:
    trimmed = text.strip(_AROUND)
    found = _TIMESTAMP.fullmatch(trimmed)
    if not found:
        if _SUSPECT.fullmatch(trimmed):
            raise NotCompilable("a timestamp in another format")
        raise Malformed
    year, month, day_, hour, minute, second = (int(found[i] or (1 if i in (2, 3) else 0)) for i in range(1, 7))
    _check_year(year)
    microsecond = int((found[7] or "").ljust(6, "0")[:6])
    try:
        return datetime(year, month, day_, hour, minute, second, microsecond, tzinfo=_zone(found[8]))
    except (ValueError, OverflowError) as error:
        raise Malformed from error


def _check_year(year: int) -> None:
    # Python's dates have the years 1 to 9999, and a time zone could move a date over the edge.
    if not 1 < year < 9999:
        raise NotCompilable("a year outside of 2 to 9998")


def _zone(text: str | None) -> timezone:
    if text in (None, "Z", "UTC"):
        return UTC
    hours, minutes = (int(part) for part in str(text)[1:].split(":"))
    if hours > 18 or minutes > 59 or (hours == 18 and minutes):
        raise Malformed
    distance = timedelta(hours=hours, minutes=minutes)
    return timezone(-distance if str(text)[0] == "-" else distance)
