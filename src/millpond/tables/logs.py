"""The log files of a folder, one after another: none of them may be missing or end before it did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from millpond.errors import Problem, StateError
from millpond.tables.checkpoint import MANIFEST, Manifest
from millpond.tables.disk import repair_hint
from millpond.tables.log import Record, damaged, first_sequence, read_log

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


def read_logs(folder: Path, manifest: Manifest, problems: list[Problem]) -> Iterator[Record]:
    """The commits since a checkpoint; MP804 when some of them are gone, MP808 in `problems` for one that a crash cut
    short."""
    numbers = log_numbers(folder, manifest.log) or [manifest.log]
    # A file made for commits that never came says nothing of where the log ends.
    written = max(
        (n for n in numbers if log_path(folder, n).exists() and log_path(folder, n).stat().st_size), default=0
    )
    after = manifest.sequence
    for number in range(manifest.log, numbers[-1] + 1):
        path = log_path(folder, number)
        if not path.exists():
            raise missing(path)
        if number > manifest.log:
            _check_joined(log_path(folder, number - 1), path, after)
        for record in read_log(path, after, last=number >= written, end=manifest.end, problems=problems):
            after = record.sequence
            if number == numbers[-1] and CONTINUED in record.header:
                raise missing(log_path(folder, record.header[CONTINUED]))
            yield record
    if after < manifest.end:
        raise damaged(path, path.stat().st_size, f"records {after + 1} to {manifest.end} are missing")


def _check_joined(before: Path, path: Path, after: int) -> None:
    """MP804 when a file ended later than it does now: the next one begins further on."""
    first = first_sequence(path)
    if first is not None and first > after + 1:
        raise damaged(before, before.stat().st_size, f"records {after + 1} to {first - 1} are missing")


def missing(path: Path) -> StateError:
    """MP804 for a log file that must be there."""
    message = f"The commit log {path} is missing."
    return StateError("MP804", message, hint=f"Nothing was changed. {repair_hint(path.parent)}")
