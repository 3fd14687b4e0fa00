"""The recent changes of a table, up to a bound, for refreshing views and for reading older versions."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.contracts.table import Change
from millpond.tables.draft import Base
from millpond.tables.heap import Heap
from millpond.tables.index import Ids

COMMITS_MAX = 1024
ROWS_MAX = 200_000


@dataclass(frozen=True)
class Entry:
    """One commit as row numbers, which stay valid until the heap is compacted: `first` to `end` were added."""

    number: int
    removed: Ids
    first: int
    end: int
    live: int

    @property
    def size(self) -> int:
        return len(self.removed) + self.end - self.first


class History:
    """Entries of the newest heap, and the changes before it as rows. One writer; readers copy the deque first."""

    def __init__(self) -> None:
        self._entries: deque[Entry | Change] = deque()
        self._rows = 0
        self._start: Entry | None = None

    def start(self, version: Base) -> None:
        """Called with the first version of a heap, of which only the numbers are stored, so that its rows can be
        freed."""
        self._start = Entry(version.number, np.empty(0, dtype=np.int64), version.rows, version.rows, version.live)

    def add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._rows += entry.size
        while self._entries and (self._rows > ROWS_MAX or len(self._entries) > COMMITS_MAX):
            self._rows -= _size(self._entries.popleft())

    def changes_since(self, number: int, newest: Base) -> tuple[Change, ...] | None:
        """The changes of the commits after a version, oldest first; None if some are no longer stored."""
        wanted = [
            _as_change(e, newest) for e in list(self._entries) if _number(e) > number and _number(e) <= newest.number
        ]
        if len(wanted) != newest.number - number:
            return None
        return tuple(wanted)

    def version(self, number: int, newest: Base) -> Base | None:
        """An older version of the newest heap, rebuilt from its entry."""
        if number == newest.number:
            return newest
        # A reader may have a version that is older than the last compaction.
        for entry in (self._start, *list(self._entries)):
            if isinstance(entry, Entry) and entry.number == number < newest.number:
                return newest.at(number, entry.end, entry.live)
        return None

    def detach(self, newest: Base) -> None:
        """Called before compaction: convert entries to rows, because row numbers become invalid."""
        self._entries = deque(_as_change(e, newest) for e in self._entries)


def _number(entry: Entry | Change) -> int:
    return entry.number if isinstance(entry, Entry) else entry.version


def _size(entry: Entry | Change) -> int:
    return entry.size if isinstance(entry, Entry) else entry.removed.num_rows + entry.added.num_rows


def _as_change(entry: Entry | Change, newest: Base) -> Change:
    if isinstance(entry, Change):
        return entry
    positions = range(len(newest.schema))
    removed: pa.Table = newest.table(entry.removed, positions)
    return Change(entry.number, removed, newest.table(np.arange(entry.first, entry.end), positions))


def renumbered(rows: Ids, heap: Heap, newest: Heap) -> Ids:
    """Row numbers of an older heap in the newest one; -1 for rows that a compaction in between dropped."""
    while heap is not newest:
        assert heap.successor is not None
        heap, numbers = heap.successor
        rows = np.where(rows >= 0, numbers[rows], -1)
    return rows
