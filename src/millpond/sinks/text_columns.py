"""Fast rendering of columns as text with Arrow kernels, and of many rows as lines of JSON and CSV."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.rendering import csv_texts, json_texts

# The number of rows that are rendered at a time.
BATCH_ROWS = 65_536
# The number of such parts that are rendered concurrently; one more may be in memory.
AT_ONCE = min(os.cpu_count() or 1, 4)
# Arrow writes a decimal with a larger scale with an exponent.
PLAIN_SCALE_MAX = 6
# Smaller bytes are control characters.
FIRST_PRINTABLE = 32
# The years 1000 to 9999, in microseconds and days since the epoch.
FIRST_US, LAST_US = -30_610_224_000_000_000, 253_402_300_799_999_999
FIRST_DAY, LAST_DAY = FIRST_US // 86_400_000_000, LAST_US // 86_400_000_000


@dataclass(frozen=True)
class Texts:
    """The values of a column as texts; `end` follows each value, and `quoted` texts need quotes in JSON."""

    values: pa.Array
    end: str = ""
    quoted: bool = False


def quick_texts(column: pa.Array) -> Texts | None:
    """The texts of a column, with NULL for NULL; None if Arrow cannot render the type."""
    return next((write(column) for fits, write in QUICK if fits(column.type)), None)


def around(texts: Texts, before: str, behind: str, null: str) -> pa.Array:
    """Texts with a prefix and a suffix, and another text for NULL."""
    joined = pc.binary_join_element_wise(pa.scalar(before), texts.values, pa.scalar(behind), pa.scalar(""))
    return joined.fill_null(null)


def text_bytes(texts: pa.Array) -> memoryview:
    """The concatenated bytes of texts, without copying."""
    _, offsets, data = texts.buffers()
    first, last = texts.offset, texts.offset + len(texts)
    positions = memoryview(offsets).cast("i")
    return memoryview(data)[positions[first] : positions[last]] if data else memoryview(b"")


def has_any(texts: pa.Array, special: bytes) -> bool:
    """Whether the texts contain a control character or any of the bytes."""
    data = np.frombuffer(text_bytes(texts), np.uint8)
    return bool((data < FIRST_PRINTABLE).any()) or any(bool((data == byte).any()) for byte in special)


def _string(column: pa.Array) -> Texts | None:
    return Texts(column, quoted=True)


def _as_written(column: pa.Array) -> Texts | None:
    return Texts(column.cast(pa.string()))


def _float(column: pa.Array) -> Texts | None:
    """Finite numbers; one without a fraction gets `.0`, so that it reads as a float."""
    if not pc.all(pc.is_finite(column), min_count=0).as_py():
        return None
    texts = column.cast(pa.string())
    whole = pc.match_substring_regex(texts, "^-?[0-9]+$")
    if not pc.any(whole, min_count=0).as_py():
        return Texts(texts)
    return Texts(pc.if_else(whole, pc.binary_join_element_wise(texts, pa.scalar(".0"), pa.scalar("")), texts))


def _decimal(column: pa.Array) -> Texts | None:
    """Decimals with all digits of their scale; Arrow writes small ones of a large scale with an exponent."""
    type_ = column.type
    if type_.scale <= PLAIN_SCALE_MAX:
        return Texts(column.cast(pa.string())) if type_.scale >= 0 else None
    if not pa.types.is_decimal128(type_):
        return None
    digits_type = pa.decimal128(type_.precision, 0)
    texts = pa.Array.from_buffers(digits_type, len(column), column.buffers(), offset=column.offset).cast(pa.string())
    digits = pc.utf8_lpad(pc.utf8_ltrim(texts, "-"), type_.scale + 1, "0")
    sign = pc.if_else(pc.starts_with(texts, "-"), "-", "")
    before, behind = pc.utf8_slice_codeunits(digits, 0, -type_.scale), pc.utf8_slice_codeunits(digits, -type_.scale)
    return Texts(pc.binary_join_element_wise(sign, before, pa.scalar("."), behind, pa.scalar("")))


def _timestamp(column: pa.Array) -> Texts | None:
    """Timestamps in years of four digits, without the zeros that end a fraction; None for others."""
    micros = column.cast(pa.int64())
    bounds = pc.min_max(micros)
    if not bounds["min"].is_valid:
        return Texts(pa.nulls(len(column), pa.string()))
    if bounds["min"].as_py() < FIRST_US or bounds["max"].as_py() > LAST_US:
        return None
    seconds = pc.divide(micros, 1_000_000)
    # Without a zone Arrow writes a timestamp twenty times as fast, and UTC needs none.
    if pc.all(pc.equal(pc.multiply(seconds, 1_000_000), micros)).as_py():
        texts = seconds.cast(pa.timestamp("s")).cast(pa.string())
    else:
        texts = pc.utf8_rtrim(pc.utf8_rtrim(micros.cast(pa.timestamp("us")).cast(pa.string()), "0"), ".")
    return Texts(pc.binary_replace_slice(texts, 10, 11, "T"), "Z" if column.type.tz else "", quoted=True)


def _date(column: pa.Array) -> Texts | None:
    bounds = pc.min_max(column.cast(pa.int32()))
    if bounds["min"].is_valid and not FIRST_DAY <= bounds["min"].as_py() <= bounds["max"].as_py() <= LAST_DAY:
        return None
    return Texts(column.cast(pa.string()), quoted=True)


def _is_utc(type_: pa.DataType) -> bool:
    return pa.types.is_timestamp(type_) and type_.unit == "us" and type_.tz in (None, "UTC")


QUICK: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], Texts | None]], ...] = (
    (pa.types.is_string, _string),
    (pa.types.is_integer, _as_written),
    (pa.types.is_boolean, _as_written),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_date32, _date),
    (_is_utc, _timestamp),
)


# The bytes that must be escaped in JSON, beside control characters.
JSON_SPECIAL = b'"\\\x7f'
JSON_SPECIAL_PATTERN = r'[\x00-\x1f"\\\x7f]'


def json_blocks(rows: pa.Table) -> Iterator[memoryview]:
    """The JSON lines of a table, some thousand at a time, as bytes for a file."""
    for lines in _objects(rows, "}\n"):
        yield text_bytes(lines)


def json_objects(rows: pa.Table) -> pa.ChunkedArray:
    """Each row as a JSON object."""
    return pa.chunked_array(list(_objects(rows, "}")), pa.string())


def _objects(rows: pa.Table, end: str) -> Iterator[pa.Array]:
    """The rows as JSON objects, in order; large tables on several cores, because Arrow releases the GIL."""
    names = [json_texts(pa.array([name]))[0] for name in rows.column_names]
    render = partial(_object_texts, names, end)
    if rows.num_rows <= BATCH_ROWS:
        yield from map(render, rows.to_batches())
        return
    waiting: deque[Future[pa.Array]] = deque()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
            waiting.append(pool.submit(render, batch))
            if len(waiting) > AT_ONCE:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _object_texts(names: list[str], end: str, batch: pa.RecordBatch) -> pa.Array:
    parts: list[pa.Array | pa.Scalar] = []
    # The constant text around all values of a column is joined with its name.
    between = "{"
    for name, column in zip(names, batch.columns, strict=True):
        texts = _json_texts(column)
        quote = '"' if texts.quoted else ""
        parts += [pa.scalar(f"{between}{name}:{quote}"), texts.values]
        between = f"{texts.end}{quote},"
    last = pa.scalar(between.removesuffix(",") + end)
    return pc.binary_join_element_wise(*parts, last, pa.scalar(""))


def _json_texts(column: pa.Array) -> Texts:
    texts = quick_texts(column)
    if texts is None:
        return Texts(pa.array(json_texts(column, exact_numbers=True), pa.string()))
    if pa.types.is_string(column.type) and has_any(column, JSON_SPECIAL):
        return Texts(_escaped(column))
    if not texts.values.null_count:
        return texts
    quote = '"' if texts.quoted else ""
    return Texts(around(texts, quote, texts.end + quote, "null"))


def _escaped(column: pa.Array) -> pa.Array:
    """Texts with quotes; only those with a special character are rendered one by one."""
    special = pc.match_substring_regex(column, JSON_SPECIAL_PATTERN).fill_null(False)
    rendered = pa.array(json_texts(column.filter(special)), pa.string())
    return pc.replace_with_mask(around(Texts(column), '"', '"', "null"), special, rendered)


# Control characters need no quotes, but some count as blanks, which need quotes at the ends of a value.
CSV_SPECIAL = b'",'


def csv_blocks(rows: pa.Table) -> Iterator[bytes | memoryview]:
    """The header and the lines of a table, some thousand at a time, as bytes for a file."""
    yield ",".join(csv_texts(pa.array(rows.column_names))).encode() + b"\n"
    for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
        parts: list[pa.Array | pa.Scalar] = []
        for column in batch.columns:
            texts = _csv_texts(column)
            parts += [texts.values, pa.scalar(f"{texts.end},")]
        parts[-1] = pa.scalar(parts[-1].as_py().removesuffix(",") + "\n")
        yield text_bytes(pc.binary_join_element_wise(*parts, pa.scalar("")))


def _csv_texts(column: pa.Array) -> Texts:
    texts = quick_texts(column)
    if texts is None or (pa.types.is_string(column.type) and not _is_plain(column)):
        return Texts(pa.array(csv_texts(column), pa.string()))
    return Texts(around(texts, "", texts.end, "")) if texts.values.null_count else texts


def _is_plain(column: pa.Array) -> bool:
    """Whether no text needs quotes."""
    if has_any(column, CSV_SPECIAL) or pc.any(pc.equal(pc.binary_length(column), 0)).as_py():
        return False
    return bool(pc.all(pc.equal(pc.utf8_trim_whitespace(column), column), min_count=0).as_py())
