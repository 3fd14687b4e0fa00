"""Writing so that it survives a crash: whole writes, syncs, renames, and what a refusing disk is called."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from millpond.errors import StateError
from millpond.tables.faults import armed, reach

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def append_all(file: int, offset: int, parts: Sequence[Any], *, half: str = "") -> int:
    """Write all parts at an offset and return their size; `half` names a point at which only half is written."""
    if half and armed(half):
        whole = b"".join(bytes(p) for p in parts)
        os.pwrite(file, whole[: len(whole) // 2], offset)
        reach(half)
    written = 0
    for part in parts:
        view = memoryview(part).cast("B")
        while len(view):
            count = os.pwrite(file, view, offset + written)
            written += count
            view = view[count:]
    return written


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
