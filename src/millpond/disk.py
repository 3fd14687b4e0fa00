"""Durable files: synced, replaced atomically, with a checksum, readable only by their owner."""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millpond.errors import StateError
from millpond.faults import armed, reach

# POSIX guarantees at least this many buffers per call (IOV_MAX).
_PARTS_MAX = 16
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# A state directory contains data of the app's user: no other user may read it.
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


def append_all(file: int, offset: int, parts: Sequence[Any], *, half: str = "") -> int:
    """Write all parts at an offset and return their size; `half` is a fault point at which only half is written."""
    if half and armed(half):
        whole = b"".join(bytes(p) for p in parts)
        os.pwrite(file, whole[: len(whole) // 2], offset)
        reach(half)
    written, views = 0, [view for view in (memoryview(part).cast("B") for part in parts) if len(view)]
    # The kernel may write less than it was given.
    while views:
        count = os.pwritev(file, views[:_PARTS_MAX], offset + written)
        written += count
        while views and count >= len(views[0]):
            count -= len(views.pop(0))
        if count:
            views[0] = views[0][count:]
    return written


class Writer:
    """A file object for Arrow that appends to a new file and computes the checksum of what was written."""

    closed = False

    def __init__(self, file: int, half: str = "") -> None:
        self._file = file
        self._half = half
        self.size = 0
        self.checksum = 0

    def write(self, data: Any) -> int:
        if self._file < 0:
            return len(data)
        written = append_all(self._file, self.size, [data], half=self._half)
        self.checksum = zlib.crc32(data, self.checksum)
        self.size += written
        return written

    def abandon(self) -> None:
        """Ignore further writes: Arrow's writer still writes a footer when it is garbage-collected, after the file is
        closed."""
        self._file = -1

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Required by Arrow; nothing is buffered."""


def open_private(path: Path) -> int:
    """Create an empty file that only its owner can read, and return its descriptor."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)


def open_beside(path: Path) -> int:
    """Create an empty file that those can read who can read its folder, and return its descriptor."""
    allowed = path.parent.stat().st_mode & 0o666
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE | allowed)


def touch_private(path: Path) -> None:
    """Create an empty file that only its owner can read, unless it exists; MP805 when that fails."""
    with disk_errors(path):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE))


def write_private(path: Path, data: bytes) -> None:
    """Write and sync a new file, creating its folder if necessary; MP805 when that fails."""
    make_folder(path.parent)
    with disk_errors(path):
        file = open_private(path)
        try:
            append_all(file, 0, [data])
            os.fsync(file)
        finally:
            os.close(file)


def make_folder(path: Path) -> Path:
    """Create a folder of the state directory, private to its owner, and its missing parents; MP805 when that fails."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    with disk_errors(path):
        for folder in reversed(missing):
            folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            sync_folder(folder.parent)
    return path


def replace_file(path: Path, fill: Callable[[Writer], object], point: str, what: str) -> Writer:
    """Replace a file atomically, through a temporary one; MP805 with `what` when that fails."""
    temporary = path.with_name(f"{path.name}.new")
    try:
        file = open_private(temporary)
        try:
            writer = Writer(file, half=f"{point}.half")
            fill(writer)
            reach(f"{point}.written")
            os.fsync(file)
        finally:
            os.close(file)
        reach(f"{point}.synced")
        os.replace(temporary, path)
        reach(f"{point}.renamed")
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise refused(what, path, error) from error
    return writer


def cut(file: int, size: int) -> None:
    """Truncate a file, durably."""
    os.ftruncate(file, size)
    os.fsync(file)


def sync_file(path: Path) -> None:
    """Make the content of a file survive a power cut."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Make names that were created, renamed or removed in a folder survive a crash."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raise MP805 with the file's name for an OSError inside."""
    try:
        yield
    except OSError as error:
        raise refused("The state cannot be written", path, error) from error


def refused(what: str, path: Path, error: OSError) -> StateError:
    """MP805 for a disk that is full or not writable."""
    if error.errno in _FULL:
        return StateError(
            "MP805", f"{what}: the disk of {path} is full.", hint="Free some space and try again; nothing was lost."
        )
    hint = "Make it writable and try again; nothing was lost."
    return StateError("MP805", f"{what}: {path}: {error.strerror or error}.", hint=hint)


def repair_hint(folder: Path) -> str:
    """The hint for a damaged file of the store, which is a folder of the state directory."""
    command = f"millpond doctor --repair --state {folder.parent}"
    return f"Restore the file from a copy, or keep the undamaged rows with: {command}"


CHECKSUM = "crc32"


def write_sealed(file: Path, value: Any) -> None:
    """Write a value to a file atomically, creating its folder if necessary. Not safe for two threads at once."""
    make_folder(file.parent)
    replace_file(file, lambda out: out.write(sealed(value)), "small", "The state cannot be written")


def sealed(value: Any) -> bytes:
    """A value as JSON with a checksum line, the content of a sealed file."""
    body = json.dumps(value, ensure_ascii=False).encode()
    return body + b"\n" + seal(body) + b"\n"


def seal(body: bytes) -> bytes:
    """The checksum of a line, as text."""
    return f"{CHECKSUM} {zlib.crc32(body):08x}".encode()


def read_sealed(file: Path, hint: str = "Restore it from a copy, or start again with another --state.") -> Any:
    """The value of a sealed file; FileNotFoundError when there is none, MP804 when its checksum does not match."""
    try:
        lines = file.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StateError("MP804", f"{file} cannot be read: {error.strerror}.", hint=hint) from error
    if len(lines) != 3 or lines[2] or lines[1] != seal(lines[0]):
        raise StateError("MP804", f"{file} is damaged: its checksum does not match.", hint=hint)
    return json.loads(lines[0])
