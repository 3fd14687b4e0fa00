"""Writing so that it survives a crash and only its owner can read it: syncs, renames, private files, a full disk."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millpond.errors import StateError
from millpond.faults import armed, reach

# The system takes at least so many pieces at once.
_PARTS_MAX = 16
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# What a state directory holds is data of the app's user: nobody else may read it.
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


def append_all(file: int, offset: int, parts: Sequence[Any], *, half: str = "") -> int:
    """Write all parts at an offset and return their size; `half` names a point at which only half is written."""
    if half and armed(half):
        whole = b"".join(bytes(p) for p in parts)
        os.pwrite(file, whole[: len(whole) // 2], offset)
        reach(half)
    written, views = 0, [view for view in (memoryview(part).cast("B") for part in parts) if len(view)]
    while views:
        count = os.pwritev(file, views[:_PARTS_MAX], offset + written)
        written += count
        while views and count >= len(views[0]):
            count -= len(views.pop(0))
        if count:
            views[0] = views[0][count:]
    return written


class Writer:
    """The end of a new file, as Arrow writes to it, with the checksum of what was written."""

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
        """Write nothing any more: whoever holds this may still want to end the file when it is forgotten."""
        self._file = -1

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Nothing is held back."""


def open_private(path: Path) -> int:
    """A descriptor of a new, empty file that only its owner can read."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)


def touch_private(path: Path) -> None:
    """Make an empty file that only its owner can read, unless it is there; MP805 when the disk refuses."""
    with disk_errors(path):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE))


def write_private(path: Path, data: bytes) -> None:
    """Write a new file, in a folder that is made if need be, and sync it; MP805 when the disk refuses."""
    make_folder(path.parent)
    with disk_errors(path):
        file = open_private(path)
        try:
            append_all(file, 0, [data])
            os.fsync(file)
        finally:
            os.close(file)


def make_folder(path: Path) -> Path:
    """Make a folder of the state directory, private to its owner, with those above it that are missing; MP805 when the
    disk refuses."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    with disk_errors(path):
        for folder in reversed(missing):
            folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            sync_folder(folder.parent)
    return path


def replace_file(path: Path, fill: Callable[[Writer], object], point: str, what: str) -> Writer:
    """Make a file anew, all or nothing, through a temporary one; MP805 with `what` when the disk refuses."""
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
    """Shorten a file, for good."""
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
    """Turns what the disk refuses inside into MP805 that names the file."""
    try:
        yield
    except OSError as error:
        raise refused("The state cannot be written", path, error) from error


def refused(what: str, path: Path, error: OSError) -> StateError:
    """MP805 for a disk that is full or cannot be written."""
    if error.errno in _FULL:
        return StateError(
            "MP805", f"{what}: the disk of {path} is full.", hint="Make room and try again; nothing was lost."
        )
    hint = "Make it writable and try again; nothing was lost."
    return StateError("MP805", f"{what}: {path}: {error.strerror or error}.", hint=hint)


def repair_hint(folder: Path) -> str:
    """What to do about a damaged file of a folder of tables, which is the `store` of a state directory."""
    command = f"millpond doctor --repair --state {folder.parent}"
    return f"Restore the file from a copy, or keep what is sound with: {command}"
