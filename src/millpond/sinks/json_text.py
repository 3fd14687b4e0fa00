"""JSON lines of many rows at once.

The values are written as `millpond.rendering` writes them, decimals as exact numbers; without blanks between them, as
Spark does, because files of large batches lie beside those of small ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from millpond.rendering import json_texts
from millpond.sinks.column_texts import BATCH_ROWS, Texts, around, has_any, marked, quick_texts, text_bytes

# What JSON wants escaped.
SPECIAL = marked(bytes([*range(32), *b'"\\\x7f']))


def json_blocks(rows: pa.Table) -> Iterator[memoryview]:
    """The lines of a table, some thousand at a time, as bytes for a file."""
    for lines in _objects(rows, "}\n"):
        yield text_bytes(lines)


def json_objects(rows: pa.Table) -> pa.ChunkedArray:
    """Each row as a JSON object."""
    return pa.chunked_array(list(_objects(rows, "}")), pa.string())


def _objects(rows: pa.Table, end: str) -> Iterator[pa.Array]:
    names = [json_texts(pa.array([name]))[0] for name in rows.column_names]
    for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
        parts: list[pa.Array | pa.Scalar] = []
        # What all values of a column have around them is joined to the names.
        between = "{"
        for name, column in zip(names, batch.columns, strict=True):
            texts = _texts(column)
            quote = '"' if texts.quoted else ""
            parts += [pa.scalar(f"{between}{name}:{quote}"), texts.values]
            between = f"{texts.end}{quote},"
        last = pa.scalar(between.removesuffix(",") + end)
        yield pc.binary_join_element_wise(*parts, last, pa.scalar(""))


def _texts(column: pa.Array) -> Texts:
    texts = quick_texts(column)
    if texts is None or (texts.quoted and has_any(texts.values, SPECIAL)):
        return Texts(pa.array(json_texts(column, exact_numbers=True), pa.string()))
    if not texts.values.null_count:
        return texts
    quote = '"' if texts.quoted else ""
    return Texts(around(texts, quote, texts.end + quote, "null"))
