"""The log files of a folder, one after another: none of them may be missing or end before it did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from millpond.disk import repair_hint
from millpond.errors import Problem, StateError
from millpond.tables.checkpoint import MANIFEST, Manifest
from millpond.tables.log import Record, cut_torn, damaged, first_sequence, is_torn, records

FIRST = 1
# The last record of a file that another one continues names it, so that its absence is noticed.
CONTINUED = "continued"


def log_path(folder: Path, number: int) -> Path:
    return folder / f"log-{number:06d}"


def log_numbers(folder: Path, first: int = FIRST) -> list[int]:
    """The numbers of the log files that are there, from one on."""
    numbers = (int(p.name[4:]) for p in folder.glob("log-*") if p.name[4:].isdigit())
    return sorted(n for n in numbers if n >= first)


def is_new(folder: Path) -> bool:
    """Whether nothing was ever committed in a folder that has no manifest; MP804 when there was, and the log does not
    tell all of it: a first log that is still there does."""
    numbers = log_numbers(folder)
    if numbers[:1] == [FIRST]:
        return not any(log_path(folder, n).stat().st_size for n in numbers)
    if not numbers and not any(folder.glob("table-*")):
        return True
    message = f"{folder / MANIFEST} is missing, and without it nothing tells which rows are which table's."
    raise StateError("MP804", message, hint="Restore the file from a copy, or start over with another --state.")


@dataclass(frozen=True)
class LogEnd:
    """Where the log ends too early, and why: after record `sequence`, at a byte of a file that may be missing."""

    path: Path
    offset: int
    sequence: int
    what: str
    # Cut short by a crash, which the next start puts right by itself.
    torn: bool = False


def read_logs(folder: Path, manifest: Manifest, problems: list[Problem]) -> Iterator[Record]:
    """The commits since a checkpoint; MP804 when some of them are gone, MP808 in `problems` for one that a crash cut
    short."""
    for found in walk(folder, manifest):
        if isinstance(found, Record):
            yield found
        elif found.torn:
            cut_torn(found.path, found.offset, problems)
        else:
            raise damaged(found.path, found.offset, found.what) if found.path.exists() else missing(found.path)


def walk(folder: Path, manifest: Manifest) -> Iterator[Record | LogEnd]:
    """The commits since a checkpoint, one in memory at a time; last, where the log ends if that is too early."""
    sequence, number = manifest.sequence, manifest.log
    last = max(log_numbers(folder, number), default=number)
    while number <= last:
        path = log_path(folder, number)
        if not path.exists():
            yield LogEnd(path, 0, sequence, "it is missing")
            return
        if number > manifest.log and (first := first_sequence(path) or 0) > sequence + 1:
            # A gap between two files is the fault of the one that ends too early.
            yield _cut_off(log_path(folder, number - 1), sequence, first - 1)
            return
        for offset, record in records(path):
            if isinstance(record, str):
                torn = sequence >= manifest.end and _is_last(folder, number) and is_torn(path, offset)
                yield LogEnd(path, offset, sequence, record, torn)
                return
            if record.sequence > sequence + 1:
                yield LogEnd(path, offset, sequence, f"record {sequence + 1} is missing")
                return
            last = max(last, record.header.get(CONTINUED, last))
            if record.sequence > sequence:
                sequence = record.sequence
                yield record
        number += 1
    if sequence < manifest.end:
        yield _cut_off(path, sequence, manifest.end)


def _cut_off(path: Path, sequence: int, end: int) -> LogEnd:
    return LogEnd(path, path.stat().st_size, sequence, f"records {sequence + 1} to {end} are missing")


def _is_last(folder: Path, number: int) -> bool:
    """Whether no later file has anything: one made for commits that never came says nothing of where the log ends."""
    return not any(log_path(folder, n).stat().st_size for n in log_numbers(folder, number + 1))


def missing(path: Path) -> StateError:
    """MP804 for a log file that must be there."""
    message = f"The commit log {path} is missing."
    return StateError("MP804", message, hint=f"Nothing was changed. {repair_hint(path.parent)}")
