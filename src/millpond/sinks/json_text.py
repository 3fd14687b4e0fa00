"""JSON lines of many rows at once: columns become texts and texts lines by Arrow, which holds up no other thread.

The values are written as `millpond.rendering` writes them, decimals as exact numbers; without blanks between them, as
Spark does, because files of large batches lie beside those of small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from millpond.rendering import json_texts

# Rows made into text together.
BATCH_ROWS = 65_536
# Arrow writes a decimal of more places with an exponent.
PLAIN_SCALE_MAX = 6
# The years 1000 to 9999, in microseconds since the epoch.
FIRST_US, LAST_US = -30_610_224_000_000_000, 253_402_300_799_999_999
# What JSON wants escaped.
SPECIAL = r'["\\\x00-\x1f\x7f]'


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
        parts: list[pa.Array | str] = []
        for number, (name, column) in enumerate(zip(names, batch.columns, strict=True)):
            parts += [f"{',' if number else '{'}{name}:", _texts(column)]
        yield pc.binary_join_element_wise(*_scalars(parts), pa.scalar(end), pa.scalar(""))


def _scalars(parts: list[pa.Array | str]) -> list[pa.Array | pa.Scalar]:
    return [pa.scalar(part) if isinstance(part, str) else part for part in parts]


def _bytes(lines: pa.Array) -> memoryview:
    """Texts as they stand in memory, one behind the other."""
    _, offsets, data = lines.buffers()
    first, last = lines.offset, lines.offset + len(lines)
    positions = memoryview(offsets).cast("i")
    return memoryview(data)[positions[first] : positions[last]]


def _texts(column: pa.Array) -> pa.Array:
    for fits, write in QUICK:
        if fits(column.type):
            found = write(column)
            if found is not None:
                return found.fill_null("null") if found.null_count else found
    return pa.array(json_texts(column, exact_numbers=True), pa.string())


def _as_written(column: pa.Array) -> pa.Array | None:
    return column.cast(pa.string())


def _decimal(column: pa.Array) -> pa.Array | None:
    return column.cast(pa.string()) if column.type.scale <= PLAIN_SCALE_MAX else None


def _string(column: pa.Array) -> pa.Array | None:
    if pc.any(pc.match_substring_regex(column, SPECIAL)).as_py():
        return None
    return _quoted(column)


def _timestamp(column: pa.Array) -> pa.Array | None:
    """Whole seconds of years that have four digits."""
    micros = column.cast(pa.int64())
    bounds = pc.min_max(micros)
    if not bounds["min"].is_valid:
        return pa.nulls(len(column), pa.string())
    whole = pc.equal(pc.multiply(pc.divide(micros, 1_000_000), 1_000_000), micros)
    if bounds["min"].as_py() < FIRST_US or bounds["max"].as_py() > LAST_US or not pc.all(whole).as_py():
        return None
    # Without a zone Arrow writes a time twenty times as fast, and UTC needs none.
    texts = pc.divide(micros, 1_000_000).cast(pa.timestamp("s")).cast(pa.string())
    end = 'Z"' if column.type.tz else '"'
    joined = pc.binary_replace_slice(texts, 10, 11, "T")
    return pc.binary_join_element_wise(pa.scalar('"'), joined, pa.scalar(end), pa.scalar(""))


def _quoted(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar('"'), column, pa.scalar('"'), pa.scalar(""))


def _is_utc(type_: pa.DataType) -> bool:
    return pa.types.is_timestamp(type_) and type_.unit == "us" and type_.tz in (None, "UTC")


QUICK: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array | None]], ...] = (
    (pa.types.is_string, _string),
    (pa.types.is_integer, _as_written),
    (pa.types.is_boolean, _as_written),
    (pa.types.is_decimal, _decimal),
    (_is_utc, _timestamp),
)
