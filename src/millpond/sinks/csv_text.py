"""Lines of CSV of many rows at once, the same that `millpond.rendering` writes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from millpond.rendering import csv_texts
from millpond.sinks.column_texts import BATCH_ROWS, Texts, around, has_any, marked, quick_texts, text_bytes

# Control codes need no quotes, but some are blanks, which do at the ends.
SPECIAL = marked(bytes([*range(32), *b'",']))


def csv_blocks(rows: pa.Table) -> Iterator[bytes | memoryview]:
    """The header and the lines of a table, some thousand at a time, as bytes for a file."""
    yield ",".join(csv_texts(pa.array(rows.column_names))).encode() + b"\n"
    for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
        parts: list[pa.Array | pa.Scalar] = []
        for column in batch.columns:
            texts = _texts(column)
            parts += [texts.values, pa.scalar(f"{texts.end},")]
        parts[-1] = pa.scalar(parts[-1].as_py().removesuffix(",") + "\n")
        yield text_bytes(pc.binary_join_element_wise(*parts, pa.scalar("")))


def _texts(column: pa.Array) -> Texts:
    texts = quick_texts(column)
    if texts is None or (pa.types.is_string(column.type) and not _is_plain(column)):
        return Texts(pa.array(csv_texts(column), pa.string()))
    return Texts(around(texts, "", texts.end, "")) if texts.values.null_count else texts


def _is_plain(column: pa.Array) -> bool:
    """Whether no text needs quotes."""
    if has_any(column, SPECIAL) or pc.any(pc.equal(pc.binary_length(column), 0)).as_py():
        return False
    return bool(pc.all(pc.equal(pc.utf8_trim_whitespace(column), column), min_count=0).as_py())
