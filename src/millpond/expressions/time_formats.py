"""Patterns such as 'yyyy-MM-dd HH:mm:ss' of DATE_FORMAT and TO_TIMESTAMP: the commonly used subset of Java's."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from itertools import pairwise

from millpond.expressions.failures import NotCompilable
from millpond.expressions.text_casts import Malformed

FORMATS_MAX = 256

_MONTH_NAMES = "January February March April May June July August September October November December"
MONTHS = tuple(_MONTH_NAMES.split())
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True)
class Piece:
    """A run of one pattern letter, or a literal text if `letter` is empty."""

    letter: str
    count: int = 0
    text: str = ""


_RUN = re.compile(r"(?P<letter>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<plain>[^A-Za-z'\[\]{}#])")


@lru_cache(FORMATS_MAX)
def pieces(pattern: str) -> tuple[Piece, ...]:
    """The pieces of a pattern in order."""
    found: list[Piece] = []
    place = 0
    while place < len(pattern):
        match = _RUN.match(pattern, place)
        if match is None:
            raise NotCompilable("a pattern of dates with optional parts or other marks")
        if match["letter"]:
            found.append(Piece(match["letter"][0], len(match["letter"])))
        else:
            text = match["plain"] or (match["quoted"].replace("''", "'") or "'")
            found.append(Piece("", text=text))
        place = match.end()
    return tuple(found)


Write = Callable[[datetime], str]

_WRITERS: dict[str, Write] = {
    "yyyy": lambda t: f"{t.year:04d}",
    "y": lambda t: str(t.year),
    "yy": lambda t: f"{t.year % 100:02d}",
    "M": lambda t: str(t.month),
    "MM": lambda t: f"{t.month:02d}",
    "MMM": lambda t: MONTHS[t.month - 1][:3],
    "MMMM": lambda t: MONTHS[t.month - 1],
    "d": lambda t: str(t.day),
    "dd": lambda t: f"{t.day:02d}",
    "H": lambda t: str(t.hour),
    "HH": lambda t: f"{t.hour:02d}",
    "h": lambda t: str((t.hour + 11) % 12 + 1),
    "hh": lambda t: f"{(t.hour + 11) % 12 + 1:02d}",
    "m": lambda t: str(t.minute),
    "mm": lambda t: f"{t.minute:02d}",
    "s": lambda t: str(t.second),
    "ss": lambda t: f"{t.second:02d}",
    "a": lambda t: "AM" if t.hour < 12 else "PM",
    **{"E" * count: lambda t: DAYS[t.weekday()][:3] for count in (1, 2, 3)},
    "EEEE": lambda t: DAYS[t.weekday()],
    "Q": lambda t: str((t.month + 2) // 3),
    "QQQ": lambda t: f"Q{(t.month + 2) // 3}",
    "X": lambda _: "Z",
    "XXX": lambda _: "Z",
    "xxx": lambda _: "+00:00",
    "Z": lambda _: "+0000",
}
FRACTION_DIGITS = 9


def _fraction(digits: int) -> Write:
    return lambda t: f"{t.microsecond:06d}000"[:digits]


@lru_cache(FORMATS_MAX)
def writer(pattern: str) -> Write:
    """A function that formats a UTC time by a pattern."""
    parts = [_piece_writer(piece) for piece in pieces(pattern)]
    return lambda moment: "".join(part(moment) for part in parts)


def _piece_writer(piece: Piece) -> Write:
    if not piece.letter:
        return lambda _: piece.text
    if piece.letter == "S" and piece.count <= FRACTION_DIGITS:
        return _fraction(piece.count)
    found = _WRITERS.get(piece.letter * piece.count)
    if found is None:
        raise NotCompilable(f"'{piece.letter * piece.count}' in a pattern of dates")
    return found


# The position of a field in 2024-02-29T12:34:56.789000.
_SLICES = {"yyyy": (0, 4), "MM": (5, 7), "dd": (8, 10), "HH": (11, 13), "mm": (14, 16), "ss": (17, 19)} | {
    "S" * count: (20, 20 + count) for count in range(1, 7)
}


@lru_cache(FORMATS_MAX)
def slices(pattern: str) -> tuple[str | tuple[int, int], ...] | None:
    """A pattern as literals and slices of an ISO text; None if it has fields other than numbers of fixed length."""
    found = [piece.text if not piece.letter else _SLICES.get(piece.letter * piece.count) for piece in pieces(pattern)]
    known = tuple(part for part in found if part is not None)
    return known if len(known) == len(found) and not all(isinstance(part, str) for part in known) else None


_TWO_DIGITS = dict.fromkeys(("MM", "dd", "HH", "hh", "mm", "ss", "yy"), r"\d{2}")
_ONE_OR_TWO = dict.fromkeys(("M", "d", "H", "h", "m", "s"), r"\d{1,2}")
_READ: dict[str, str] = {
    "yyyy": r"\d{4}",
    **_TWO_DIGITS,
    **_ONE_OR_TWO,
    "MMM": "|".join(month[:3] for month in MONTHS),
    "MMMM": "|".join(MONTHS),
    "a": "AM|PM",
    "XXX": r"Z|[+-]\d{2}:\d{2}",
}
# What a field may also match in Java, with whatever result.
_LOOSE = {"MMM": r"[A-Za-z]+", "MMMM": r"[A-Za-z]+", "a": r"\w+", "XXX": r"\S+"}
_NAMES = {"y": "year", "M": "month", "d": "day", "H": "hour", "h": "clock", "m": "minute", "s": "second"} | {
    "S": "fraction",
    "a": "half",
    "X": "zone",
}


@dataclass(frozen=True)
class Reader:
    """A pattern for parsing texts; `loose` matches every text that Java might parse differently."""

    strict: re.Pattern[str]
    loose: re.Pattern[str]

    def read(self, text: str) -> datetime:
        """The time of a text; Malformed if it is not one, NotCompilable if only Java can determine that."""
        found = self.strict.fullmatch(text)
        if found is None:
            if self.loose.fullmatch(text):
                raise NotCompilable("a text that nearly matches the format")
            raise Malformed
        return _moment({name: value for name, value in found.groupdict().items() if value is not None})


def _moment(parts: dict[str, str]) -> datetime:
    year = int(parts["year"]) + (2000 if len(parts["year"]) == 2 else 0)
    if year == 0:
        raise NotCompilable("the year 0")
    month = _month(parts.get("month", "1"))
    hour = int(parts.get("hour", 0))
    if "clock" in parts:
        clock = int(parts["clock"])
        if not 1 <= clock <= 12:
            raise Malformed
        hour = clock % 12 + (12 if parts["half"].upper() == "PM" else 0)
    day, minute, second = int(parts.get("day", 1)), int(parts.get("minute", 0)), int(parts.get("second", 0))
    micro = int(parts.get("fraction", "").ljust(6, "0")[:6])
    try:
        return datetime(year, month, day, hour, minute, second, micro, _zone(parts.get("zone", "Z")))
    except (ValueError, OverflowError) as error:
        raise Malformed from error


def _month(text: str) -> int:
    if text.isdigit():
        return int(text)
    return next(place for place, name in enumerate(MONTHS, 1) if name[:3].lower() == text[:3].lower())


def _zone(text: str) -> timezone:
    if text in ("Z", "z"):
        return UTC
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 18 or minutes > 59 or (hours == 18 and minutes):
        raise Malformed
    distance = timedelta(hours=hours, minutes=minutes)
    return timezone(-distance if text[0] == "-" else distance)


@lru_cache(FORMATS_MAX)
def reader(pattern: str) -> Reader:
    """A pattern compiled for parsing; NotCompilable if it is not supported."""
    found = pieces(pattern)
    letters = [piece.letter for piece in found if piece.letter]
    _check_letters(letters)
    _check_neighbours(found)
    strict = "".join(_field(piece, _READ) for piece in found)
    loose = "".join(_field(piece, {}) for piece in found)
    flags = re.ASCII | re.IGNORECASE
    return Reader(re.compile(strict, flags), re.compile(loose, flags))


def _check_letters(letters: list[str]) -> None:
    """Reject duplicate fields, and fields that require another one, which Java completes by its own rules."""
    needs = {"d": "M", "M": "y", "m": "H", "s": "m", "S": "s"}
    have = set(letters) | ({"H"} if {"h", "a"} <= set(letters) else set())
    if len(set(letters)) < len(letters) or "y" not in have or not set(letters) <= set(_NAMES):
        raise NotCompilable("a pattern of dates with fields that Arrow does not support")
    if ("h" in have) != ("a" in have) or {"h", "H"} <= set(letters):
        raise NotCompilable("a pattern with a clock hour but no half of the day")
    if any(letter in have and other not in have for letter, other in needs.items()):
        raise NotCompilable("a pattern of dates that leaves a part out")


def _check_neighbours(found: tuple[Piece, ...]) -> None:
    """Reject a number of variable length next to another number, because Java determines where it ends."""
    for left, right in pairwise(found):
        numbers = all(p.letter and (p.letter in "ydHhmsS" or (p.letter == "M" and p.count < 3)) for p in (left, right))
        if numbers and (left.count == 1 or right.count == 1 or "S" in (left.letter, right.letter)):
            raise NotCompilable("adjacent numbers of variable length in a pattern of dates")


def _field(piece: Piece, read: dict[str, str]) -> str:
    if not piece.letter:
        if not piece.text.isascii():
            raise NotCompilable("a letter beyond ASCII in a pattern of dates")
        return re.escape(piece.text)
    run = piece.letter * piece.count
    if piece.letter == "S" and piece.count <= FRACTION_DIGITS:
        expression = rf"\d{{1,{piece.count}}}" if read else r"\d*"
    elif run not in _READ:
        raise NotCompilable(f"'{run}' in a pattern of dates")
    else:
        expression = read.get(run) or _LOOSE.get(run, r"[+-]?\d+")
    return f"(?P<{_NAMES[piece.letter]}>{expression})"
