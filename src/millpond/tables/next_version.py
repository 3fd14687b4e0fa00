"""The next version of a heap: with rows removed and appended, or compacted into a new heap without dead rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import TableError
from millpond.schema import Schema
from millpond.tables.chunks import Chunks
from millpond.tables.hashing import Words, equal_rows
from millpond.tables.heap import Heap, Version, no_rows, with_runs
from millpond.tables.index import Ids, KeyIndex, Links, Slots, renumbered_run
from millpond.tables.lookup_keys import Keys
from millpond.tables.single_rows import Row, RowShape

_ROWS_MAX = int(np.iinfo(np.int32).max)

Filter = Callable[[Chunks, npt.NDArray[np.bool_]], Chunks]


class Addition:
    """Rows to append, as a batch, or a single one as Python values; `entries` are the slots of their keys, -1 for new
    keys."""

    def __init__(self, schema: Schema, batch: pa.RecordBatch | None, keys: Keys | None = None) -> None:
        self.schema = schema
        self.keys = keys
        self.count = 0 if batch is None else int(batch.num_rows)
        self.one: Row | None = None
        self.entries: Links | None = None
        self._batch = batch
        self._shape: RowShape | None = None

    @classmethod
    def of_one(cls, shape: RowShape, row: Row, key: Keys | None) -> Addition:
        made = cls(shape.schema, None, key)
        made._shape, made.one, made.count = shape, row, 1
        return made

    @property
    def batch(self) -> pa.RecordBatch:
        if self._batch is None:
            one = self.one
            self._batch = no_rows(self.schema) if self._shape is None or one is None else self._shape.batch([one])
        return self._batch


def entries_of(version: Version, keys: Keys) -> Links:
    """The slot of each key, also of removed rows; -1 for a key that never had one. For the writer only."""
    assert version.heap.index is not None
    slots = version.heap.index.slots
    if keys.looked_up is not None and keys.looked_up[0] is version:
        return keys.looked_up[1]
    if keys.one is not None:
        return np.array([_entry_of(version, slots, keys.one, keys.hash_of_one)], dtype=np.int32)
    found = slots.find(keys.hashes)
    open_ = np.flatnonzero(found >= 0)
    while len(open_):
        rows = slots.row[found[open_]].astype(np.int64)
        same = equal_rows(keys.at(open_), version.columns(rows, version.heap.key))
        open_ = open_[~same]
        found[open_] = slots.find_next(keys.hashes[open_], found[open_])
        open_ = open_[found[open_] >= 0]
    return found


def _entry_of(version: Version, slots: Slots, one: tuple[Any, ...], hash_: int) -> int:
    for slot in slots.find_one(hash_):
        if version.values(slots.row.item(slot), version.heap.key) == one:
            return slot
    return -1


@dataclass(frozen=True)
class Staged:
    """A prepared change: everything that can fail is done, but the heap is not changed yet."""

    version: Version
    removed: Ids
    hashes: Words | None = None
    entries: Links | None = None
    one: Row | None = None

    def apply(self) -> Version:
        """Apply it: mark removed rows and point keys to their new rows. Readers of older versions are not affected."""
        after, heap = self.version, self.version.heap
        heap.died[self.removed] = after.number
        if self.one is not None:
            after.tail.append(self.one)
            assert len(after.chunks) + len(after.tail) == after.rows
        if heap.index is not None and self.entries is not None and self.hashes is not None:
            new = np.arange(after.rows - len(self.entries), after.rows)
            _point(heap, heap.index, new, self.entries, self.hashes)
        return after


def staged(version: Version, removed: Ids, addition: Addition) -> Staged:
    """The next version: rows removed, rows appended."""
    heap, end = version.heap, version.rows + addition.count
    if end >= _ROWS_MAX:
        message = f"A memory table can have at most {_ROWS_MAX:,} rows."
        raise TableError("MP406", message, hint="Delete rows, or use another backend.")
    heap.reserve(end)
    number, live = version.number + 1, version.live - len(removed) + addition.count
    if not addition.count:
        return Staged(replace(version, number=number, live=live), removed)
    one = _alone(heap, addition)
    if one is not None:
        base = version.extended
        after = Version(number, heap, base.chunks, end, live, base.indexes, tail=base.tail)
    else:
        base = version.settled
        indexes = with_runs(base.indexes, addition.batch, version.rows)
        after = Version(number, heap, base.chunks.appended(addition.batch), end, live, indexes)
    if addition.keys is None:
        return Staged(after, removed, one=one)
    entries = entries_of(version, addition.keys) if addition.entries is None else addition.entries
    return Staged(after, removed, addition.keys.hashes, entries, one)


def _alone(heap: Heap, addition: Addition) -> Row | None:
    """The only new row as Python values, if possible; else None."""
    if addition.one is not None or addition.count != 1 or heap.shape is None:
        return addition.one
    return heap.shape.row_of(addition.batch)


def changed(version: Version, removed: Ids, addition: Addition) -> Version:
    """The next version of a heap without concurrent writers."""
    return staged(version, removed, addition).apply()


def compacted(version: Version, filtered: Filter = Chunks.filtered) -> tuple[Version, Ids]:
    """The same rows without the dead ones, in a new heap, and the new number of each old row (-1 for dead ones)."""
    version = version.settled
    ids = version.ids()
    numbers = np.full(version.rows, -1, dtype=np.int64)
    numbers[ids] = np.arange(len(ids))
    chunks = version.chunks if version.mask is None else filtered(version.chunks, version.mask)
    heap = Heap(version.schema, len(ids))
    if heap.index is not None:
        heap.index.add(_hashes_of(version, ids), numbers[ids])
    indexes = {c: tuple(renumbered_run(r, numbers) for r in runs) for c, runs in version.indexes.items()}
    return Version(version.number, heap, chunks, len(ids), len(ids), indexes), numbers


def _hashes_of(version: Version, ids: Ids) -> Words:
    """The key hashes of the rows of a version; a writer may be changing later ones concurrently."""
    index = version.heap.index
    assert index is not None
    # Read in this order: the slots cover all used entries, and the rows that they point to have their predecessors.
    used, slots = index.used, index.slots
    rows = slots.row[:used].astype(np.int64)
    before = version.heap.before
    newer = np.flatnonzero(rows >= version.rows)
    while len(newer):
        rows[newer] = before[rows[newer]]
        newer = newer[rows[newer] >= version.rows]
    known = rows >= 0
    hashes = np.empty(version.rows, dtype=np.uint64)
    hashes[rows[known]] = slots.hashes[:used][known]
    return hashes[ids]


def _point(heap: Heap, index: KeyIndex, new: Ids, entries: Links, hashes: Words) -> None:
    """Point the slots of keys to their new rows, and these to the previous rows."""
    if len(entries) == 1:
        _point_one(heap, index, new, entries.item(0), hashes)
        return
    known = entries >= 0
    if known.any():
        slots = entries[known]
        heap.before[new[known]] = index.slots.row[slots]
        index.slots.row[slots] = new[known]
    if not known.all():
        index.add(hashes[~known], new[~known])


def _point_one(heap: Heap, index: KeyIndex, new: Ids, entry: int, hashes: Words) -> None:
    if entry < 0:
        index.add(hashes, new)
        return
    row = new.item(0)
    heap.before[row] = index.slots.row.item(entry)
    index.slots.row[entry] = row
