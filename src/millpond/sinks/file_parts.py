"""Rows of a batch divided into files: by the values of columns, and by how many rows a file may have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import SinkError

# The folder of NULL, as other tools name it.
NULL = "__HIVE_DEFAULT_PARTITION__"
# Characters of a value that are written as they are in the name of a folder.
PLAIN = " !$&'()+,;@_-."


@dataclass(frozen=True)
class Part:
    """Rows of one file; `folder` is that of their partition, such as `day=2026-01-02/tier=GOLD/`, else empty."""

    folder: str
    rows: pa.Table


def divided(rows: pa.Table, by: Sequence[str], rows_max: int | None, there: Callable[[str], int]) -> Iterator[Part]:
    """The parts of rows in order; the first part of a partition fits behind the rows that are `there` already."""
    for folder, own in partitioned(rows, by):
        start = 0
        room = own.num_rows if rows_max is None else max(rows_max - there(folder), 1)
        while start < own.num_rows:
            yield Part(folder, own.slice(start, room))
            start += room
            room = rows_max or own.num_rows


def partitioned(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Rows by their partition, which the columns leave: the name of the folder has their values. Partitions come in the
    order of their first rows, rows keep theirs."""
    if not by or not rows.num_rows:
        if rows.num_rows:
            yield "", rows
        return
    places = [_place(rows, name) for name in by]
    texts = [_folders(rows.column_names[place], rows.column(place)) for place in places]
    folders = pc.binary_join_element_wise(*texts, "/").combine_chunks()
    codes = folders.dictionary_encode()
    others = rows.select([i for i in range(rows.num_columns) if i not in places])
    indices = codes.indices.to_numpy()
    order = np.argsort(indices, kind="stable")
    bounds = np.flatnonzero(np.diff(indices[order])) + 1
    for rows_of_one in np.split(order, bounds):
        yield f"{codes.dictionary[int(indices[rows_of_one[0]])].as_py()}/", others.take(pa.array(rows_of_one))


def _place(rows: pa.Table, name: str) -> int:
    lowered = [column.lower() for column in rows.column_names]
    if name.lower() not in lowered:
        raise SinkError("MP601", f"The rows have no column '{name}' to partition by.")
    return lowered.index(name.lower())


def _folders(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """`name=value` of each row."""
    values = column.dictionary_encode().combine_chunks() if not pa.types.is_dictionary(column.type) else column
    found = [f"{quote(name, safe=PLAIN)}={_text(value)}" for value in values.dictionary]
    nothing = f"{quote(name, safe=PLAIN)}={NULL}"
    texts = pa.array([*found, nothing], pa.string())
    return pa.chunked_array([texts.take(values.indices.fill_null(len(found)))])


def _text(value: pa.Scalar) -> str:
    text = "" if value.as_py() is None else str(value.cast(pa.string()).as_py())
    if not text:
        return NULL
    # A name of dots would lead to another folder.
    return quote(text, safe=PLAIN) if text.strip(".") else text.replace(".", "%2E")


def wrong_partition(by: Sequence[str], columns: Sequence[str]) -> str | None:
    """What is wrong with the columns to partition by, as a sentence."""
    lowered = [column.lower() for column in columns]
    for name in by:
        if name.lower() not in lowered:
            return f"There is no column '{name}' to partition by."
    if len({name.lower() for name in by}) < len(by):
        return "'partition.by' has a column twice."
    return "'partition.by' has all columns: nothing is left for the files." if len(by) == len(columns) else None
