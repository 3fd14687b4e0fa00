"""Durations and sizes as users write them: `500ms`, `5 minutes`, `512MB`, `2GiB`."""

from __future__ import annotations

import re
from decimal import Decimal

from millpond.errors import Place, SqlError

_MICROSECONDS_PER_WORD: dict[str, int] = {
    "microsecond": 1,
    "millisecond": 1_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}

MICROSECONDS_PER_UNIT: dict[str, int] = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
    **_MICROSECONDS_PER_WORD,
    **{f"{word}s": length for word, length in _MICROSECONDS_PER_WORD.items()},
}

BYTES_PER_UNIT: dict[str, int] = {
    "b": 1,
    "kb": 1_000,
    "mb": 1_000**2,
    "gb": 1_000**3,
    "tb": 1_000**4,
    "kib": 1_024,
    "mib": 1_024**2,
    "gib": 1_024**3,
    "tib": 1_024**4,
}

# A decimal number without sign or exponent, then a unit in letters.
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*\Z")

# The longest duration that both a 64-bit count of microseconds and a Spark timestamp can represent.
DURATION_MAX_US = 100 * 366 * 86_400_000_000
SIZE_MAX_BYTES = 2**63 - 1


def parse_duration(text: str, place: Place | None = None) -> int:
    """A duration in microseconds; MP106 if the text is not a duration."""
    found = _quantity(text, MICROSECONDS_PER_UNIT, DURATION_MAX_US)
    if found is None:
        hint = "Write a number and a unit, such as 500ms, 30s, 5 minutes, 1h or 2 days."
        raise SqlError("MP106", f"'{text}' is not a duration.", place=place, hint=hint)
    return found


def parse_size(text: str, place: Place | None = None) -> int:
    """A size in bytes: MB is 1000 * 1000, MiB is 1024 * 1024; MP107 if the text is not a size."""
    found = _quantity(text, BYTES_PER_UNIT, SIZE_MAX_BYTES)
    if found is None:
        hint = "Write a number and a unit, such as 512MB or 2GiB."
        raise SqlError("MP107", f"'{text}' is not a size.", place=place, hint=hint)
    return found


def _quantity(text: str, units: dict[str, int], most: int) -> int | None:
    matched = _QUANTITY.match(text)
    if not matched:
        return None
    factor = units.get(matched[2].lower())
    if factor is None:
        return None
    amount = Decimal(matched[1]) * factor
    # A fraction of a microsecond or of a byte is a mistake, not something to round.
    return int(amount) if amount == int(amount) and amount <= most else None


def seconds_of(duration: str | float) -> float:
    """The seconds of a duration, which is a number of them or a text such as `10s`."""
    return parse_duration(duration) / 1_000_000 if isinstance(duration, str) else duration
