"""Rows as a few Arrow record batches that never change: taken by row number, appended by making new ones."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ
from millpond.tables.lazy import lazy
from millpond.tables.sides import side_by_side
from millpond.tables.spill_files import SpillFile

Ids = npt.NDArray[np.int64]

# A text column is stored as codes while it has few distinct values; whether it has is judged on this many rows.
_JUDGED_ROWS = 4096
_WORDS_MAX = 4096
_WORDS_SHARE = 0.25
# Up to so many rows are encoded one by one, which is faster then.
_FEW_ROWS = 4
# So many batches of about one size are merged into one: with fewer, rows are copied more often; with more, a lookup has
# to look into more of them.
_MERGED_MIN = 4
# Arrow's text columns hold at most 2 GiB; batches are not merged beyond this size.
_MERGED_BYTES_MAX = 512 * 1024 * 1024


@dataclass(frozen=True)
class Chunks:
    """Batches in the order of arrival. `words` has the distinct values of the columns that are stored as codes; it
    only grows, so the codes of older batches stay right."""

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
        """The columns of each batch: asking the batch takes longer than reading a value."""
        return [batch.columns for batch in self.batches]

    @lazy
    def _readers(self) -> list[Callable[[pa.Scalar], Any]]:
        return [_reader(field.type, self.words.get(position)) for position, field in enumerate(self.schema)]

    @lazy
    def _ends(self) -> list[int]:
        return [int(end) for end in self.offsets[1:]]

    def __len__(self) -> int:
        return self._ends[-1] if self.batches else 0

    @property
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
        """Some columns of all rows, or of those where the mask holds; not copied where stored plain and whole."""
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
        """These rows and then the batch's; several small batches are merged at a time, so that their number grows with
        the logarithm of the rows, and so does the number of times that a row is copied."""
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
        """The rows where the mask holds, stored as they are, in as few batches as may be."""
        self.check()
        parts = zip(self.offsets, self.batches, strict=False)
        batches = [b.filter(pa.array(mask[start : start + b.num_rows])) for start, b in parts]
        if _mergeable(batches):
            batches = [pa.concat_batches(batches)] if batches else []
        return replace(self, batches=tuple(b for b in batches if b.num_rows), files=())

    def check(self) -> None:
        """MP407 when rows that left memory cannot be read as they were written."""
        for file in self.files:
            file.check()

    def _find(self, row: int) -> tuple[int, int]:
        """The number of the batch that has a row, and its place there."""
        which = bisect_right(self._ends, row)
        if which < len(self.files):
            self.files[which].check()
        return which, row - (self._ends[which - 1] if which else 0)

    def _stored_columns(self, rows: Ids, positions: Sequence[int]) -> list[pa.Array]:
        if len(rows) == 1:
            which_one, place = self._find(int(rows[0]))
            return [self._columns[which_one][p].slice(place, 1) for p in positions]
        # Small numbers are sorted by radix, in one pass.
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
        """Once there are rows enough to tell, choose the columns to store as codes and encode what is there."""
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
        """Store a column as it is: it has turned out to have many distinct values."""
        batches = []
        self.check()
        for batch in self.batches:
            columns = [self._decoded(position, c) if i == position else c for i, c in enumerate(batch.columns)]
            batches.append(pa.RecordBatch.from_arrays(columns, names=self.schema.names))
        words = {p: w for p, w in self.words.items() if p != position}
        return replace(self, batches=tuple(batches), words=words, files=())


def _reader(type_: pa.DataType, words: pa.Array | None) -> Callable[[pa.Scalar], Any]:
    """What makes a stored value a Python value."""
    if words is not None:
        return lambda stored: words[stored.as_py()].as_py() if stored.is_valid else None
    if pa.types.is_nested(type_):
        return lambda stored: stored.as_py(maps_as_pydicts="lossy")
    if type_ in (TIMESTAMP, TIMESTAMP_NTZ):
        # By adding to the first moment, in a tenth of the time that Arrow takes.
        first: dt.datetime = pa.scalar(0, type_).as_py()
        return lambda stored: first + dt.timedelta(microseconds=stored.value) if stored.is_valid else None
    return methodcaller("as_py")


def _encoded(column: pa.Array, words: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The words, with the new ones of a column, and its codes; the column as it is when the words are too many."""
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
    """Columns whose rows came as `order` says, back in the order asked for."""
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    if np.array_equal(places, np.arange(len(order))):
        return columns
    taken = pa.array(places)
    return [column.take(taken) for column in columns]


def _first_merged(batches: Sequence[pa.RecordBatch], fixed: int) -> int:
    """The first of the batches to merge with all that follow it; the last one when they are too few."""
    last = len(batches) - 1
    size_max, first = 2 * batches[last].num_rows, last
    while first > fixed and batches[first - 1].num_rows <= size_max and _mergeable(batches[first - 1 :]):
        first -= 1
    return first if last - first >= _MERGED_MIN - 1 else last


def _mergeable(batches: Sequence[pa.RecordBatch]) -> bool:
    rows = sum(b.num_rows for b in batches)
    return rows < _JUDGED_ROWS * 16 or bool(sum(b.nbytes for b in batches) <= _MERGED_BYTES_MAX)
