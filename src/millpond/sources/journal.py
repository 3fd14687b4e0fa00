"""A journal: what a reader must remember across a crash, in JSON lines, on disk before anything relies on it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millpond.errors import StateError

Entry = dict[str, Any]

# Entries written after the last summary before the journal is summed up again.
ENTRIES_MAX = 256


class Journal:
    """Entries in the order they were written. `summarise` gives one entry that stands for all before it; the file is
    rewritten with it from time to time, so its length is bounded by what there is to remember."""

    def __init__(self, path: Path, summarise: Callable[[], Entry]) -> None:
        self._path, self._summarise = path, summarise
        self._count = 0

    def entries(self) -> list[Entry]:
        """What was written, the summary first; a torn last line was never relied on and is left out."""
        if not self._path.exists():
            return []
        lines = self._path.read_bytes().split(b"\n")
        whole = [json.loads(line) for line in lines[:-1] if line]
        if lines[-1]:
            self._replace(whole)
        self._count = len(whole)
        return whole

    def append(self, entry: Entry) -> None:
        """Write one entry; it is on disk when this returns."""
        if self._count >= ENTRIES_MAX:
            self._replace([self._summarise()])
            self._count = 1
        line = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
        with disk_errors(self._path), self._path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._count += 1

    def _replace(self, entries: list[Entry]) -> None:
        temporary = self._path.with_suffix(".new")
        with disk_errors(self._path):
            with temporary.open("wb") as file:
                file.writelines(json.dumps(entry, ensure_ascii=False).encode() + b"\n" for entry in entries)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
            sync(self._path.parent)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns a failing disk into MP805 that names the file."""
    try:
        yield
    except OSError as error:
        message = f"'{path}' cannot be written: {error.strerror or error}."
        hint = "Make room on the disk or make the folder writable, then start again; nothing was lost."
        raise StateError("MP805", message, hint=hint) from error


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
