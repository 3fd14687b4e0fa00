"""Files read again from their beginning, up to the position of a stream over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.feeder import Polled, RowForm
from millpond.contracts.source import ORDER_MAJOR, ORDER_MINOR, Past
from millpond.sources.files.feeder import FileFeeder, continues, files_of
from millpond.sources.files.file_positions import Fate, FilePosition, Positions, Seen
from millpond.sources.files.listing import Where

# After every record of a file.
END = 2**63 - 1


def read_past(past: Past) -> tuple[RowForm, Iterable[Polled]]:
    """The records, file by file in the order of their arrival."""
    positions = Positions()
    for position in past.positions:
        positions.restore(files_of(position))
    files = _files(past, positions)
    feeder = FileFeeder(past.spec)
    feeder.begin((), lambda parts: None)
    return feeder, _parts(past, feeder, files) if files else ()


def _parts(past: Past, feeder: FileFeeder, files: list[tuple[FilePosition, Seen]]) -> Iterator[Polled]:
    bounds = _bounds([position for position, _ in files], past.unread((ORDER_MAJOR, ORDER_MINOR)))
    read: dict[str, int] = {}
    for part in feeder.parts_of([seen for _, seen in files]):
        for file in files_of(part.position):
            read[file["path"]] = file["major"]
        yield replace(part, rows=_up_to(part.rows, bounds))
    if read != {position.path: position.major for position, _ in files}:
        missed = next((p.path for p, _ in files if p.path not in read), files[0][0].path)
        raise past.gone(f"'{missed}' cannot be read")


def _files(past: Past, positions: Positions) -> list[tuple[FilePosition, Seen]]:
    """The files that were read, in order of arrival; MP815 if one of them was removed or changed."""
    here = {seen.path: seen for seen in positions.settle(Where.of(past.spec).look())}
    known = sorted(positions.all(), key=lambda position: position.major)
    for position in known:
        if position.path not in here:
            raise past.gone(f"'{position.path}' no longer exists")
        if positions.fate(here[position.path])[0] is Fate.REWRITTEN:
            raise past.gone(f"'{position.path}' was rewritten since it was read")
    for number, position in enumerate(known):
        # A file that is read again from its start gets another arrival number.
        if position.major != number:
            raise past.gone(f"'{position.path}', or a file before it, was rewritten after it had been read")
    return [(position, here[position.path]) for position in known]


def _bounds(positions: list[FilePosition], unread: Iterator[pa.Table]) -> dict[int, int]:
    """How far each file, by its arrival number, is in committed batches."""
    bounds = {position.major: _end(position) for position in positions}
    for rows in unread:
        first = rows.group_by(ORDER_MAJOR).aggregate([(ORDER_MINOR, "min")])
        for major, minor in zip(first[ORDER_MAJOR].to_pylist(), first[f"{ORDER_MINOR}_min"].to_pylist(), strict=True):
            bounds[major] = min(bounds.get(major, 0), minor)
    return bounds


def _end(position: FilePosition) -> int:
    """Where the stream continues in a file; a row that has been continued since is read again, so it is not counted."""
    if position.done:
        return END
    return position.unended if position.unended >= 0 and continues(position) else position.position


def _up_to(rows: pa.RecordBatch, bounds: Mapping[int, int]) -> pa.RecordBatch:
    """The rows before the limit of their file."""
    majors = pa.array(list(bounds), pa.int64())
    ends = pa.array(list(bounds.values()), pa.int64()).take(pc.index_in(rows.column(ORDER_MAJOR), majors))
    return rows.filter(pc.less(rows.column(ORDER_MINOR), ends))
