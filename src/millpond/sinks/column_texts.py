"""Columns as texts, by Arrow: many values at once, and no other thread held up.

What Arrow would write otherwise than `millpond.rendering` does is left to that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# Rows made into text together.
BATCH_ROWS = 65_536
# Arrow writes a decimal of more places with an exponent.
PLAIN_SCALE_MAX = 6
# The years 1000 to 9999, in microseconds since the epoch.
FIRST_US, LAST_US = -30_610_224_000_000_000, 253_402_300_799_999_999


@dataclass(frozen=True)
class Texts:
    """The values of a column; `end` stands behind each, and all within quotes where a form has those for texts."""

    values: pa.Array
    end: str = ""
    quoted: bool = False


def quick_texts(column: pa.Array) -> Texts | None:
    """The texts of a column, NULL where it is; None for what is not Arrow's."""
    return next((write(column) for fits, write in QUICK if fits(column.type)), None)


def around(texts: Texts, before: str, behind: str, null: str) -> pa.Array:
    """Texts with something before and behind each, and another text for NULL."""
    joined = pc.binary_join_element_wise(pa.scalar(before), texts.values, pa.scalar(behind), pa.scalar(""))
    return joined.fill_null(null)


def text_bytes(texts: pa.Array) -> memoryview:
    """Texts as they stand in memory, one behind the other."""
    _, offsets, data = texts.buffers()
    first, last = texts.offset, texts.offset + len(texts)
    positions = memoryview(offsets).cast("i")
    return memoryview(data)[positions[first] : positions[last]] if data else memoryview(b"")


def marked(special: bytes) -> npt.NDArray[np.bool_]:
    """Some bytes among all, for `has_any`."""
    found = np.zeros(256, bool)
    found[list(special)] = True
    return found


def has_any(texts: pa.Array, bytes_: npt.NDArray[np.bool_]) -> bool:
    """Whether one of some bytes is anywhere in texts."""
    return bool(bytes_.take(np.frombuffer(text_bytes(texts), np.uint8)).any())


def _string(column: pa.Array) -> Texts | None:
    return Texts(column, quoted=True)


def _as_written(column: pa.Array) -> Texts | None:
    return Texts(column.cast(pa.string()))


def _decimal(column: pa.Array) -> Texts | None:
    return Texts(column.cast(pa.string())) if column.type.scale <= PLAIN_SCALE_MAX else None


def _timestamp(column: pa.Array) -> Texts | None:
    """Whole seconds of years that have four digits."""
    micros = column.cast(pa.int64())
    bounds = pc.min_max(micros)
    if not bounds["min"].is_valid:
        return Texts(pa.nulls(len(column), pa.string()))
    seconds = pc.divide(micros, 1_000_000)
    whole = pc.equal(pc.multiply(seconds, 1_000_000), micros)
    if bounds["min"].as_py() < FIRST_US or bounds["max"].as_py() > LAST_US or not pc.all(whole).as_py():
        return None
    # Without a zone Arrow writes a time twenty times as fast, and UTC needs none.
    texts = seconds.cast(pa.timestamp("s")).cast(pa.string())
    return Texts(pc.binary_replace_slice(texts, 10, 11, "T"), "Z" if column.type.tz else "", quoted=True)


def _is_utc(type_: pa.DataType) -> bool:
    return pa.types.is_timestamp(type_) and type_.unit == "us" and type_.tz in (None, "UTC")


QUICK: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], Texts | None]], ...] = (
    (pa.types.is_string, _string),
    (pa.types.is_integer, _as_written),
    (pa.types.is_boolean, _as_written),
    (pa.types.is_decimal, _decimal),
    (_is_utc, _timestamp),
)
