"""Raw records: the shape in which pieces of files wait in a feed until they are parsed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.sources.files.reading import Piece

# `header` numbers the column names of the CSV file that the record came from.
RAW_SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("source", pa.string()),
        ("major", pa.int64()),
        ("position", pa.int64()),
        ("header", pa.int32()),
        ("suspect", pa.bool_()),
        ("problem", pa.string()),
    ]
)


def raw_batch(piece: Piece, source: str, major: int, header: int) -> pa.RecordBatch:
    """A piece of a file as raw records."""
    rows = len(piece)
    suspect = np.zeros(rows, bool) if piece.suspect is None else piece.suspect
    columns = [
        piece.values,
        pa.repeat(pa.scalar(source, pa.string()), rows),
        pa.repeat(pa.scalar(major, pa.int64()), rows),
        pa.array(piece.positions, pa.int64()),
        pa.repeat(pa.scalar(header, pa.int32()), rows),
        pa.array(suspect),
        pa.repeat(pa.scalar(piece.problem, pa.string()), rows),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RAW_SCHEMA)
