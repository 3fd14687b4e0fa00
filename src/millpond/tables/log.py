"""The commit log: one checksummed record per commit, written and synced before anything of it is visible."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.errors import Problem, Severity, StateError
from millpond.faults import reach
from millpond.tables.disk import append_all, cut, refused, repair_hint, sync_folder

# magic, sequence number, bytes of JSON, bytes of payload, checksum of both, checksum of this header
_HEADER = struct.Struct("<4sQIQII")
_MAGIC = b"MPr1"
# A crash leaves zeros or nothing where the end of a record should be; a flipped byte leaves something else.
_END = b"MPe1"


@dataclass(frozen=True)
class Record:
    """One commit: what happened as JSON, rows as Arrow streams."""

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
        """Write and sync one record, or leave the log as it was and raise MP805."""
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
        """Cut off what was half written; if even that fails it is tried again before the next record."""
        try:
            cut(self._file, self._end)
            self._dirty = False
        except OSError:
            self._dirty = True


def new_log(path: Path, sequence: int) -> Log:
    """An empty log file that survives a crash from now on."""
    log = Log(path, sequence)
    reach("log.rotate.created")
    try:
        sync_folder(path.parent)
    except OSError as error:
        raise refused("The commit log cannot be created", path, error) from error
    reach("log.rotate.synced")
    return log


def encode(sequence: int, header: Mapping[str, Any], blobs: Sequence[Any]) -> list[Any]:
    """A record's bytes, in pieces."""
    sizes = [len(memoryview(b).cast("B")) for b in blobs]
    text = json.dumps({**header, "blobs": sizes}, separators=(",", ":")).encode()
    checksum = zlib.crc32(text)
    for blob in blobs:
        checksum = zlib.crc32(blob, checksum)
    head = _HEADER.pack(_MAGIC, sequence, len(text), sum(sizes), checksum, 0)
    head = _HEADER.pack(_MAGIC, sequence, len(text), sum(sizes), checksum, zlib.crc32(head[:-4]))
    return [head, text, *blobs, _END]


def read_log(path: Path, after: int, *, last: bool, end: int, problems: list[Problem]) -> Iterator[Record]:
    """The records after a sequence number. A torn end of the last file is cut off and reported (MP808), unless it is
    that of a record up to `end`, which are known to have been whole; any other damage is MP804 with its offset."""
    try:
        data = memoryview(path.read_bytes())
    except OSError as error:
        raise StateError("MP804", f"The commit log {path} cannot be read: {error.strerror}.") from error
    offset = 0
    while offset < len(data):
        found = decode(data, offset)
        if isinstance(found, str):
            if not last or after < end or not is_torn(data, offset):
                raise damaged(path, offset, found)
            _cut_torn(path, offset, len(data), problems)
            return
        record, offset = found
        if record.sequence <= after:
            continue
        if record.sequence != after + 1:
            raise damaged(path, offset, f"record {after + 1} is missing")
        after = record.sequence
        yield record


def decode(data: memoryview, offset: int) -> tuple[Record, int] | str:
    """The record at an offset and where the next begins, or what is wrong with it."""
    if len(data) - offset < _HEADER.size:
        return "the record's header is cut short"
    magic, sequence, text_size, blob_size, checksum, head_checksum = _HEADER.unpack_from(data, offset)
    if magic != _MAGIC or zlib.crc32(data[offset : offset + _HEADER.size - 4]) != head_checksum:
        return "the record's header fails its checksum"
    start = offset + _HEADER.size
    end = start + text_size + blob_size
    if end + len(_END) > len(data):
        return "the record is cut short"
    if zlib.crc32(data[start:end]) != checksum or data[end : end + len(_END)] != _END:
        return "the record fails its checksum"
    header = json.loads(bytes(data[start : start + text_size]))
    place = start + text_size
    blobs = []
    for size in header.pop("blobs"):
        blobs.append(data[place : place + size])
        place += size
    return Record(sequence, header, tuple(blobs)), end + len(_END)


def is_torn(data: memoryview, offset: int) -> bool:
    """Whether a bad record is what a crash leaves: cut short, or ending in zeros, and nothing sound behind it."""
    if _sound_record_after(data, offset + 1):
        return False
    if len(data) - offset < _HEADER.size:
        return True
    head = data[offset : offset + _HEADER.size]
    if zlib.crc32(head[:-4]) == _HEADER.unpack(head)[5] and head[:4] == _MAGIC:
        _, _, text_size, blob_size, _, _ = _HEADER.unpack(head)
        end = offset + _HEADER.size + text_size + blob_size
        return end + len(_END) > len(data) or bytes(data[end : end + len(_END)]) == bytes(len(_END))
    return not any(head)


def _sound_record_after(data: memoryview, offset: int) -> bool:
    rest = bytes(data[offset:])
    place = rest.find(_MAGIC)
    while place >= 0:
        if not isinstance(decode(data, offset + place), str):
            return True
        place = rest.find(_MAGIC, place + 1)
    return False


def first_sequence(path: Path) -> int | None:
    """The number of a file's first record; None when it has none that is sound."""
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
    if len(head) < _HEADER.size or zlib.crc32(head[:-4]) != _HEADER.unpack(head)[5]:
        return None
    return int(_HEADER.unpack(head)[1])


def damaged(path: Path, offset: int, what: str) -> StateError:
    """MP804 for a log that is not as it was written."""
    message = f"The commit log {path} is damaged at byte {offset}: {what}."
    return StateError("MP804", message, hint=f"Nothing was read from it. {repair_hint(path.parent)}")


def _cut_torn(path: Path, offset: int, size: int, problems: list[Problem]) -> None:
    reach("log.cut.begin")
    what = f"its {size - offset} bytes were removed"
    message = f"The last commit in {path.name} was cut short by a crash at byte {offset}; {what}."
    try:
        with path.open("r+b") as file:
            cut(file.fileno(), offset)
    except OSError as error:
        raise refused("The torn end of the commit log cannot be removed", path, error) from error
    hint = "It had not been confirmed to anyone; a flow sends it again."
    problems.append(Problem("MP808", message, hint=hint, severity=Severity.WARNING))
