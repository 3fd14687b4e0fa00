"""Drafts: a table inside a transaction, as the version at its beginning, minus removed rows, plus added rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from millpond.contracts.table import AggregateCall, TableFiles
from millpond.schema import Schema
from millpond.tables.heap import Version, empty_version, no_rows
from millpond.tables.index import Ids
from millpond.tables.lookup_keys import Keys, among, key_columns
from millpond.tables.next_version import Addition, changed
from millpond.tables.single_rows import Row, RowShape

_NO_ROWS = np.empty(0, dtype=np.int64)


class State(Protocol):
    """A fixed content of a table, with numbered rows: the interface of all reading methods."""

    @property
    def number(self) -> int: ...

    @property
    def schema(self) -> Schema: ...

    @property
    def live(self) -> int:
        """The number of rows."""

    @property
    def indexed_columns(self) -> tuple[tuple[int, ...], ...]:
        """The positions of the columns of each index."""

    def ids(self) -> Ids:
        """All rows, in the order of arrival."""

    def all(self, positions: Sequence[int]) -> pa.Table:
        """Some columns of all rows, in the order of `ids`."""

    def table(self, ids: Ids, positions: Sequence[int]) -> pa.Table:
        """Some columns of some rows, in the order of `ids`."""

    def locate(self, keys: Keys) -> Ids:
        """The row of each key, or -1."""

    def locate_by(self, columns: tuple[int, ...], keys: Keys) -> Ids | None:
        """All rows whose columns have one of the values, through an index; None if there is no index."""

    def narrowed(self, condition: exp.Expression, parameters: Sequence[Any]) -> Ids | None:
        """A superset of the rows that satisfy a condition, if the backend can find it without reading every row; else
        None."""

    def files(self) -> TableFiles | None:
        """The same rows as files, if there are such."""

    def aggregated(self, calls: Sequence[AggregateCall], condition: exp.Expression | None) -> list[int | None] | None:
        """Aggregates over the rows that satisfy a condition, if a server evaluates all of it."""


class Base(State, Protocol):
    """A committed version of a table: rows are numbered below `rows` in the order of arrival."""

    @property
    def rows(self) -> int: ...

    @property
    def extent(self) -> int:
        """The numbers of all rows are below it; of a table on a server, those that were fetched so far."""

    @property
    def nbytes(self) -> int:
        """The size in memory."""

    def existing(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Which of some rows exist in this version."""

    def all_but(self, positions: Sequence[int], gone: npt.NDArray[np.bool_]) -> pa.Table:
        """Some columns of all rows except those in the mask."""

    def at(self, number: int, rows: int, live: int) -> Base:
        """An older version of the same rows."""


@dataclass(frozen=True)
class DraftPoint:
    """A point that a draft can return to."""

    removals: int
    own: Version | None
    first: Addition | None


class Draft:
    """Rows of the base keep their numbers; own rows come after them."""

    def __init__(self, base: Base) -> None:
        self.base = base
        self.schema = base.schema
        self._removals: list[Ids] = []
        # The same rows as a mask, built when the draft is read: most transactions only write.
        self._gone: npt.NDArray[np.bool_] | None = None
        self._own: Version | None = None
        # The rows of the first change are kept here without an index: most transactions change a table once.
        self._first: Addition | None = None

    @property
    def number(self) -> int:
        return self.base.number

    @property
    def live(self) -> int:
        own = self._first.count if self._first else self._own.live if self._own else 0
        return self.base.live - sum(map(len, self._removals)) + own

    @property
    def indexed_columns(self) -> tuple[tuple[int, ...], ...]:
        return self.base.indexed_columns

    def files(self) -> TableFiles | None:
        return None if self.touched else self.base.files()

    def aggregated(self, calls: Sequence[AggregateCall], condition: exp.Expression | None) -> list[int | None] | None:
        return None if self.touched else self.base.aggregated(calls, condition)

    @property
    def touched(self) -> bool:
        """Whether anything was changed."""
        return bool(self._removals) or self._first is not None or (self._own is not None and self._own.live > 0)

    def ids(self) -> Ids:
        base = self.base.ids()
        gone = self._gone_rows()
        if gone is not None:
            base = base[~gone[base]]
        own = self._own_rows()
        return base if own is None else np.concatenate([base, own.ids() + self.base.rows])

    def all(self, positions: Sequence[int]) -> pa.Table:
        gone = self._gone_rows()
        table = self.base.all(positions) if gone is None else self.base.all_but(positions, gone)
        own = self._own_rows()
        return table if own is None else pa.concat_tables([table, own.all(positions)])

    def table(self, ids: Ids, positions: Sequence[int]) -> pa.Table:
        own = self._own_rows()
        if own is None:
            return self.base.table(ids, positions)
        mine = ids >= self.base.rows
        if mine.all():
            return own.table(ids - self.base.rows, positions)
        if not mine.any():
            return self.base.table(ids, positions)
        parts = [self.base.table(ids[~mine], positions), own.table(ids[mine] - self.base.rows, positions)]
        places = np.empty(len(ids), dtype=np.int64)
        places[np.concatenate([np.flatnonzero(~mine), np.flatnonzero(mine)])] = np.arange(len(ids))
        return pa.concat_tables(parts).combine_chunks().take(pa.array(places))

    def locate(self, keys: Keys) -> Ids:
        found = self._still(self.base.locate(keys))
        own = self._own_rows()
        if own is None:
            return found
        mine = own.locate(keys)
        return np.where(mine >= 0, mine + self.base.rows, found)

    def locate_by(self, columns: tuple[int, ...], keys: Keys) -> Ids | None:
        found = self.base.locate_by(columns, keys)
        if found is None:
            return None
        found = self._still(found)
        found = found[found >= 0]
        own = self._own_rows()
        if own is None:
            return found
        mine = own.locate_by(columns, keys)
        if mine is None:
            # The base needs no index: a server searches its rows.
            ids = own.ids()
            values = Keys(tuple(column.combine_chunks() for column in own.table(ids, columns).columns))
            mine = ids[among(values, keys)] if len(ids) and len(keys) else _NO_ROWS
        return np.concatenate([found, mine + self.base.rows])

    def narrowed(self, condition: exp.Expression, parameters: Sequence[Any]) -> Ids | None:
        found = self.base.narrowed(condition, parameters)
        if found is None:
            return None
        found = self._still(found)
        own = self._own_rows()
        mine = [] if own is None else [own.ids() + self.base.rows]
        return np.concatenate([found[found >= 0], *mine])

    def change(self, removed: Ids, batch: pa.RecordBatch, keys: Keys | None = None) -> None:
        """Remove rows and add others, whose keys must be unique and not in use after the removal."""
        self._change(removed, Addition(self.schema, batch, keys))

    def change_one(self, removed: Ids, shape: RowShape, row: Row, key: Keys | None) -> None:
        """The same for one added row, in the form of the table's RowShape."""
        self._change(removed, Addition.of_one(shape, row, key))

    def remove(self, rows: Ids) -> None:
        """Remove rows."""
        self._change(rows, Addition(self.schema, None))

    def _change(self, removed: Ids, addition: Addition) -> None:
        if self._own is None and self._first is None:
            self._remove(removed)
            self._first = addition if addition.count else None
            return
        mine = removed >= self.base.rows
        self._remove(removed[~mine])
        if addition.count or mine.any():
            own = self._own_rows()
            assert own is not None
            self._own = changed(own, removed[mine] - self.base.rows, addition)

    def _remove(self, rows: Ids) -> None:
        if len(rows):
            self._removals.append(rows)
            if self._gone is not None:
                self._gone = _with(self._gone, self.base.extent, rows)

    def values(self, row: int) -> Row | None:
        """A row of the base as Python values, if that requires no query; else None."""
        base = self.base
        if not isinstance(base, Version) or base.heap.shape is None or row >= base.rows:
            return None
        try:
            return base.values(row, range(len(self.schema)))
        except (ValueError, OverflowError):
            return None

    def point(self) -> DraftPoint:
        return DraftPoint(len(self._removals), self._own, self._first)

    def rollback_to(self, point: DraftPoint) -> None:
        del self._removals[point.removals :]
        self._gone = None
        self._first = point.first
        if point.own is None or point.own is self._own:
            self._own = point.own
        else:
            # The heap of that version has grown since, so its rows start a new heap.
            self._own, self._first = None, _addition(point.own)

    def removed(self) -> Ids:
        """The removed rows of the base, without duplicates."""
        if len(self._removals) == 1:
            return self._removals[0]
        return np.concatenate(self._removals) if self._removals else _NO_ROWS

    def added(self) -> Addition:
        """The added rows."""
        if self._first is not None:
            return self._first
        return _addition(self._own) if self._own is not None else Addition(self.schema, None)

    def _still(self, rows: Ids) -> Ids:
        gone = self._gone_rows()
        return rows if gone is None else np.where((rows >= 0) & gone[rows], -1, rows)

    def _gone_rows(self) -> npt.NDArray[np.bool_] | None:
        extent = self.base.extent
        if self._removals and (self._gone is None or len(self._gone) < extent):
            self._gone = np.zeros(extent, dtype=np.bool_)
            for ids in self._removals:
                self._gone[ids] = True
        return self._gone

    def _own_rows(self) -> Version | None:
        if self._first is not None:
            indexes = [tuple(self.schema.columns[p].name for p in c) for c in self.base.indexed_columns]
            empty = empty_version(self.schema, indexes)
            self._own, self._first = changed(empty, _NO_ROWS, self._first), None
        return self._own


def _with(mask: npt.NDArray[np.bool_], extent: int, rows: Ids) -> npt.NDArray[np.bool_]:
    """A mask with some more rows; a longer one if rows were fetched since it was built."""
    if len(mask) < extent:
        mask = np.append(mask, np.zeros(extent - len(mask), dtype=np.bool_))
    mask[rows] = True
    return mask


def _addition(version: Version) -> Addition:
    table = version.all(range(len(version.schema))).combine_chunks()
    batch = next(iter(table.to_batches()), no_rows(version.schema))
    return Addition(version.schema, batch, key_columns(version.schema, batch) if version.schema.key else None)
