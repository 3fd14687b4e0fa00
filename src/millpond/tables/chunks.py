"""Chunks: the rows of a table as a few immutable Arrow record batches, read by row number."""

from __future__ import annotations

import datetime as dt
import os
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from operator import methodcaller
from typing import Any, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ
from millpond.tables.spill_files import SpillFile

T = TypeVar("T")


class lazy(Generic[T]):
    """Like functools.cached_property, but without its lock, which in Python 3.11 is shared by all instances, so that
    readers would wait for each other."""

    def __init__(self, work: Callable[[Any], T]) -> None:
        self._work = work
        self._name = work.__name__
        self.__doc__ = work.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> lazy[T] | T:
        if instance is None:
            return self
        value: T = self._work(instance)
        instance.__dict__[self._name] = value
        return value


# Below this many values, using another thread takes longer than doing the work.
ROWS_MIN = 50_000
_THREADS_MAX = 4


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="millpond-sides")


# The threads of a pool do not exist in a forked process.
os.register_at_fork(after_in_child=_pool.cache_clear)


def side_by_side(works: Sequence[Callable[[], T]], rows: int) -> list[T]:
    """Run functions that each read this many rows, in threads if that is worth it. The first one runs in the calling
    thread; the others must not call this again, because they would wait for threads that wait for them."""
    if rows < ROWS_MIN or len(works) < 2 or (os.cpu_count() or 1) < 2:
        return [work() for work in works]
    others = [_pool().submit(work) for work in works[1:]]
    return [works[0](), *(other.result() for other in others)]


Ids = npt.NDArray[np.int64]

# A text column with few distinct values is dictionary-encoded; whether it has few is decided after this many rows.
_JUDGED_ROWS = 4096
_WORDS_MAX = 4096
_WORDS_SHARE = 0.25
# Up to this many rows are encoded one by one, which is faster for few.
_FEW_ROWS = 4
# This many batches of similar size are merged into one: with fewer, rows are copied more often; with more, a lookup has
# to search more of them.
_MERGED_MIN = 4
# Arrow's text columns have at most 2 GiB; batches are not merged beyond this size.
_MERGED_BYTES_MAX = 512 * 1024 * 1024


@dataclass(frozen=True)
class Chunks:
    """Batches in order of arrival. `words` has the distinct values of the dictionary-encoded columns; it only grows, so
    that the codes of older batches stay valid."""

    schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...] = ()
    words: Mapping[int, pa.Array] = field(default_factory=dict)
    judged: bool = False
    # The first batches are mapped from these files; the others are in memory.
    files: tuple[SpillFile, ...] = ()

    @lazy
    def offsets(self) -> Ids:
        """The row number at which each batch starts, and the number of rows."""
        return np.cumsum([0, *(b.num_rows for b in self.batches)], dtype=np.int64)

    @lazy
    def _columns(self) -> list[list[pa.Array]]:
        """The columns of each batch, cached because RecordBatch.column takes longer than reading a value."""
        return [batch.columns for batch in self.batches]

    @lazy
    def _readers(self) -> list[Callable[[pa.Scalar], Any]]:
        return [_reader(field.type, self.words.get(position)) for position, field in enumerate(self.schema)]

    @lazy
    def _ends(self) -> list[int]:
        return [int(end) for end in self.offsets[1:]]

    def __len__(self) -> int:
        return self._ends[-1] if self.batches else 0

    @lazy
    def nbytes(self) -> int:
        """The bytes in memory."""
        batches = self.batches[len(self.files) :] if self.files else self.batches
        return int(sum(b.nbytes for b in batches) + sum(w.nbytes for w in self.words.values()))

    @property
    def bytes_spilled(self) -> int:
        return sum(file.size for file in self.files)

    def columns(self, rows: Ids, positions: Sequence[int]) -> list[pa.Array]:
        """Some columns of some rows, in the order of `rows`."""
        if len(self.batches) == 1 and len(rows) > 1:
            self.check()
            batch, taken = self.batches[0], pa.array(rows)
            works = [partial(self._taken, batch, p, taken) for p in positions]
            return side_by_side(works, len(rows))
        stored = self._stored_columns(rows, positions)
        return [self._decoded(p, column) for p, column in zip(positions, stored, strict=True)]

    def values(self, row: int, positions: Sequence[int]) -> tuple[Any, ...]:
        """Some columns of one row as Python values."""
        which, place = self._find(row)
        columns, readers = self._columns[which], self._readers
        return tuple([readers[p](columns[p][place]) for p in positions])

    def table(self, rows: Ids, positions: Sequence[int]) -> pa.Table:
        """Some columns of some rows as a table."""
        schema = pa.schema([self.schema.field(p) for p in positions])
        return pa.Table.from_arrays(self.columns(rows, positions), schema=schema)

    def all(self, positions: Sequence[int], mask: npt.NDArray[np.bool_] | None = None) -> pa.Table:
        """Some columns of all rows, or of those where the mask is true; not copied if stored plain and without a
        mask."""
        schema = pa.schema([self.schema.field(p) for p in positions])
        kept: list[list[pa.Array]] = []
        self.check()
        for start, batch in zip(self.offsets, self.batches, strict=False):
            part = batch.select(list(positions))
            if mask is not None:
                part = part.filter(pa.array(mask[start : start + batch.num_rows]))
            kept.append([self._decoded(p, c) for p, c in zip(positions, part.columns, strict=True)])
        if not kept:
            return schema.empty_table()
        columns = [pa.chunked_array([k[i] for k in kept], schema.field(i).type) for i in range(len(positions))]
        return pa.Table.from_arrays(columns, schema=schema)

    def appended(self, batch: pa.RecordBatch) -> Chunks:
        """These rows followed by those of the batch. Small batches are merged, so that both the number of batches and
        the number of times that a row is copied grow with the logarithm of the rows."""
        grown = self if self.judged else self._judge(batch)
        grown, stored = grown._encode(batch)
        batches = [*grown.batches, stored]
        while (first := _first_merged(batches, len(grown.files))) < len(batches) - 1:
            batches[first:] = [pa.concat_batches(batches[first:])]
        return replace(grown, batches=tuple(batches))

    def first(self, rows: int) -> Chunks:
        """Only the rows with lower numbers."""
        parts = zip(self.offsets, self.batches, strict=False)
        batches = tuple(b.slice(0, rows - start) for start, b in parts if start < rows)
        return replace(self, batches=batches, files=self.files[: len(batches)])

    def filtered(self, mask: npt.NDArray[np.bool_]) -> Chunks:
        """The rows where the mask is true, encoded as they are, in as few batches as possible."""
        self.check()
        parts = zip(self.offsets, self.batches, strict=False)
        batches = [b.filter(pa.array(mask[start : start + b.num_rows])) for start, b in parts]
        if _mergeable(batches):
            batches = [pa.concat_batches(batches)] if batches else []
        return replace(self, batches=tuple(b for b in batches if b.num_rows), files=())

    def check(self) -> None:
        """MP407 if a file of spilled rows is damaged."""
        for file in self.files:
            file.check()

    def _find(self, row: int) -> tuple[int, int]:
        """The batch of a row, and the row's position in it."""
        which = bisect_right(self._ends, row)
        if which < len(self.files):
            self.files[which].check()
        return which, row - (self._ends[which - 1] if which else 0)

    def _stored_columns(self, rows: Ids, positions: Sequence[int]) -> list[pa.Array]:
        if len(rows) == 1:
            which_one, place = self._find(int(rows[0]))
            return [self._columns[which_one][p].slice(place, 1) for p in positions]
        # numpy sorts small integers by radix, in one pass.
        which = np.searchsorted(self.offsets[1:], rows, side="right").astype(np.int16)
        order = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[order], np.arange(len(self.batches) + 1))
        parts = []
        for i, batch in enumerate(self.batches):
            if ends[i] < ends[i + 1]:
                if i < len(self.files):
                    self.files[i].check()
                taken = pa.array(rows[order[ends[i] : ends[i + 1]]] - self.offsets[i])
                parts.append([batch.column(p).take(taken) for p in positions])
        if not parts:
            return [pa.array([], self._stored_type(p)) for p in positions]
        if len(parts) == 1:
            return parts[0]
        return _in_order([pa.concat_arrays([part[i] for part in parts]) for i in range(len(positions))], order)

    def _taken(self, batch: pa.RecordBatch, position: int, rows: pa.Array) -> pa.Array:
        return self._decoded(position, batch.column(position).take(rows))

    def _stored_type(self, position: int) -> pa.DataType:
        return pa.int16() if position in self.words else self.schema.field(position).type

    def _decoded(self, position: int, column: pa.Array) -> pa.Array:
        words = self.words.get(position)
        return column if words is None else words.take(column)

    def _judge(self, batch: pa.RecordBatch) -> Chunks:
        """Once there are enough rows to decide, choose the columns to dictionary-encode, and encode the existing
        rows."""
        if len(self) + batch.num_rows < _JUDGED_ROWS:
            return self
        self.check()
        words: dict[int, pa.Array] = {}
        for position, field_ in enumerate(self.schema):
            if pa.types.is_string(field_.type):
                there = pa.chunked_array([b.column(position) for b in (*self.batches, batch)])
                distinct = there.slice(0, _JUDGED_ROWS).unique().drop_null()
                if len(distinct) <= _WORDS_SHARE * _JUDGED_ROWS:
                    words[position] = pa.array([], pa.string())
        chosen = Chunks(self.schema, (), words, judged=True)
        for old in self.batches:
            chosen, stored = chosen._encode(old)
            chosen = replace(chosen, batches=(*chosen.batches, stored))
        return chosen

    def _encode(self, batch: pa.RecordBatch) -> tuple[Chunks, pa.RecordBatch]:
        chunks = self
        codes: dict[int, pa.Array] = {}
        for position, words in self.words.items():
            grown, column = _encoded(batch.column(position), words)
            if len(grown) > _WORDS_MAX:
                chunks = chunks._plain(position)
                continue
            if grown is not words:
                chunks = replace(chunks, words={**chunks.words, position: grown})
            codes[position] = column
        columns = [codes.get(i, column) for i, column in enumerate(batch.columns)]
        return chunks, pa.RecordBatch.from_arrays(columns, names=self.schema.names)

    def _plain(self, position: int) -> Chunks:
        """Store a column plain, because it has turned out to have many distinct values."""
        batches = []
        self.check()
        for batch in self.batches:
            columns = [self._decoded(position, c) if i == position else c for i, c in enumerate(batch.columns)]
            batches.append(pa.RecordBatch.from_arrays(columns, names=self.schema.names))
        words = {p: w for p, w in self.words.items() if p != position}
        return replace(self, batches=tuple(batches), words=words, files=())


def _reader(type_: pa.DataType, words: pa.Array | None) -> Callable[[pa.Scalar], Any]:
    """A function that converts a stored value to a Python value."""
    if words is not None:
        return lambda stored: words[stored.as_py()].as_py() if stored.is_valid else None
    if pa.types.is_nested(type_):
        return lambda stored: stored.as_py(maps_as_pydicts="lossy")
    if type_ in (TIMESTAMP, TIMESTAMP_NTZ):
        # Adding to the epoch takes a tenth of the time of Arrow's conversion.
        first: dt.datetime = pa.scalar(0, type_).as_py()
        return lambda stored: first + dt.timedelta(microseconds=stored.value) if stored.is_valid else None
    return methodcaller("as_py")


def _encoded(column: pa.Array, words: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The words, extended by the new ones of a column, and its codes; the column unchanged if there are too many."""
    if len(column) <= _FEW_ROWS:
        return _encoded_few(column, words)
    codes = pc.index_in(column, value_set=words)
    if codes.null_count > column.null_count:
        new = column.filter(pc.and_(codes.is_null(), column.is_valid())).unique()
        words = pa.concat_arrays([words, new])
        if len(words) > _WORDS_MAX:
            return words, column
        codes = pc.index_in(column, value_set=words)
    return words, codes.cast(pa.int16())


def _encoded_few(column: pa.Array, words: pa.Array) -> tuple[pa.Array, pa.Array]:
    codes: list[int | None] = []
    for value in column:
        code = words.index(value).as_py() if value.is_valid else None
        if code == -1:
            code = len(words)
            words = pa.concat_arrays([words, pa.array([value.as_py()])])
        codes.append(code)
    return words, column if len(words) > _WORDS_MAX else pa.array(codes, pa.int16())


def _in_order(columns: list[pa.Array], order: Ids) -> list[pa.Array]:
    """Columns whose rows are sorted by `order`, back in the requested order."""
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    if np.array_equal(places, np.arange(len(order))):
        return columns
    taken = pa.array(places)
    return [column.take(taken) for column in columns]


def _first_merged(batches: Sequence[pa.RecordBatch], fixed: int) -> int:
    """The first of the batches to merge with all that follow it; the last one if they are too few."""
    last = len(batches) - 1
    size_max, first = 2 * batches[last].num_rows, last
    while first > fixed and batches[first - 1].num_rows <= size_max and _mergeable(batches[first - 1 :]):
        first -= 1
    return first if last - first >= _MERGED_MIN - 1 else last


def _mergeable(batches: Sequence[pa.RecordBatch]) -> bool:
    rows = sum(b.num_rows for b in batches)
    return rows < _JUDGED_ROWS * 16 or bool(sum(b.nbytes for b in batches) <= _MERGED_BYTES_MAX)
