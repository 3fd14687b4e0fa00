"""Events of transactions that are not committed here yet: held in memory, a large transaction in a file."""

from __future__ import annotations

import os
import pickle
from collections.abc import Container, Iterator
from io import BufferedWriter
from pathlib import Path
from typing import TypeAlias

from millpond.contracts.changes import Altered, Changes, Truncated
from millpond.contracts.feeder import Position
from millpond.disk import disk_errors, make_folder, open_private
from millpond.plan.source_catalog import short_hash

Kept: TypeAlias = Changes | Truncated | Altered

# Bytes of changes that are held in memory.
BYTES_MAX = 64 << 20


class ChangeSpool:
    """Stores events and returns them in order; its file belongs to this process and is deleted when it is closed."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder, self._path = folder, folder / f"changes-{short_hash(key)}.bin"
        self._held: list[Kept] = []
        self._bytes = 0
        self._file: BufferedWriter | None = None
        self._tables: set[str] = set()
        self.rows = 0
        # The position after the last complete transaction, and whether another one has begun.
        self.position: Position | None = None
        self.is_open = False

    def add(self, event: Kept) -> None:
        """Add an event of a transaction that has not ended."""
        self.is_open = True
        self._tables.add(event.table)
        self._held.append(event)
        if isinstance(event, Changes):
            self.rows += event.rows.num_rows
            self._bytes += event.rows.nbytes
        if self._bytes >= BYTES_MAX:
            self._write()

    def end(self, position: Position) -> None:
        """Called when the transaction has ended."""
        self.is_open, self.position = False, position

    def has_any(self, tables: Container[str]) -> bool:
        """Whether there is an event of one of these tables."""
        return any(table in tables for table in self._tables)

    def _write(self) -> None:
        with disk_errors(self._path):
            if self._file is None:
                make_folder(self._folder)
                self._file = os.fdopen(open_private(self._path), "wb")
            for event in self._held:
                pickle.dump(event, self._file, protocol=5)
        self._held, self._bytes = [], 0

    def events(self) -> Iterator[Kept]:
        """All events, in their order."""
        if self._file is not None:
            self._file.flush()
            with self._path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                while file.tell() < size:
                    # Safe to unpickle: this process wrote the file itself.
                    event: Kept = pickle.load(file)
                    yield event
        yield from self._held

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)
