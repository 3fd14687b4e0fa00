"""Records in a feed of text files: the columns of parsed ones, the text of the others."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from millpond.contracts.source import HIDDEN_SOURCE, ORDER_MAJOR, ORDER_MINOR
from millpond.schema import Schema
from millpond.sources.records.column_types import HEADER, PROBLEM, SUSPECT, VALUE
from millpond.sources.records.text_reader import Piece

PLACE = ((HIDDEN_SOURCE.name, pa.string()), (ORDER_MAJOR, pa.int64()), (ORDER_MINOR, pa.int64()))
# The column of file names is kept for the next piece if a piece has so many rows: not that of every small file.
KEPT_ROWS_MIN, KEPT_ROWS = 4_096, 32_768
TEXT = ((VALUE, pa.binary()), (HEADER, pa.int32()), (SUSPECT, pa.bool_()), (PROBLEM, pa.string()))


def feed_schema(columns: Schema) -> pa.Schema:
    """The columns of a feed of text files."""
    return pa.schema([*((c.name, c.type) for c in columns), *PLACE, *TEXT])


def parsed_batch(piece: Piece, table: pa.Table, file: str, major: int, schema: pa.Schema) -> pa.RecordBatch:
    """A parsed piece; `schema` is that of the feed."""
    columns = [column.combine_chunks() for column in table.columns]
    nothing = [pa.nulls(len(piece), type_) for _, type_ in TEXT]
    arrays = [*columns, *place_columns(file, major, pa.array(piece.positions, pa.int64())), *nothing]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def parsed_rows(unparsed: pa.RecordBatch, table: pa.Table) -> pa.RecordBatch:
    """The rows of an unparsed batch with the columns that were parsed later."""
    first = table.num_columns
    places = unparsed.columns[first : first + len(PLACE)]
    nothing = [pa.nulls(unparsed.num_rows, type_) for _, type_ in TEXT]
    columns = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays([*columns, *places, *nothing], schema=unparsed.schema)


def with_line_end(unparsed: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with a line end after its last record too, which may be the last of its file."""
    place = unparsed.schema.get_field_index(VALUE)
    last = unparsed.column(place)[-1].as_py()
    if last.endswith(b"\n"):
        return unparsed
    values = pa.concat_arrays([unparsed.column(place)[:-1], pa.array([last + b"\n"], pa.binary())])
    return unparsed.set_column(place, unparsed.schema.field(place), values)


def unparsed_batch(piece: Piece, file: str, major: int, header: int, schema: pa.Schema) -> pa.RecordBatch:
    """A piece as text; `schema` is that of the feed."""
    rows = len(piece)
    nothing = [pa.nulls(rows, schema.field(i).type) for i in range(len(schema) - len(PLACE) - len(TEXT))]
    text = [
        piece.values,
        pa.repeat(pa.scalar(header, pa.int32()), rows),
        pa.array(np.zeros(rows, bool) if piece.suspect is None else piece.suspect),
        pa.repeat(pa.scalar(piece.problem, pa.string()), rows),
    ]
    arrays = [*nothing, *place_columns(file, major, pa.array(piece.positions, pa.int64())), *text]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def place_columns(file: str, major: int, positions: pa.Array) -> list[pa.Array]:
    """The positions of records: their file, its arrival number, their offsets."""
    rows = len(positions)
    return [_repeated(file, rows), pa.repeat(pa.scalar(major, pa.int64()), rows), positions]


def _repeated(text: str, rows: int) -> pa.Array:
    """A column of one text; those of the pieces of a large file are slices of the same one."""
    if KEPT_ROWS_MIN <= rows <= KEPT_ROWS:
        return _kept_column(text).slice(0, rows)
    return pa.repeat(pa.scalar(text, pa.string()), rows)


@lru_cache(maxsize=2)
def _kept_column(text: str) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), KEPT_ROWS)
