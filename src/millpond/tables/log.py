"""The commit log: one checksummed record per commit, written and synced before anything of it is visible."""

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
    """A record's bytes, in pieces; a blob may itself be a list of pieces."""
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
    """The bytes of a blob, or of all its pieces."""
    return sum(map(len, blob)) if isinstance(blob, list) else len(blob)


def records(path: Path) -> Iterator[tuple[int, Record | str]]:
    """The records of a file and where each begins, one in memory at a time; the last is what is wrong with it when
    there is one that is not sound."""
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
    """The bytes of the record at an offset, as many of them as there are."""
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


def is_torn(path: Path, offset: int) -> bool:
    """Whether a bad record is what a crash leaves: cut short, or ending in zeros, and nothing sound behind it."""
    data = memoryview(path.read_bytes())
    if _sound_record_after(data, offset + 1):
        return False
    head = data[offset : offset + _HEADER.size]
    if len(head) < _HEADER.size:
        return True
    if _is_head(head):
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
    return int(_HEADER.unpack(head)[1]) if _is_head(head) else None


def damaged(path: Path, offset: int, what: str) -> StateError:
    """MP804 for a log that is not as it was written."""
    message = f"The commit log {path} is damaged at byte {offset}: {what}."
    return StateError("MP804", message, hint=f"Nothing was read from it. {repair_hint(path.parent)}")


def cut_torn(path: Path, offset: int, problems: list[Problem]) -> None:
    """Remove the end of a log that a crash cut short, and tell of it (MP808)."""
    reach("log.cut.begin")
    what = f"its {path.stat().st_size - offset} bytes were removed"
    message = f"The last commit in {path.name} was cut short by a crash at byte {offset}; {what}."
    try:
        with path.open("r+b") as file:
            cut(file.fileno(), offset)
    except OSError as error:
        raise refused("The torn end of the commit log cannot be removed", path, error) from error
    hint = "It had not been confirmed to anyone; a flow sends it again."
    problems.append(Problem("MP808", message, hint=hint, severity=Severity.WARNING))
