"""A read-through cache in front of a table: rows that were looked up by key, evicting the least recently used.

It is valid for the newest version of the table only; readers of another version bypass it. A commit removes what it
changed before its version becomes visible, so a row is never older than the version that is read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.tables.draft import State
from millpond.tables.index import Ids
from millpond.tables.lookup_keys import Keys

SIZE_MAX = 10_000
# Rows stay in the block in which they were read; a block is copied when only this share of its rows is still used.
_BLOCK_SHARE = 4

Key = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Entry:
    """A cached row: its key, its number in the table, and the position of its values."""

    key: Key
    row: int
    block: pa.RecordBatch
    place: int
    since: float


class ReadThrough:
    """The cache of one table, used by all readers, in any thread."""

    def __init__(self, size_max: int, ttl_s: float | None, clock: Callable[[], float]) -> None:
        self.size_max = size_max
        self.ttl_s = ttl_s
        self.hits = self.misses = self.evictions = 0
        self._clock = clock
        self._lock = threading.Lock()
        # Ordered by use. The same entries by row number, which identifies a row within one version.
        self._by_key: OrderedDict[Key, Entry] = OrderedDict()
        self._by_row: dict[int, Entry] = {}
        self._version: State | None = None
        self._block_rows = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def is_for(self, state: State) -> bool:
        """Whether its rows are those of this state."""
        return state is self._version

    def renew(self, version: State, removed: Ids | None) -> None:
        """Called before a version is published: drop the removed rows, or all rows if None."""
        with self._lock:
            if removed is None:
                self._clear()
            else:
                self._forget(removed.tolist())
            self._version = version

    def locate(self, state: State, keys: Keys) -> Ids:
        """The row of each key, or -1, as in the state; rows that had to be read from it are cached."""
        wanted: list[Key] = list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
        with self._lock:
            found = self._known(wanted) if self.is_for(state) else [-1] * len(wanted)
        ids = np.array(found, dtype=np.int64)
        missing = np.flatnonzero(ids < 0)
        if len(missing):
            ids[missing] = state.locate(Keys(keys.at(missing)))
            self._fill(state, {wanted[i]: int(ids[i]) for i in missing if ids[i] >= 0})
        return ids

    def table(self, state: State, ids: Ids) -> pa.Table:
        """All columns of some rows, in the order of `ids`."""
        with self._lock:
            entries = [self._by_row.get(row) for row in ids.tolist()] if self.is_for(state) else [None]
        known = [entry for entry in entries if entry is not None]
        if len(known) < len(ids):
            return state.table(ids, range(len(state.schema)))
        return gathered(known, state.schema.arrow())

    def _known(self, wanted: Sequence[Key]) -> list[int]:
        found = []
        oldest = None if self.ttl_s is None else self._clock() - self.ttl_s
        for key in wanted:
            entry = self._by_key.get(key)
            if entry is not None and oldest is not None and entry.since <= oldest:
                self._forget([entry.row])
                self.evictions += 1
                entry = None
            if entry is None:
                self.misses += 1
            else:
                self.hits += 1
                self._by_key.move_to_end(key)
            found.append(-1 if entry is None else entry.row)
        return found

    def _fill(self, state: State, rows: Mapping[Key, int]) -> None:
        """Add rows to the cache, only the last ones if there are more than fit."""
        if not rows or not self.is_for(state):
            return
        kept = list(rows.items())[-self.size_max :]
        table = state.table(np.array([row for _, row in kept], dtype=np.int64), range(len(state.schema)))
        block = table.combine_chunks().to_batches()[0]
        with self._lock:
            # A commit may have happened in between.
            if self.is_for(state):
                self._keep(dict(kept), block, state.schema.arrow())

    def _keep(self, rows: Mapping[Key, int], block: pa.RecordBatch, schema: pa.Schema) -> None:
        """Add the rows of a block under their keys and numbers; the least recently used go."""
        now = self._clock()
        for place, (key, row) in enumerate(rows.items()):
            self._by_key[key] = self._by_row[row] = Entry(key, row, block, place, now)
            self._by_key.move_to_end(key)
        self._block_rows += block.num_rows
        while len(self._by_key) > self.size_max:
            _, entry = self._by_key.popitem(last=False)
            self._by_row.pop(entry.row, None)
            self.evictions += 1
        self._tidy(schema)

    def _tidy(self, schema: pa.Schema) -> None:
        """Free blocks whose rows are mostly no longer cached."""
        if self._block_rows <= max(_BLOCK_SHARE * len(self._by_key), self.size_max):
            return
        entries = list(self._by_key.values())
        block = gathered(entries, schema).combine_chunks().to_batches()[0]
        for place, old in enumerate(entries):
            self._by_key[old.key] = self._by_row[old.row] = Entry(old.key, old.row, block, place, old.since)
        self._block_rows = block.num_rows

    def _forget(self, rows: Iterable[int]) -> None:
        for row in rows:
            entry = self._by_row.pop(row, None)
            if entry is not None:
                del self._by_key[entry.key]

    def _forget_key(self, key: Key) -> None:
        entry = self._by_key.pop(key, None)
        if entry is not None:
            self._by_row.pop(entry.row, None)

    def _clear(self) -> None:
        self._by_key.clear()
        self._by_row.clear()
        self._block_rows = 0


def gathered(entries: Sequence[Entry], schema: pa.Schema) -> pa.Table:
    """The rows of entries, in their order."""
    if not entries:
        return schema.empty_table()
    blocks: dict[int, tuple[pa.RecordBatch, list[int], list[int]]] = {}
    for number, entry in enumerate(entries):
        _, places, numbers = blocks.setdefault(id(entry.block), (entry.block, [], []))
        places.append(entry.place)
        numbers.append(number)
    parts = [pa.Table.from_batches([block.take(pa.array(places))]) for block, places, _ in blocks.values()]
    if len(parts) == 1:
        return parts[0]
    order = np.empty(len(entries), dtype=np.int64)
    order[[number for *_, numbers in blocks.values() for number in numbers]] = np.arange(len(entries))
    return pa.concat_tables(parts).combine_chunks().take(pa.array(order))
