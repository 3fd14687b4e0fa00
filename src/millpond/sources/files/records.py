"""Records on their way through a feed: columns of those that are parsed, the text of those that are not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.contracts.source import HIDDEN_SOURCE, ORDER_MAJOR, ORDER_MINOR
from millpond.schema import Schema
from millpond.sources.files.reading import Piece
from millpond.sources.raw import HEADER, PROBLEM, SUSPECT, VALUE

PLACE = ((HIDDEN_SOURCE.name, pa.string()), (ORDER_MAJOR, pa.int64()), (ORDER_MINOR, pa.int64()))
TEXT = ((VALUE, pa.binary()), (HEADER, pa.int32()), (SUSPECT, pa.bool_()), (PROBLEM, pa.string()))


def feed_schema(columns: Schema) -> pa.Schema:
    """What a feed of text files holds."""
    return pa.schema([*((c.name, c.type) for c in columns), *PLACE, *TEXT])


def parsed_batch(piece: Piece, table: pa.Table, file: str, major: int, schema: pa.Schema) -> pa.RecordBatch:
    """A piece whose columns are known; `schema` is the feed's."""
    columns = [column.combine_chunks() for column in table.columns]
    nothing = [pa.nulls(len(piece), type_) for _, type_ in TEXT]
    arrays = [*columns, *place_columns(file, major, pa.array(piece.positions, pa.int64())), *nothing]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def parsed_rows(unparsed: pa.RecordBatch, table: pa.Table) -> pa.RecordBatch:
    """Rows of an unparsed batch whose columns are known by now."""
    first = table.num_columns
    places = unparsed.columns[first : first + len(PLACE)]
    nothing = [pa.nulls(unparsed.num_rows, type_) for _, type_ in TEXT]
    columns = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays([*columns, *places, *nothing], schema=unparsed.schema)


def with_line_end(unparsed: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with a line end on its last record too, which may have been the last of its file."""
    place = unparsed.schema.get_field_index(VALUE)
    last = unparsed.column(place)[-1].as_py()
    if last.endswith(b"\n"):
        return unparsed
    values = pa.concat_arrays([unparsed.column(place)[:-1], pa.array([last + b"\n"], pa.binary())])
    return unparsed.set_column(place, unparsed.schema.field(place), values)


def unparsed_batch(piece: Piece, file: str, major: int, header: int, schema: pa.Schema) -> pa.RecordBatch:
    """A piece as text; `schema` is the feed's."""
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
    """Where records are: their file, its arrival number, their positions."""
    rows = len(positions)
    return [pa.repeat(pa.scalar(file, pa.string()), rows), pa.repeat(pa.scalar(major, pa.int64()), rows), positions]
