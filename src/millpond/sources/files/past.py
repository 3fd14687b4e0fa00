"""Files read again from their beginning, up to where a stream over them is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.source import ORDER_MAJOR, ORDER_MINOR, Past
from millpond.sources.files.following import LIVE_ROWS, FileStream, continues
from millpond.sources.files.looking import Where
from millpond.sources.files.positions import Fate, Position, Positions, Seen
from millpond.sources.past import given, gone, unread_rows

# Behind every record of a file.
END = 2**63 - 1


def read_past(past: Past) -> Iterator[pa.Table]:
    """The records, file by file in the order of their arrival."""
    positions = Positions()
    entries = given(past)
    for entry in entries:
        positions.restore(entry["files"])
    files = _files(past, positions)
    bounds = _bounds([position for position, _ in files], unread_rows(past, entries, (ORDER_MAJOR, ORDER_MINOR)))
    if not files:
        return
    # Its batches are parts that fit on the driver, whatever those of the stream are.
    values = {**past.spec.values, "max.rows.per.batch": LIVE_ROWS}
    reader = FileStream(replace(past.spec, values=values), past.own)
    for file, records in reader.all_of([seen for _, seen in files], past.spark):
        yield _up_to(records, bounds)
        file.unlink()
    if {p.path: p.major for p in reader.positions()} != {p.path: p.major for p, _ in files}:
        read = {p.path for p in reader.positions()}
        missed = next((p.path for p, _ in files if p.path not in read), files[0][0].path)
        raise gone(past, f"'{missed}' cannot be read")


def _files(past: Past, positions: Positions) -> list[tuple[Position, Seen]]:
    """The files that were read, by arrival; MP815 where one of them is gone or has another content."""
    here = {seen.path: seen for seen in positions.settle(Where.of(past.spec).look())}
    known = sorted(positions.all(), key=lambda position: position.major)
    for position in known:
        if position.path not in here:
            raise gone(past, f"'{position.path}' is no longer there")
        if positions.fate(here[position.path])[0] is Fate.REWRITTEN:
            raise gone(past, f"'{position.path}' was rewritten since it was read")
    for number, position in enumerate(known):
        # A file that is read again from its start gets another arrival number.
        if position.major != number:
            raise gone(past, f"'{position.path}', or a file before it, was rewritten after it had been read")
    return [(position, here[position.path]) for position in known]


def _bounds(positions: list[Position], unread: Iterator[pa.Table]) -> dict[int, int]:
    """How far each file, by its arrival number, is in batches that are done."""
    bounds = {position.major: _end(position) for position in positions}
    for rows in unread:
        first = rows.group_by(ORDER_MAJOR).aggregate([(ORDER_MINOR, "min")])
        for major, minor in zip(first[ORDER_MAJOR].to_pylist(), first[f"{ORDER_MINOR}_min"].to_pylist(), strict=True):
            bounds[major] = min(bounds.get(major, 0), minor)
    return bounds


def _end(position: Position) -> int:
    """Where the stream goes on in a file; a row that has become longer since is read again, and so is not counted."""
    if position.done:
        return END
    return position.unended if position.unended >= 0 and continues(position) else position.position


def _up_to(records: pa.Table, bounds: Mapping[int, int]) -> pa.Table:
    """The records before the bound of their file."""
    majors = pa.array(list(bounds), pa.int64())
    ends = pa.array(list(bounds.values()), pa.int64()).take(pc.index_in(records[ORDER_MAJOR].combine_chunks(), majors))
    return records.filter(pc.less(records[ORDER_MINOR].combine_chunks(), ends))
