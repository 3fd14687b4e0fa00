"""JSON lines of many rows at once: columns become texts and texts lines by Arrow, which holds up no other thread.

The values are written as `millpond.rendering` writes them, decimals as exact numbers; without blanks between them, as
Spark does, because files of large batches lie beside those of small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.rendering import json_texts

# Rows made into text together.
BATCH_ROWS = 65_536
# Arrow writes a decimal of more places with an exponent.
PLAIN_SCALE_MAX = 6
# The years 1000 to 9999, in microseconds since the epoch.
FIRST_US, LAST_US = -30_610_224_000_000_000, 253_402_300_799_999_999
# What JSON wants escaped, by byte.
SPECIAL = np.zeros(256, bool)
SPECIAL[[*range(32), *b'"\\\x7f']] = True


@dataclass(frozen=True)
class Texts:
    """The values of a column, and what stands before and behind each: texts that all share are joined to their name."""

    values: pa.Array
    before: str = ""
    behind: str = ""


def json_blocks(rows: pa.Table) -> Iterator[memoryview]:
    """The lines of a table, some thousand at a time, as bytes for a file."""
    for lines in _objects(rows, "}\n"):
        yield _bytes(lines)


def json_objects(rows: pa.Table) -> pa.ChunkedArray:
    """Each row as a JSON object."""
    return pa.chunked_array(list(_objects(rows, "}")), pa.string())


def _objects(rows: pa.Table, end: str) -> Iterator[pa.Array]:
    names = [json_texts(pa.array([name]))[0] for name in rows.column_names]
    for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
        parts: list[pa.Array | pa.Scalar] = []
        between = "{"
        for name, column in zip(names, batch.columns, strict=True):
            texts = _texts(column)
            parts += [pa.scalar(f"{between}{name}:{texts.before}"), texts.values]
            between = f"{texts.behind},"
        last = pa.scalar(between.removesuffix(",") + end)
        yield pc.binary_join_element_wise(*parts, last, pa.scalar(""))


def _bytes(lines: pa.Array) -> memoryview:
    """Texts as they stand in memory, one behind the other."""
    _, offsets, data = lines.buffers()
    first, last = lines.offset, lines.offset + len(lines)
    positions = memoryview(offsets).cast("i")
    return memoryview(data)[positions[first] : positions[last]]


def _texts(column: pa.Array) -> Texts:
    for fits, write in QUICK:
        if fits(column.type):
            found = write(column)
            if found is not None:
                return _with_nulls(found) if found.values.null_count else found
    return Texts(pa.array(json_texts(column, exact_numbers=True), pa.string()))


def _with_nulls(texts: Texts) -> Texts:
    """What stands around a value does not stand around a NULL."""
    around = pa.scalar(texts.before), texts.values, pa.scalar(texts.behind)
    return Texts(pc.binary_join_element_wise(*around, pa.scalar("")).fill_null("null"))


def _as_written(column: pa.Array) -> Texts | None:
    return Texts(column.cast(pa.string()))


def _decimal(column: pa.Array) -> Texts | None:
    return Texts(column.cast(pa.string())) if column.type.scale <= PLAIN_SCALE_MAX else None


def _string(column: pa.Array) -> Texts | None:
    data = np.frombuffer(_bytes(column), np.uint8) if column.buffers()[2] else np.empty(0, np.uint8)
    return None if SPECIAL.take(data).any() else Texts(column, '"', '"')


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
    return Texts(pc.binary_replace_slice(texts, 10, 11, "T"), '"', 'Z"' if column.type.tz else '"')


def _is_utc(type_: pa.DataType) -> bool:
    return pa.types.is_timestamp(type_) and type_.unit == "us" and type_.tz in (None, "UTC")


QUICK: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], Texts | None]], ...] = (
    (pa.types.is_string, _string),
    (pa.types.is_integer, _as_written),
    (pa.types.is_boolean, _as_written),
    (pa.types.is_decimal, _decimal),
    (_is_utc, _timestamp),
)
