"""The read-through cache in front of a table on a server: its rows by key, as they are in the newest version.

Every read by key goes through it, those of a change too: each one saves a question to the server. A commit replaces the
cached rows that it changes. What a reader of an older version reads is not cached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.contracts.table import Change
from millpond.schema import Schema
from millpond.tables.draft import State
from millpond.tables.index import Ids
from millpond.tables.lookup_keys import Keys, key_columns
from millpond.tables.read_through import Key, ReadThrough, gathered
from millpond.tables.remote.version_reader import RemoteVersion


class RemoteCache(ReadThrough):
    """The cache of one table, used by all readers, in any thread. Rows have all stored columns."""

    def __init__(self, size_max: int, ttl_s: float | None, clock: Callable[[], float], stored: Schema) -> None:
        super().__init__(size_max, ttl_s, clock)
        self._stored = stored
        # Rows of a server have no numbers: each one that is cached gets the next.
        self._next = 0
        self._current: RemoteVersion | None = None

    def locate(self, state: State, keys: Keys) -> Ids:
        """A reader uses the cache directly."""
        return state.locate(keys)

    def table(self, state: State, ids: Ids) -> pa.Table:
        return state.table(ids, range(len(state.schema)))

    def renew(self, version: Any, removed: Ids | None = None) -> None:
        """Called before a version is published: forget all rows, unless `follow` was called for it."""
        with self._lock:
            if self._current is not version:
                self._clear()
                self._current = version

    def follow(self, version: RemoteVersion, change: Change) -> None:
        """Called before a version is published: replace the cached rows that its commit changed."""
        gone = _values(key_columns(self._stored, change.removed)) if change.removed.num_rows else []
        new = _values(key_columns(self._stored, change.added)) if change.added.num_rows else []
        with self._lock:
            replaced = [place for place, key in enumerate(new) if key in self._by_key]
            for key in (*gone, *(new[place] for place in replaced)):
                self._forget_key(key)
            self._current = version
            if replaced:
                self._put([new[place] for place in replaced], change.added.take(pa.array(replaced)))

    def known(self, version: RemoteVersion, keys: Keys) -> tuple[pa.Table, Keys]:
        """The cached rows of some keys, and the other keys."""
        wanted = _values(keys)
        with self._lock:
            found = self._known(wanted) if self._current is version else [-1] * len(wanted)
            rows = gathered([self._by_row[row] for row in dict.fromkeys(found) if row >= 0], self._stored.arrow())
        missing = [place for place, row in enumerate(found) if row < 0]
        return rows, keys if len(missing) == len(wanted) else Keys(tuple(keys.taken(np.array(missing, dtype=np.int64))))

    def fill(self, version: RemoteVersion, rows: pa.Table) -> None:
        """Add rows of a version that were read from the server."""
        rows = rows.slice(max(0, rows.num_rows - self.size_max))
        if not rows.num_rows:
            return
        keys = _values(key_columns(self._stored, rows))
        with self._lock:
            # A commit may have happened in between.
            if self._current is version:
                for key in keys:
                    self._forget_key(key)
                self._put(keys, rows)

    def _put(self, keys: list[Key], rows: pa.Table) -> None:
        block = rows.combine_chunks().to_batches()[0]
        numbers = range(self._next, self._next + len(keys))
        self._next += len(keys)
        self._keep(dict(zip(keys, numbers, strict=True)), block, self._stored.arrow())


def _values(keys: Keys) -> list[Key]:
    return list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
