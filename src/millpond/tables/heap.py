"""Rows in memory: a heap that only grows, and the immutable versions that readers look at it through."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from millpond.errors import TableError
from millpond.schema import Schema
from millpond.tables.chunks import Chunks
from millpond.tables.hashing import Words, equal_rows, hash_columns, hash_key
from millpond.tables.hot import HotRows
from millpond.tables.index import (
    Ids,
    KeyIndex,
    Links,
    Run,
    Slots,
    distinct,
    in_row_order,
    renumbered_run,
    sorted_run,
    with_run,
)

# The version in which a row that is still there died.
ALIVE = np.iinfo(np.int64).max
_CAPACITY_MIN = 1024
# The keys of so many rows stay in the processor's cache; those of more are read in the order of memory.
_NEAR_ROWS = 50_000
_ROWS_MAX = int(np.iinfo(np.int32).max)

Indexes = Mapping[tuple[int, ...], tuple[Run, ...]]
Filter = Callable[[Chunks, npt.NDArray[np.bool_]], Chunks]


@dataclass(frozen=True)
class Keys:
    """Key values, one array per key column, of exactly the columns' types."""

    columns: tuple[pa.Array, ...]

    def __len__(self) -> int:
        return len(self.columns[0])

    @cached_property
    def one(self) -> tuple[Any, ...] | None:
        """The key as Python values, if it is only one and of texts, bytes and whole numbers: a quarter of the work."""
        if len(self) != 1:
            return None
        parts = tuple(column[0].as_py() for column in self.columns)
        return parts if all(type(part) in (str, bytes, int) for part in parts) else None

    @cached_property
    def hashes(self) -> Words:
        if self.one is not None:
            return np.array([hash_key(self.one)], dtype=np.uint64)
        return hash_columns(self.columns)

    def at(self, positions: Ids) -> tuple[pa.Array, ...]:
        """Some of the keys; positions ascend, each at most once."""
        return self.columns if len(positions) == len(self) else self.taken(positions)

    def taken(self, positions: Ids) -> tuple[pa.Array, ...]:
        """Some of the keys, in any order."""
        places = pa.array(positions)
        return tuple(column.take(places) for column in self.columns)


class Heap:
    """What the versions of a table share between two compactions. One writer; readers come in by a version, which
    hides what is newer than itself: rows from its `rows` on, and deaths after its `number`."""

    def __init__(self, schema: Schema, rows_expected: int = 0) -> None:
        capacity = max(_CAPACITY_MIN, rows_expected)
        self.schema = schema
        self.key = tuple(schema.position(name) for name in schema.key)
        self.died: Ids = np.full(capacity, ALIVE, dtype=np.int64)
        self.before: Links = np.full(capacity if self.key else 0, -1, dtype=np.int32)
        self.index = KeyIndex(rows_expected) if self.key else None
        self.successor: tuple[Heap, Ids] | None = None
        self.hot = HotRows()

    def reserve(self, rows: int) -> None:
        """Room for so many rows. A reader may go on with the arrays it took: they hold all that it may see."""
        if rows <= len(self.died):
            return
        capacity = max(rows, 2 * len(self.died))
        died = np.full(capacity, ALIVE, dtype=np.int64)
        died[: len(self.died)] = self.died
        if self.key:
            before = np.full(capacity, -1, dtype=np.int32)
            before[: len(self.before)] = self.before
            self.before = before
        self.died = died

    @property
    def nbytes(self) -> int:
        return self.died.nbytes + self.before.nbytes + (self.index.nbytes if self.index else 0)


@dataclass(frozen=True)
class Version:
    """A table as one commit left it. `live` of its first `rows` rows are there, the others are dead."""

    number: int
    heap: Heap
    chunks: Chunks
    rows: int
    live: int
    indexes: Indexes = field(default_factory=dict)
    # Rows that are there but must not be seen: those of a cache that have expired.
    hidden: npt.NDArray[np.bool_] | None = None

    @property
    def schema(self) -> Schema:
        return self.heap.schema

    @property
    def indexed_columns(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self.indexes)

    @cached_property
    def mask(self) -> npt.NDArray[np.bool_] | None:
        """Which rows are there; None when all are."""
        if self.live == self.rows:
            return None
        mask = self.heap.died[: self.rows] > self.number
        return mask if self.hidden is None else mask & ~self.hidden

    def there(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Which of some rows are there."""
        there = (ids < self.rows) & (self.heap.died[ids] > self.number)
        return there if self.hidden is None else there & ~self.hidden[ids]

    def ids(self) -> Ids:
        """All rows that are there, in the order of arrival."""
        return np.arange(self.rows) if self.mask is None else np.flatnonzero(self.mask)

    def all(self, positions: Sequence[int]) -> pa.Table:
        """Some columns of all rows."""
        return self.chunks.all(positions, self.mask)

    def table(self, ids: Ids, positions: Sequence[int]) -> pa.Table:
        """Some columns of some rows."""
        return self.chunks.table(ids, positions)

    def all_but(self, positions: Sequence[int], gone: npt.NDArray[np.bool_]) -> pa.Table:
        """Some columns of all rows but those marked."""
        return self.chunks.all(positions, ~gone if self.mask is None else self.mask & ~gone)

    def at(self, number: int, rows: int, live: int) -> Version:
        """An older version of the same heap."""
        return Version(number, self.heap, self.chunks.first(rows), rows, live, self.indexes)

    @property
    def nbytes(self) -> int:
        """The bytes in memory, those of the indexes included."""
        runs = sum(run.nbytes for each in self.indexes.values() for run in each)
        return self.chunks.nbytes + self.heap.nbytes + runs

    def narrowed(self, condition: exp.Expression, parameters: Sequence[Any]) -> Ids | None:
        """Reading every row is what a heap does best."""
        return None

    def locate(self, keys: Keys) -> Ids:
        """The row of each key, or -1."""
        index = self.heap.index
        assert index is not None
        if keys.one is not None:
            return np.array([self.locate_one(keys.one)], dtype=np.int64)
        slots = index.slots
        found = np.full(len(keys), -1, dtype=np.int64)
        entries = slots.find(keys.hashes)
        open_ = np.flatnonzero(entries >= 0)
        while len(open_):
            rows = self._visible(slots, entries.take(open_))
            same = self._have(rows, keys, open_)
            if len(open_) == len(keys) and same.all():
                return rows
            found[open_[same]] = rows[same]
            open_ = open_[~same]
            entries[open_] = slots.find_next(keys.hashes[open_], entries[open_])
            open_ = open_[entries[open_] >= 0]
        return found

    def locate_one(self, parts: tuple[Any, ...]) -> int:
        """The row of one key of texts, bytes and whole numbers, or -1."""
        assert self.heap.index is not None
        slots = self.heap.index.slots
        for slot in slots.find_one(hash_key(parts)):
            row = int(slots.row[slot])
            while row >= self.rows:
                row = int(self.heap.before[row])
            if row >= 0 and self.has(row) and self.chunks.values(row, self.heap.key) == parts:
                return row
        return -1

    def has(self, row: int) -> bool:
        """Whether one row is there."""
        if row >= self.rows or self.heap.died.item(row) <= self.number:
            return False
        return self.hidden is None or not self.hidden[row]

    def row(self, row: int) -> dict[str, Any]:
        """One row as Python values."""
        values = self.chunks.values(row, range(len(self.schema)))
        return dict(zip(self.schema.names, values, strict=True))

    def locate_by(self, columns: tuple[int, ...], keys: Keys) -> Ids | None:
        """All rows whose columns have one of the values, through an index; None when there is none."""
        runs = self.indexes.get(columns)
        if runs is None:
            return None
        hashes = np.sort(keys.hashes)
        hashes = hashes[np.append(True, hashes[1:] != hashes[:-1])] if len(hashes) else hashes
        rows = distinct(np.concatenate([np.empty(0, dtype=np.int64), *(run.find(hashes) for run in runs)]))
        rows = rows[self.there(rows)]
        # A hash may belong to several values: keep the rows whose values are among the keys.
        own = Keys(tuple(self.chunks.columns(rows, columns)))
        return rows[among(own, keys)]

    def indexed(self, columns: tuple[int, ...]) -> Version:
        """This version with one more index."""
        hashes = hash_columns(_contiguous(self.chunks.all(columns))) if self.rows else np.empty(0, dtype=np.uint64)
        run = sorted_run(hashes, 0)
        return replace(self, indexes={**self.indexes, columns: (run,)})

    def _have(self, rows: Ids, keys: Keys, positions: Ids) -> npt.NDArray[np.bool_]:
        """Which rows have the key at the same place of `positions`; row -1 has none."""
        if self.rows <= _NEAR_ROWS and rows.min() >= 0:
            return equal_rows(keys.at(positions), self.chunks.columns(rows, self.heap.key))
        same = np.zeros(len(rows), dtype=np.bool_)
        rows, places = in_row_order(rows)
        first = int(np.searchsorted(rows, 0))
        rows, places = rows[first:], places[first:]
        given = keys.taken(positions.take(places))
        same[places] = equal_rows(given, self.chunks.columns(rows, self.heap.key))
        return same

    def _visible(self, slots: Slots, entries: Links) -> Ids:
        """The row of each slot that this version sees, or -1."""
        rows = slots.row.take(entries).astype(np.int64)
        # Taken after the rows: a writer makes these arrays larger before it lets a slot point into the new part.
        before, died = self.heap.before, self.heap.died
        newer = np.flatnonzero(rows >= self.rows)
        while len(newer):
            rows[newer] = before[rows[newer]]
            newer = newer[rows[newer] >= self.rows]
        if self.live < self.rows:
            rows[(rows >= 0) & (died.take(rows, mode="wrap") <= self.number)] = -1
        if self.hidden is not None:
            rows[(rows >= 0) & self.hidden[rows]] = -1
        return rows


@dataclass(frozen=True)
class Addition:
    """Rows about to be appended: `entries` are the slots of their keys, -1 for keys that never had one."""

    batch: pa.RecordBatch
    keys: Keys | None = None
    entries: Links | None = None


def empty_version(schema: Schema, indexes: Sequence[tuple[str, ...]] = (), number: int = 0) -> Version:
    """A table without rows."""
    version = Version(number, Heap(schema), Chunks(schema.arrow()), 0, 0)
    for names in indexes:
        version = version.indexed(tuple(schema.position(name) for name in names))
    return version


def key_columns(schema: Schema, batch: pa.RecordBatch | pa.Table) -> Keys:
    """The keys of rows that have all columns of the schema."""
    return Keys(tuple(_contiguous(batch.select([schema.position(name) for name in schema.key]))))


def entries_of(version: Version, keys: Keys) -> Links:
    """The slot of each key, whether its row is there or not; -1 for a key that never had one. For the writer only."""
    assert version.heap.index is not None
    slots = version.heap.index.slots
    if keys.one is not None:
        return np.array([_entry_of(version, slots, keys.one)], dtype=np.int32)
    found = slots.find(keys.hashes)
    open_ = np.flatnonzero(found >= 0)
    while len(open_):
        rows = slots.row[found[open_]].astype(np.int64)
        same = equal_rows(keys.at(open_), version.chunks.columns(rows, version.heap.key))
        open_ = open_[~same]
        found[open_] = slots.find_next(keys.hashes[open_], found[open_])
        open_ = open_[found[open_] >= 0]
    return found


def _entry_of(version: Version, slots: Slots, one: tuple[Any, ...]) -> int:
    for slot in slots.find_one(hash_key(one)):
        if version.chunks.values(int(slots.row[slot]), version.heap.key) == one:
            return slot
    return -1


@dataclass(frozen=True)
class Staged:
    """A change with everything computed that could fail; nothing of it is in the heap yet."""

    version: Version
    removed: Ids
    hashes: Words | None
    entries: Links | None

    def apply(self) -> Version:
        """Let it happen: mark the dead and point keys to their new rows. Readers of older versions notice nothing."""
        after, heap = self.version, self.version.heap
        heap.died[self.removed] = after.number
        if heap.index is not None and self.entries is not None and self.hashes is not None:
            new = np.arange(after.rows - len(self.entries), after.rows)
            _point(heap, heap.index, new, self.entries, self.hashes)
        return after


def staged(version: Version, removed: Ids, addition: Addition) -> Staged:
    """The next version: rows removed, rows appended."""
    heap, batch = version.heap, addition.batch
    end = version.rows + batch.num_rows
    if end >= _ROWS_MAX:
        message = f"A memory table holds at most {_ROWS_MAX:,} rows."
        raise TableError("MP406", message, hint="Delete rows, or use another backend.")
    heap.reserve(end)
    live = version.live - len(removed) + batch.num_rows
    if not batch.num_rows:
        after = replace(version, number=version.number + 1, live=live)
        return Staged(after, removed, None, None)
    indexes = {c: with_run(runs, _run(batch, c, version.rows)) for c, runs in version.indexes.items()}
    after = Version(version.number + 1, heap, version.chunks.appended(batch), end, live, indexes)
    if addition.keys is None:
        return Staged(after, removed, None, None)
    entries = entries_of(version, addition.keys) if addition.entries is None else addition.entries
    return Staged(after, removed, addition.keys.hashes, entries)


def changed(version: Version, removed: Ids, addition: Addition) -> Version:
    """The next version of a heap that nobody else changes."""
    return staged(version, removed, addition).apply()


def compacted(version: Version, filtered: Filter = Chunks.filtered) -> tuple[Version, Ids]:
    """The same rows without the dead ones, in a new heap, and the new number of each old row (-1 for dead ones)."""
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
    """The key hashes of rows that are there in the newest version."""
    index = version.heap.index
    assert index is not None
    hashes = np.empty(version.rows, dtype=np.uint64)
    hashes[index.slots.row[: index.used]] = index.slots.hashes[: index.used]
    return hashes[ids]


def _point(heap: Heap, index: KeyIndex, new: Ids, entries: Links, hashes: Words) -> None:
    """Let the slots of keys point to their new rows, and these to the rows before them."""
    known = entries >= 0
    if known.any():
        slots = entries[known]
        heap.before[new[known]] = index.slots.row[slots]
        index.slots.row[slots] = new[known]
    if not known.all():
        index.add(hashes[~known], new[~known])


def _run(batch: pa.RecordBatch, columns: tuple[int, ...], first_row: int) -> Run:
    return sorted_run(hash_columns(_contiguous(batch.select(list(columns)))), first_row)


def _contiguous(rows: pa.RecordBatch | pa.Table) -> list[pa.Array]:
    return [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in rows.columns]


def among(rows: Keys, keys: Keys) -> npt.NDArray[np.bool_]:
    """Which rows have values that are among the keys; a NULL among the keys finds NULL."""
    order = np.argsort(keys.hashes)
    hashes = keys.hashes[order]
    found = np.zeros(len(rows), dtype=np.bool_)
    if not len(hashes):
        return found
    places = np.searchsorted(hashes, rows.hashes, side="left")
    open_ = np.flatnonzero(places < len(hashes))
    while len(open_):
        open_ = open_[hashes[places[open_]] == rows.hashes[open_]]
        same = equal_rows(rows.at(open_), keys.taken(order[places[open_]]))
        found[open_[same]] = True
        open_ = open_[~same]
        places[open_] += 1
        open_ = open_[places[open_] < len(hashes)]
    return found
