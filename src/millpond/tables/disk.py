"""Writing so that it survives a crash: whole writes, syncs, renames, and what a refusing disk is called."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from millpond.errors import StateError
from millpond.faults import armed, reach

# The system takes at least so many pieces at once.
_PARTS_MAX = 16
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


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
        written = append_all(self._file, self.size, [data], half=self._half)
        self.checksum = zlib.crc32(data, self.checksum)
        self.size += written
        return written

    def flush(self) -> None:
        """Nothing is held back."""


def replace_file(path: Path, fill: Callable[[Writer], object], point: str, what: str) -> Writer:
    """Make a file anew, all or nothing, through a temporary one; MP805 with `what` when the disk refuses."""
    temporary = path.with_name(f"{path.name}.new")
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
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


def sync_folder(folder: Path) -> None:
    """Make names that were created, renamed or removed in a folder survive a crash."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refused(what: str, path: Path, error: OSError) -> StateError:
    """MP805 for a disk that is full or cannot be written."""
    if error.errno in _FULL:
        return StateError(
            "MP805", f"{what}: the disk of {path} is full.", hint="Make room and try again; nothing was lost."
        )
    hint = "Make it writable and try again; nothing was lost."
    return StateError("MP805", f"{what}: {path}: {error.strerror}.", hint=hint)


def repair_hint(folder: Path) -> str:
    """What to do about a damaged file of a folder of tables, which is the `store` of a state directory."""
    command = f"millpond doctor --repair --state {folder.parent}"
    return f"Restore the file from a copy, or keep what is sound with: {command}"
