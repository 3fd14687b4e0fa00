"""Rejected records of files: their original bytes, found in the files, and their replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from millpond.contracts.source import HIDDEN_OFFSET, HIDDEN_SOURCE
from millpond.errors import SourceError
from millpond.sources.files.contents import Contents, TextContents
from millpond.sources.files.feed_records import PLACE, TEXT
from millpond.sources.files.file_positions import FilePosition, begins_alike
from millpond.sources.records.text_reader import BLANKS, ReadSpec, Tail, pieces

LETTER = ("raw", "partition", "position")


def originals(contents: Contents, read: Sequence[FilePosition], records: pa.Table) -> list[bytes | None]:
    """The original bytes of records, from files that have not changed; `read` is how far each file was read."""
    known = {position.path: position for position in read}
    places = list(zip(records[HIDDEN_SOURCE.name].to_pylist(), records[HIDDEN_OFFSET.name].to_pylist(), strict=True))
    found: dict[tuple[str, int], bytes] = {}
    for path in dict.fromkeys(path for path, _ in places):
        position = known.get(path)
        if isinstance(contents, TextContents) and position is not None:
            wanted = np.array(sorted(offset for other, offset in places if other == path))
            found |= {(path, offset): text for offset, text in _texts(contents, position, wanted)}
    return [found.get(place) for place in places]


def _texts(contents: TextContents, file: FilePosition, wanted: np.ndarray) -> Iterator[tuple[int, bytes]]:
    """The records of a file that start at these positions; none if the file was replaced."""
    path = Path(file.path)
    try:
        if not begins_alike(file, file.path):
            return
        # The first element of an array comes after its bracket, which is at the start of the file.
        start = 0 if file.layout in ("array", "object") else int(wanted[0])
        for piece in pieces(path, ReadSpec(contents.form, file.layout, start, Tail.TAKE)):
            for row in np.flatnonzero(np.isin(piece.positions, wanted)):
                yield int(piece.positions[row]), piece.values[int(row)].as_py().rstrip(BLANKS)
            if piece.end > wanted[-1]:
                return
    except (OSError, EOFError, UnicodeError):
        return


def again(contents: Contents, read: Sequence[FilePosition], letters: pa.Table) -> pa.Table:
    """Dead letters as rows of their files; a CSV row requires the header of its file, which is stored."""
    if not isinstance(contents, TextContents):
        message = "A row of a Parquet file cannot be replayed: it has no bytes of its own."
        raise SourceError("MP512", message, hint="Write it into a new file beside the others.")
    files = {position.major: position for position in read}
    return rows_of_letters(
        contents,
        letters,
        lambda major: files[major].path if major in files else None,
        lambda major: _header(contents, files, major),
    )


def rows_of_letters(
    contents: TextContents, letters: pa.Table, path: Callable[[int], str | None], header: Callable[[int], int]
) -> pa.Table:
    """Dead letters as rows of text, by the path of their file and the number of its header."""
    places, *_ = zip(*PLACE, strict=True)
    texts, *_ = zip(*TEXT, strict=True)
    rows = []
    for raw, partition, place in zip(*(letters[n].to_pylist() for n in LETTER), strict=True):
        major = int(partition)
        text = (raw or b"", header(major), True, None)
        rows.append(dict(zip((*places, *texts), (path(major), major, int(place), *text), strict=True)))
    return pa.Table.from_pylist(rows, contents.schema)


def _header(contents: TextContents, files: dict[int, FilePosition], major: int) -> int:
    """The number of a file's header; for a forgotten file, the only one there is."""
    if contents.form.name != "csv" or not contents.form.header:
        return 0
    if major in files:
        return files[major].header
    if len(contents.headers) == 1:
        return 0
    message = f"The header of file number {major} is no longer known."
    raise SourceError("MP512", message, hint="Write the row into a new file, below its header.")
