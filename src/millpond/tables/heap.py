"""Rows in memory: a heap that only grows, and the immutable versions that readers look at it through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from millpond.schema import Schema
from millpond.tables import hashing
from millpond.tables.chunks import Chunks
from millpond.tables.hashing import equal_rows
from millpond.tables.hot import HotRows
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
from millpond.tables.keys import Keys, among, contiguous
from millpond.tables.lazy import lazy
from millpond.tables.shape import Row, shape_of
from millpond.tables.sides import side_by_side

# The version in which a row that is still there died.
ALIVE = np.iinfo(np.int64).max
_CAPACITY_MIN = 1024
_SPARE_SHARE = 4
# The keys of so many rows stay in the processor's cache; those of more are read in the order of memory.
_NEAR_ROWS = 50_000
# From so many keys on a lookup fetches first and compares afterwards.
_MANY_KEYS = 1024
# So many rows that came one by one are kept as Python values, which take about so many bytes each.
TAIL_ROWS_MAX = 512
_VALUE_BYTES = 64

Indexes = Mapping[tuple[int, ...], tuple[Run, ...]]


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
        self.shape = shape_of(schema)

    def reserve(self, rows: int) -> None:
        """Room for so many rows. A reader may go on with the arrays it took: they hold all that it may see."""
        if rows <= len(self.died):
            return
        # With spare room, so that the small change after a large load does not copy everything.
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
    """A table as one commit left it. `live` of its first `rows` rows are there, the others are dead.

    Chunks and indexes have the first of the rows; those that came one by one since are in `tail`, a list that later
    versions append to. Only what must have them in Arrow settles them there."""

    number: int
    heap: Heap
    chunks: Chunks
    rows: int
    live: int
    indexes: Indexes = field(default_factory=dict)
    # Rows that are there but must not be seen: those of a cache that have expired.
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
        """The version to append one more row to: with a tail that has room and that nobody had to settle yet."""
        full = self.rows - len(self.chunks) >= TAIL_ROWS_MAX
        return self.settled if full or "_settled" in self.__dict__ else self

    def _chunks_with(self, ids: Ids) -> Chunks:
        """Chunks that have some rows."""
        needed = self.rows > len(self.chunks) and len(ids) and ids.max() >= len(self.chunks)
        return self.settled.chunks if needed else self.chunks

    def all_but(self, positions: Sequence[int], gone: npt.NDArray[np.bool_]) -> pa.Table:
        """Some columns of all rows but those marked."""
        return self.settled.chunks.all(positions, ~gone if self.mask is None else self.mask & ~gone)

    def at(self, number: int, rows: int, live: int) -> Version:
        """An older version of the same heap."""
        return Version(number, self.heap, self.chunks.first(rows), rows, live, self.indexes, tail=self.tail)

    @property
    def nbytes(self) -> int:
        """The bytes in memory, those of the indexes included."""
        runs = sum(run.nbytes for each in self.indexes.values() for run in each)
        tail = max(0, self.rows - len(self.chunks)) * len(self.schema) * _VALUE_BYTES
        return self.chunks.nbytes + self.heap.nbytes + runs + tail

    def narrowed(self, condition: exp.Expression, parameters: Sequence[Any]) -> Ids | None:
        """Reading every row is what a heap does best."""
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
        """The rows that have one of many keys, each once, in one pass over the columns: what is fetched is compared
        with the keys. None when that is not how to do it, as there are few, or a hash has found a wrong or dead row."""
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
        # The first is done here and may itself share its work out; what another thread does must not.
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
        """Whether one row is there."""
        if row >= self.rows or self.heap.died.item(row) <= self.number:
            return False
        return self.hidden is None or not self.hidden.item(row)

    def row(self, row: int) -> dict[str, Any]:
        """One row as Python values."""
        values = self.values(row, range(len(self.schema)))
        return dict(zip(self.schema.names, values, strict=True))

    def locate_by(self, columns: tuple[int, ...], keys: Keys) -> Ids | None:
        """All rows whose columns have one of the values, through an index; None when there is none."""
        if columns not in self.indexes:
            return None
        runs = self.settled.indexes[columns]
        hashes = np.sort(keys.hashes)
        hashes = hashes[np.append(True, hashes[1:] != hashes[:-1])] if len(hashes) else hashes
        rows = distinct(np.concatenate([np.empty(0, dtype=np.int64), *(run.find(hashes) for run in runs)]))
        rows = rows[self.there(rows)]
        # A hash may belong to several values: keep the rows whose values are among the keys.
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
        """Which rows have the key at the same place of `positions`; row -1 has none."""
        if self.rows <= _NEAR_ROWS and rows.min() >= 0:
            return equal_rows(keys.at(positions), self.columns(rows, self.heap.key))
        same = np.zeros(len(rows), dtype=np.bool_)
        rows, places = in_row_order(rows)
        first = int(np.searchsorted(rows, 0))
        rows, places = rows[first:], places[first:]
        asked = places if len(positions) == len(keys) else positions.take(places)
        # The first is done here and may itself share its work out; what another thread does must not.
        stored, given = side_by_side(
            (partial(self.columns, rows, self.heap.key), partial(keys.taken, asked)), len(rows)
        )
        same[places] = equal_rows(given, stored)
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
