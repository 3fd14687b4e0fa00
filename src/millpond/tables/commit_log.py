"""The commit log: one record with a checksum per commit, written and synced before the commit becomes visible."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from millpond.disk import append_all, cut, refused, repair_hint, sync_folder
from millpond.errors import Problem, Severity, StateError
from millpond.faults import reach
from millpond.tables.checkpoint import MANIFEST, Manifest

# magic, sequence number, bytes of JSON, bytes of payload, checksum of both, checksum of this header
_HEADER = struct.Struct("<4sQIQII")
_MAGIC = b"MPr1"
# A crash during a write leaves zeros or nothing at the end of a record; other bytes there are damage.
_END = b"MPe1"


@dataclass(frozen=True)
class Record:
    """One commit: a header as JSON, and rows as Arrow streams."""

    sequence: int
    header: Mapping[str, Any]
    blobs: tuple[memoryview | bytes, ...] = ()


class Log:
    """The end of the log, for appending. Not thread-safe: the store's commit lock guards it."""

    def __init__(self, path: Path, sequence: int) -> None:
        self.path = path
        self.sequence = sequence
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._end = os.fstat(self._file).st_size
        except OSError as error:
            raise refused("The commit log cannot be opened", path, error) from error
        self._dirty = False

    @property
    def nbytes(self) -> int:
        return self._end

    def append(self, header: Mapping[str, Any], blobs: Sequence[Any]) -> None:
        """Write and sync one record, or leave the log unchanged and raise MP805."""
        parts = encode(self.sequence + 1, header, blobs)
        reach("log.append.begin")
        try:
            if self._dirty:
                cut(self._file, self._end)
            self._dirty = True
            written = append_all(self._file, self._end, parts, half="log.append.half")
            reach("log.append.written")
            os.fdatasync(self._file)
            reach("log.append.synced")
        except OSError as error:
            self._restore()
            raise refused("The commit cannot be written", self.path, error) from error
        self._dirty = False
        self._end += written
        self.sequence += 1

    def close(self) -> None:
        os.close(self._file)

    def _restore(self) -> None:
        """Truncate a record that was written in part; if that fails, it is retried before the next record."""
        try:
            cut(self._file, self._end)
            self._dirty = False
        except OSError:
            self._dirty = True


def new_log(path: Path, sequence: int) -> Log:
    """Create an empty log file, durably."""
    log = Log(path, sequence)
    reach("log.rotate.created")
    try:
        sync_folder(path.parent)
    except OSError as error:
        raise refused("The commit log cannot be created", path, error) from error
    reach("log.rotate.synced")
    return log


def encode(sequence: int, header: Mapping[str, Any], blobs: Sequence[Any]) -> list[Any]:
    """The bytes of a record as a list of buffers; a blob may itself be a list of buffers."""
    sizes = [size_of(blob) for blob in blobs]
    pieces = [piece for blob in blobs for piece in (blob if isinstance(blob, list) else (blob,))]
    text = json.dumps({**header, "blobs": sizes}, separators=(",", ":")).encode()
    checksum = zlib.crc32(text)
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    head = _HEADER.pack(_MAGIC, sequence, len(text), sum(sizes), checksum, 0)
    head = _HEADER.pack(_MAGIC, sequence, len(text), sum(sizes), checksum, zlib.crc32(head[:-4]))
    return [head, text, *pieces, _END]


def size_of(blob: Any) -> int:
    """The size of a blob, or of all its buffers."""
    return sum(map(len, blob)) if isinstance(blob, list) else len(blob)


def records(path: Path) -> Iterator[tuple[int, Record | str]]:
    """The records of a file with their offsets, one in memory at a time. If a record is damaged, the last item
    describes the damage."""
    try:
        with path.open("rb") as file:
            offset, size = 0, os.fstat(file.fileno()).st_size
            while offset < size:
                data = _record_bytes(file, offset)
                found = decode(data, 0)
                yield offset, found if isinstance(found, str) else found[0]
                if isinstance(found, str):
                    return
                offset += len(data)
    except OSError as error:
        message = f"The commit log {path} cannot be read: {error.strerror}."
        raise StateError("MP804", message, hint=repair_hint(path.parent)) from error


def _record_bytes(file: BinaryIO, offset: int) -> memoryview:
    """The bytes of the record at an offset, or fewer if the file ends before."""
    file.seek(offset)
    head = file.read(_HEADER.size)
    if not _is_head(head):
        return memoryview(head)
    _, _, text_size, blob_size, _, _ = _HEADER.unpack(head)
    file.seek(offset)
    return memoryview(file.read(_HEADER.size + text_size + blob_size + len(_END)))


def _is_head(head: bytes | memoryview) -> bool:
    if len(head) < _HEADER.size:
        return False
    magic, *_, checksum = _HEADER.unpack(head)
    return bool(magic == _MAGIC and zlib.crc32(head[:-4]) == checksum)


def decode(data: memoryview, offset: int) -> tuple[Record, int] | str:
    """The record at an offset and the offset of the next one, or a description of its damage."""
    if len(data) - offset < _HEADER.size:
        return "the record's header is incomplete"
    magic, sequence, text_size, blob_size, checksum, head_checksum = _HEADER.unpack_from(data, offset)
    if magic != _MAGIC or zlib.crc32(data[offset : offset + _HEADER.size - 4]) != head_checksum:
        return "the checksum of the record's header does not match"
    start = offset + _HEADER.size
    end = start + text_size + blob_size
    if end + len(_END) > len(data):
        return "the record is incomplete"
    if zlib.crc32(data[start:end]) != checksum or data[end : end + len(_END)] != _END:
        return "the checksum of the record does not match"
    header = json.loads(bytes(data[start : start + text_size]))
    place = start + text_size
    blobs = []
    for size in header.pop("blobs"):
        blobs.append(data[place : place + size])
        place += size
    return Record(sequence, header, tuple(blobs)), end + len(_END)


def is_torn(path: Path, offset: int) -> bool:
    """Whether a bad record is the result of a crash: incomplete or ending in zeros, and no valid record after it."""
    data = memoryview(path.read_bytes())
    if _valid_record_after(data, offset + 1):
        return False
    head = data[offset : offset + _HEADER.size]
    if len(head) < _HEADER.size:
        return True
    if _is_head(head):
        _, _, text_size, blob_size, _, _ = _HEADER.unpack(head)
        end = offset + _HEADER.size + text_size + blob_size
        return end + len(_END) > len(data) or bytes(data[end : end + len(_END)]) == bytes(len(_END))
    return not any(head)


def _valid_record_after(data: memoryview, offset: int) -> bool:
    rest = bytes(data[offset:])
    place = rest.find(_MAGIC)
    while place >= 0:
        if not isinstance(decode(data, offset + place), str):
            return True
        place = rest.find(_MAGIC, place + 1)
    return False


def first_sequence(path: Path) -> int | None:
    """The number of a file's first record; None if it has no valid one."""
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
    return int(_HEADER.unpack(head)[1]) if _is_head(head) else None


def damaged(path: Path, offset: int, what: str) -> StateError:
    """MP804 for a damaged log."""
    message = f"The commit log {path} is damaged at byte {offset}: {what}."
    return StateError("MP804", message, hint=f"Nothing was read from it. {repair_hint(path.parent)}")


def cut_torn(path: Path, offset: int, problems: list[Problem]) -> None:
    """Remove an incomplete last record, which a crash left, with a warning (MP808)."""
    reach("log.cut.begin")
    what = f"its {path.stat().st_size - offset} bytes were removed"
    message = f"The last commit in {path.name} is incomplete after a crash, at byte {offset}; {what}."
    try:
        with path.open("r+b") as file:
            cut(file.fileno(), offset)
    except OSError as error:
        raise refused("The incomplete end of the commit log cannot be removed", path, error) from error
    hint = "The commit had not been confirmed; a flow repeats it."
    problems.append(Problem("MP808", message, hint=hint, severity=Severity.WARNING))


FIRST = 1
# The last record of a file refers to the next one, so that a missing file is detected.
CONTINUED = "continued"


def log_path(folder: Path, number: int) -> Path:
    return folder / f"log-{number:06d}"


def log_numbers(folder: Path, first: int = FIRST) -> list[int]:
    """The numbers of the existing log files, starting at `first`."""
    numbers = (int(p.name[4:]) for p in folder.glob("log-*") if p.name[4:].isdigit())
    return sorted(n for n in numbers if n >= first)


def is_new(folder: Path) -> bool:
    """Whether a folder without manifest is new, or its log still begins with the first commit, so that the log alone is
    enough; MP804 if not."""
    numbers = log_numbers(folder)
    if numbers[:1] == [FIRST]:
        return not any(log_path(folder, n).stat().st_size for n in numbers)
    if not numbers and not any(folder.glob("table-*")):
        return True
    message = f"{folder / MANIFEST} is missing, and the tables cannot be read without it."
    raise StateError("MP804", message, hint="Restore the file from a copy, or start again with another --state.")


@dataclass(frozen=True)
class LogEnd:
    """Where and why the log ends too early: after record `sequence`, at an offset of a file, which may be missing."""

    path: Path
    offset: int
    sequence: int
    what: str
    # Left incomplete by a crash, which the next start repairs by itself.
    torn: bool = False


def read_logs(folder: Path, manifest: Manifest, problems: list[Problem]) -> Iterator[Record]:
    """The commits since a checkpoint; MP804 if some are missing, MP808 in `problems` for one that a crash left
    incomplete."""
    for found in walk(folder, manifest):
        if isinstance(found, Record):
            yield found
        elif found.torn:
            cut_torn(found.path, found.offset, problems)
        else:
            raise damaged(found.path, found.offset, found.what) if found.path.exists() else missing(found.path)


def walk(folder: Path, manifest: Manifest) -> Iterator[Record | LogEnd]:
    """The commits since a checkpoint, one in memory at a time; the last item is a LogEnd if the log ends too early."""
    sequence, number = manifest.sequence, manifest.log
    last = max(log_numbers(folder, number), default=number)
    while number <= last:
        path = log_path(folder, number)
        if not path.exists():
            yield LogEnd(path, 0, sequence, "it is missing")
            return
        if number > manifest.log and (first := first_sequence(path) or 0) > sequence + 1:
            # A gap between two files is reported for the one that ends too early.
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
    """Whether all later files are empty: a file that was created for commits that never happened does not count."""
    return not any(log_path(folder, n).stat().st_size for n in log_numbers(folder, number + 1))


def missing(path: Path) -> StateError:
    """MP804 for a missing log file."""
    message = f"The commit log {path} is missing."
    return StateError("MP804", message, hint=f"Nothing was changed. {repair_hint(path.parent)}")
