"""Rows in memory: an append-only heap, and the immutable versions through which readers see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from millpond.contracts.table import AggregateCall
from millpond.schema import Schema
from millpond.tables import hashing
from millpond.tables.chunks import Chunks, lazy, side_by_side
from millpond.tables.hashing import equal_rows
from millpond.tables.index import (
    Ids,
    KeyIndex,
    Links,
    Run,
    Slots,
    distinct,
    first_of_each,
    in_row_order,
    sorted_run,
    with_run,
)
from millpond.tables.lookup_keys import Keys, among, contiguous
from millpond.tables.single_rows import Row, shape_of

ROWS_MAX = 65_536


class HotRows:
    """A cache of recently read rows: row number and dict by key. It has two halves: entries that are not used while one
    half fills up are dropped with the other. The content of a row number never changes, so an entry is valid for every
    version that has the row."""

    def __init__(self) -> None:
        self._young: dict[Any, tuple[int, dict[str, Any]]] = {}
        self._old: dict[Any, tuple[int, dict[str, Any]]] = {}

    def get(self, key: Any) -> tuple[int, dict[str, Any]] | None:
        entry = self._young.get(key)
        if entry is None:
            entry = self._old.get(key)
            if entry is not None:
                self.put(key, *entry)
        return entry

    def put(self, key: Any, row: int, values: dict[str, Any]) -> None:
        if len(self._young) >= ROWS_MAX // 2:
            self._old, self._young = self._young, {}
        self._young[key] = (row, values)


# The version that removed a row which still exists.
ALIVE = np.iinfo(np.int64).max
_CAPACITY_MIN = 1024
_SPARE_SHARE = 4
# The keys of this many rows stay in the CPU cache; those of more rows are read in memory order.
_NEAR_ROWS = 50_000
# From this many keys on, a lookup first fetches rows and then compares their keys.
_MANY_KEYS = 1024
# The maximal number of single rows kept as Python values, and the approximate size of one in bytes.
TAIL_ROWS_MAX = 512
_VALUE_BYTES = 64

Indexes = Mapping[tuple[int, ...], tuple[Run, ...]]


class Heap:
    """The data that the versions of a table share between two compactions. There is one writer; readers access it
    through a version, which hides what is newer: rows from its `rows` on, and removals after its `number`."""

    def __init__(self, schema: Schema, rows_expected: int = 0) -> None:
        capacity = max(_CAPACITY_MIN, rows_expected)
        self.schema = schema
        self.key = tuple(schema.position(name) for name in schema.key)
        self.died: Ids = np.full(capacity, ALIVE, dtype=np.int64)
        self.before: Links = np.full(capacity if self.key else 0, -1, dtype=np.int32)
        self.index = KeyIndex(rows_expected) if self.key else None
        self.successor: tuple[Heap, Ids] | None = None
        self.hot = HotRows()
        self.shape = shape_of(schema)

    def reserve(self, rows: int) -> None:
        """Make room for this many rows. A reader may continue to use the arrays it has: they contain all that it may
        see."""
        if rows <= len(self.died):
            return
        # With spare room, so that a small change after a large load does not copy everything.
        capacity = rows + rows // _SPARE_SHARE
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
    """A table after one commit. `live` of its first `rows` rows exist, the others were removed.

    Chunks and indexes contain the first rows; rows that were added one by one since are in `tail`, a list to which
    later versions append. They are moved to chunks (settled) only when they are needed in Arrow."""

    number: int
    heap: Heap
    chunks: Chunks
    rows: int
    live: int
    indexes: Indexes = field(default_factory=dict)
    # Rows that exist but must not be visible: expired rows of a cache.
    hidden: npt.NDArray[np.bool_] | None = None
    tail: list[Row] = field(default_factory=list)

    @property
    def schema(self) -> Schema:
        return self.heap.schema

    @property
    def indexed_columns(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self.indexes)

    @lazy
    def mask(self) -> npt.NDArray[np.bool_] | None:
        """Which rows exist; None if all do."""
        if self.live == self.rows:
            return None
        mask = self.heap.died[: self.rows] > self.number
        return mask if self.hidden is None else mask & ~self.hidden

    def existing(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Which of some rows exist in this version."""
        there = (ids < self.rows) & (self.heap.died[ids] > self.number)
        return there if self.hidden is None else there & ~self.hidden[ids]

    def ids(self) -> Ids:
        """All existing rows, in order of arrival."""
        return np.arange(self.rows) if self.mask is None else np.flatnonzero(self.mask)

    def all(self, positions: Sequence[int]) -> pa.Table:
        """Some columns of all rows."""
        return self.settled.chunks.all(positions, self.mask)

    def table(self, ids: Ids, positions: Sequence[int]) -> pa.Table:
        """Some columns of some rows."""
        return self._chunks_with(ids).table(ids, positions)

    def columns(self, ids: Ids, positions: Sequence[int]) -> list[pa.Array]:
        """The same as arrays."""
        return self._chunks_with(ids).columns(ids, positions)

    def values(self, row: int, positions: Sequence[int]) -> Row:
        """Some columns of one row as Python values."""
        place = row - len(self.chunks)
        if place < 0:
            return self.chunks.values(row, positions)
        held = self.tail[place]
        return tuple([held[position] for position in positions])

    @property
    def settled(self) -> Version:
        """The same version with all rows in chunks and indexes."""
        return self if self.rows <= len(self.chunks) else self._settled

    @lazy
    def _settled(self) -> Version:
        shape, first = self.heap.shape, len(self.chunks)
        assert shape is not None
        batch = shape.batch(self.tail[: self.rows - first])
        chunks, indexes = self.chunks.appended(batch), with_runs(self.indexes, batch, first)
        return Version(self.number, self.heap, chunks, self.rows, self.live, indexes, self.hidden)

    @property
    def extended(self) -> Version:
        """The version to append one more row to, whose tail has room and has not been settled."""
        full = self.rows - len(self.chunks) >= TAIL_ROWS_MAX
        return self.settled if full or "_settled" in self.__dict__ else self

    def _chunks_with(self, ids: Ids) -> Chunks:
        """Chunks that have some rows."""
        needed = self.rows > len(self.chunks) and len(ids) and ids.max() >= len(self.chunks)
        return self.settled.chunks if needed else self.chunks

    def all_but(self, positions: Sequence[int], gone: npt.NDArray[np.bool_]) -> pa.Table:
        """Some columns of all rows except those in the mask."""
        return self.settled.chunks.all(positions, ~gone if self.mask is None else self.mask & ~gone)

    def at(self, number: int, rows: int, live: int) -> Version:
        """An older version of the same heap."""
        return Version(number, self.heap, self.chunks.first(rows), rows, live, self.indexes, tail=self.tail)

    @property
    def extent(self) -> int:
        """The numbers of all rows are below it."""
        return self.rows

    @property
    def nbytes(self) -> int:
        """The size in memory, including the indexes."""
        runs = sum(run.nbytes for each in self.indexes.values() for run in each)
        tail = max(0, self.rows - len(self.chunks)) * len(self.schema) * _VALUE_BYTES
        return self.chunks.nbytes + self.heap.nbytes + runs + tail

    def files(self) -> None:
        """None: the rows are in memory."""

    def aggregated(self, calls: Sequence[AggregateCall], condition: exp.Expression | None) -> None:
        """None: the rows are in memory."""

    def narrowed(self, condition: exp.Expression, parameters: Sequence[Any]) -> Ids | None:
        """None: a heap has no better way than reading every row."""
        return None

    def locate(self, keys: Keys) -> Ids:
        """The row of each key, or -1."""
        index = self.heap.index
        assert index is not None
        if keys.one is not None:
            slot, row = self._find_one(keys.one, keys.hash_of_one)
            if row >= 0:
                keys.looked_up = (self, np.array([slot], dtype=np.int32))
            return np.array([row], dtype=np.int64)
        slots = index.slots
        found = np.full(len(keys), -1, dtype=np.int64)
        entries = slots.find(keys.hashes)
        open_ = np.flatnonzero(entries >= 0)
        if not len(open_):
            keys.looked_up = (self, entries)
        while len(open_):
            rows = self._visible(slots, entries.take(open_))
            same = self._have(rows, keys, open_)
            if len(open_) == len(keys) and same.all():
                keys.looked_up = (self, entries)
                return rows
            found[open_[same]] = rows[same]
            open_ = open_[~same]
            entries[open_] = slots.find_next(keys.hashes[open_], entries[open_])
            open_ = open_[entries[open_] >= 0]
        return found

    def fetch(self, keys: Keys) -> tuple[Ids, pa.Table] | None:
        """The rows of many keys, each once, in one pass over the columns: rows are fetched by hash, then compared with
        the keys. None if another way is necessary: for few keys, or if a hash found a wrong or removed row."""
        index = self.heap.index
        if index is None or self.rows <= _NEAR_ROWS or len(keys) < _MANY_KEYS:
            return None
        slots = index.slots
        entries = slots.find(keys.hashes)
        there = np.flatnonzero(entries >= 0)
        rows = self._visible(slots, entries.take(there))
        if not len(rows) or rows.min() < 0:
            return None
        rows, places = in_row_order(rows)
        first = first_of_each(rows)
        ids, asked = rows[first], there.take(places)
        # The first function runs in this thread and may use threads itself; the others must not.
        table, given = side_by_side(
            (partial(self.table, ids, range(len(self.schema))), partial(keys.taken, asked[first])), len(ids)
        )
        stored = [table.column(position).chunk(0) for position in self.heap.key]
        if not equal_rows(given, stored).all() or not _same_as_before(keys, asked, first):
            return None
        return ids, table

    def locate_one(self, parts: tuple[Any, ...], hash_: int) -> int:
        """The row of one key of texts, bytes and whole numbers, or -1."""
        return self._find_one(parts, hash_)[1]

    def _find_one(self, parts: tuple[Any, ...], hash_: int) -> tuple[int, int]:
        """The same with the slot of the key."""
        assert self.heap.index is not None
        slots = self.heap.index.slots
        for slot in slots.find_one(hash_):
            row = slots.row.item(slot)
            while row >= self.rows:
                row = self.heap.before.item(row)
            if row >= 0 and self.has(row) and self.values(row, self.heap.key) == parts:
                return slot, row
        return -1, -1

    def has(self, row: int) -> bool:
        """Whether a row exists in this version."""
        if row >= self.rows or self.heap.died.item(row) <= self.number:
            return False
        return self.hidden is None or not self.hidden.item(row)

    def row(self, row: int) -> dict[str, Any]:
        """One row as Python values."""
        values = self.values(row, range(len(self.schema)))
        return dict(zip(self.schema.names, values, strict=True))

    def locate_by(self, columns: tuple[int, ...], keys: Keys) -> Ids | None:
        """All rows whose columns have one of the values, through an index; None if there is no index."""
        if columns not in self.indexes:
            return None
        runs = self.settled.indexes[columns]
        hashes = np.sort(keys.hashes)
        hashes = hashes[np.append(True, hashes[1:] != hashes[:-1])] if len(hashes) else hashes
        rows = distinct(np.concatenate([np.empty(0, dtype=np.int64), *(run.find(hashes) for run in runs)]))
        rows = rows[self.existing(rows)]
        # Different values may have the same hash, so keep only the rows whose values are among the keys.
        own = Keys(tuple(self.columns(rows, columns)))
        return rows[among(own, keys)]

    def indexed(self, columns: tuple[int, ...]) -> Version:
        """This version with one more index."""
        whole = self.settled
        hashes = (
            hashing.hash_columns(contiguous(whole.chunks.all(columns))) if self.rows else np.empty(0, dtype=np.uint64)
        )
        run = sorted_run(hashes, 0)
        return replace(whole, indexes={**whole.indexes, columns: (run,)})

    def _have(self, rows: Ids, keys: Keys, positions: Ids) -> npt.NDArray[np.bool_]:
        """Which rows have the key at the same index of `positions`; row -1 has none."""
        if self.rows <= _NEAR_ROWS and rows.min() >= 0:
            return equal_rows(keys.at(positions), self.columns(rows, self.heap.key))
        same = np.zeros(len(rows), dtype=np.bool_)
        rows, places = in_row_order(rows)
        first = int(np.searchsorted(rows, 0))
        rows, places = rows[first:], places[first:]
        asked = places if len(positions) == len(keys) else positions.take(places)
        # The first function runs in this thread and may use threads itself; the others must not.
        stored, given = side_by_side(
            (partial(self.columns, rows, self.heap.key), partial(keys.taken, asked)), len(rows)
        )
        same[places] = equal_rows(given, stored)
        return same

    def _visible(self, slots: Slots, entries: Links) -> Ids:
        """The row of each slot that this version sees, or -1."""
        rows = slots.row.take(entries).astype(np.int64)
        # Read after the rows: a writer enlarges these arrays before it lets a slot point into the new part.
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


def _same_as_before(keys: Keys, asked: Ids, first: npt.NDArray[np.bool_]) -> bool:
    """Whether each key that found the row of the key before it is the same as that key."""
    again = np.flatnonzero(~first)
    if not len(again):
        return True
    return bool(equal_rows(keys.taken(asked.take(again)), keys.taken(asked.take(again - 1))).all())


def no_rows(schema: Schema) -> pa.RecordBatch:
    """A batch without rows."""
    return pa.RecordBatch.from_arrays([pa.array([], c.type) for c in schema], schema=schema.arrow())


def empty_version(schema: Schema, indexes: Sequence[tuple[str, ...]] = (), number: int = 0) -> Version:
    """A table without rows."""
    version = Version(number, Heap(schema), Chunks(schema.arrow()), 0, 0)
    for names in indexes:
        version = version.indexed(tuple(schema.position(name) for name in names))
    return version


def with_runs(indexes: Indexes, batch: pa.RecordBatch, first_row: int) -> Indexes:
    """The indexes with the rows of a batch."""
    return {columns: with_run(runs, _run(batch, columns, first_row)) for columns, runs in indexes.items()}


def _run(batch: pa.RecordBatch, columns: tuple[int, ...], first_row: int) -> Run:
    return sorted_run(hashing.hash_columns(contiguous(batch.select(list(columns)))), first_row)
