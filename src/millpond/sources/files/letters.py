"""Records of files that were put aside: their bytes found again in the files, and sent again as records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millpond.contracts.source import HIDDEN_OFFSET, HIDDEN_SOURCE
from millpond.errors import SourceError
from millpond.sources.ddl import table_ddl
from millpond.sources.files.contents import Contents, TextContents
from millpond.sources.files.positions import Position, begins_alike
from millpond.sources.files.reading import BLANKS, Reading, Tail, pieces
from millpond.sources.files.records import PLACE, TEXT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LETTER = ("raw", "partition", "position")


def originals(contents: Contents, read: Sequence[Position], records: pa.Table) -> list[bytes | None]:
    """The bytes of records in files that are still as they were; `read` is how far each file was read."""
    known = {position.path: position for position in read}
    places = list(zip(records[HIDDEN_SOURCE.name].to_pylist(), records[HIDDEN_OFFSET.name].to_pylist(), strict=True))
    found: dict[tuple[str, int], bytes] = {}
    for path in dict.fromkeys(path for path, _ in places):
        position = known.get(path)
        if isinstance(contents, TextContents) and position is not None:
            wanted = np.array(sorted(offset for other, offset in places if other == path))
            found |= {(path, offset): text for offset, text in _texts(contents, position, wanted)}
    return [found.get(place) for place in places]


def _texts(contents: TextContents, file: Position, wanted: np.ndarray) -> Iterator[tuple[int, bytes]]:
    """The records of a file that start at these positions; none when it is no longer the file that was read."""
    path = Path(file.path)
    try:
        if not begins_alike(file, file.path):
            return
        # An array's first element is found behind its bracket, which is at the file's start.
        start = 0 if file.layout in ("array", "object") else int(wanted[0])
        for piece in pieces(path, Reading(contents.form, file.layout, start, Tail.TAKE)):
            for row in np.flatnonzero(np.isin(piece.positions, wanted)):
                yield int(piece.positions[row]), piece.values[int(row)].as_py().rstrip(BLANKS)
            if piece.end > wanted[-1]:
                return
    except (OSError, EOFError, UnicodeError):
        return


def again(contents: Contents, read: Sequence[Position], spark: SparkSession, letters: pa.Table) -> DataFrame:
    """Letters as records of the file each came from; a CSV row needs its file's header, which is remembered."""
    if not isinstance(contents, TextContents):
        message = "A row of a Parquet file cannot be sent again: there are no bytes to read it from."
        raise SourceError("MP512", message, hint="Write it into a new file beside the others.")
    files = {position.major: position for position in read}
    columns = (None,) * (len(contents.schema) - len(PLACE) - len(TEXT))
    rows = []
    for raw, partition, place in zip(*(letters[n].to_pylist() for n in LETTER), strict=True):
        major = int(partition)
        path = files[major].path if major in files else None
        rows.append((*columns, path, major, int(place), raw or b"", _header(contents, files, major), True, None))
    return contents.records(spark.createDataFrame(rows, table_ddl(contents.schema)), text=True)


def _header(contents: TextContents, files: dict[int, Position], major: int) -> int:
    """The number of a file's header; of a file that is forgotten, the only one there is."""
    if contents.form.name != "csv" or not contents.form.header:
        return 0
    if major in files:
        return files[major].header
    if len(contents.headers) == 1:
        return 0
    message = f"The header of file number {major} is not known any more."
    raise SourceError("MP512", message, hint="Write the row into a new file, below its header.")
