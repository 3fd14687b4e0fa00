"""One version of a table on a server, as a reader or a transaction sees it: rows are fetched when they are needed.

Fetched rows are kept in a heap of the reader's own, which gives them numbers. What was committed after the version is
undone in what the server sends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from millpond.contracts.table import AggregateCall, TableFiles
from millpond.schema import Column, Schema
from millpond.tables.heap import Version, empty_version
from millpond.tables.index import Ids, distinct
from millpond.tables.lookup_keys import Keys, among, key_columns
from millpond.tables.next_version import Addition, changed
from millpond.tables.remote.replicas import Reads

if TYPE_CHECKING:
    from millpond.tables.lookup import LookupRows
    from millpond.tables.remote.rows import RemoteRows

# Numbers of fetched rows are below it, those that a transaction adds are above.
ROWS_MAX = 2**40
# The key of a table that has none: the number of the row, in the order of arrival.
ROW = "millpond_row"
_NO_ROWS = np.empty(0, dtype=np.int64)


def stored_schema(schema: Schema) -> Schema:
    """The columns on the server, which always have a key."""
    if schema.key:
        return Schema.of(schema.columns, schema.key)
    return Schema.of([*schema.columns, Column(ROW, pa.int64(), nullable=False)], [ROW])


class RemoteVersion:
    """A published version of a table on a server: its number, and the number of its rows."""

    def __init__(self, number: int, live: int) -> None:
        self.number = number
        self.live = live


class RemoteReader:
    """The rows of one version; used by one thread at a time."""

    # Rows that a transaction adds are numbered from here.
    rows = ROWS_MAX

    def __init__(self, table: RemoteRows | LookupRows, version: RemoteVersion, replicas: Reads | None = None) -> None:
        self._table = table
        # A reader that may see rows that are a little older.
        self._replicas = replicas
        # Referred to as long as the reader exists, so that what it needs to undo is kept.
        self._version = version
        table.history.published(version)
        self.schema = table.spec.schema
        self._stored = table.stored
        self._fetched: Version = empty_version(self._stored)
        self._is_complete = False
        # The keys that were asked for, so that a missing one is asked for only once.
        self._asked: list[Keys] = []

    @property
    def _reads(self) -> Reads:
        return self._table.remote if self._replicas is None else self._replicas

    @property
    def number(self) -> int:
        return self._version.number

    @property
    def live(self) -> int:
        return self._table.count(self._version)

    @property
    def extent(self) -> int:
        """The numbers of fetched rows are below it."""
        return self._fetched.rows

    @property
    def nbytes(self) -> int:
        return self._fetched.nbytes

    @property
    def indexed_columns(self) -> tuple[tuple[int, ...], ...]:
        schema = self._table.spec.schema
        return tuple(tuple(schema.position(n) for n in names) for names in self._table.spec.indexes)

    def at(self, number: int, rows: int, live: int) -> RemoteReader:
        return RemoteReader(self._table, RemoteVersion(number, live))

    def ids(self) -> Ids:
        if not self._is_complete:
            self._fetch(lambda: self._reads.scan())
            self._is_complete = True
        if self.schema.key:
            return np.arange(self.extent)
        order = self._fetched.all([len(self._stored) - 1]).column(0).to_numpy()
        return np.argsort(order, kind="stable")

    def there(self, ids: Ids) -> npt.NDArray[np.bool_]:
        return ids < self.extent

    def all(self, positions: Sequence[int]) -> pa.Table:
        return self.table(self.ids(), positions)

    def all_but(self, positions: Sequence[int], gone: npt.NDArray[np.bool_]) -> pa.Table:
        ids = self.ids()
        # Rows that were fetched after the mask was made are not in it.
        gone = np.append(gone, np.zeros(max(0, self.extent - len(gone)), dtype=np.bool_))
        return self.table(ids[~gone[ids]], positions)

    def table(self, ids: Ids, positions: Sequence[int]) -> pa.Table:
        return self._fetched.table(ids, positions)

    def whole(self, ids: Ids) -> pa.Table:
        """All columns of some rows, as they are on the server."""
        return self._fetched.table(ids, range(len(self._stored)))

    def locate(self, keys: Keys) -> Ids:
        found = self._fetched.locate(keys)
        missing = np.flatnonzero(found < 0)
        if self._is_complete or not len(missing):
            return found
        wanted = Keys(tuple(keys.taken(missing)))
        for asked in self._asked:
            wanted = Keys(tuple(wanted.taken(np.flatnonzero(~among(wanted, asked)))))
            if not len(wanted):
                return found
        self._asked.append(wanted)
        self._look_up(wanted)
        return self._fetched.locate(Keys(keys.columns))

    def _look_up(self, keys: Keys) -> None:
        """Fetch the rows of some keys, from the cache if there is one, the others from the server."""
        cache = self._table.cache
        if cache is not None:
            rows, keys = cache.known(self._version, keys)
            self._hold(rows)
        if not len(keys):
            return
        self._fetch(lambda: self._reads.lookup(self._stored.key, keys.columns))
        if cache is not None and self._replicas is None:
            ids = self._fetched.locate(Keys(keys.columns))
            cache.fill(self._version, self.whole(distinct(ids[ids >= 0])))

    def locate_by(self, columns: tuple[int, ...], keys: Keys) -> Ids | None:
        if not len(keys):
            return _NO_ROWS
        names = [self.schema.columns[p].name for p in columns]
        ids = self._fetch(lambda: self._reads.lookup(names, keys.columns))
        own = Keys(tuple(c.combine_chunks() for c in self.table(ids, columns).columns))
        return np.sort(ids[among(own, keys)])

    def files(self) -> TableFiles | None:
        return self._table.files(self._version)

    def narrowed(self, condition: exp.Expression, parameters: Sequence[Any]) -> Ids | None:
        if self._is_complete:
            return None
        self._table.settle()
        found = self._reads.narrowed(condition, parameters)
        return None if found is None else self._fetch(lambda: found)

    def aggregated(self, calls: Sequence[AggregateCall], condition: exp.Expression | None) -> list[int | None] | None:
        if self._is_complete:
            return None
        self._table.settle()
        found = self._reads.aggregated(calls, condition)
        # What was committed later cannot be undone in a number.
        return None if self._table.history.after(self._version.number) else found

    def _fetch(self, get: Callable[[], pa.Table]) -> Ids:
        """The numbers of the rows that the server returns, as this version had them."""
        self._table.settle()
        return self._hold(self._table.history.undone(get(), self._version.number))

    def _hold(self, rows: pa.Table) -> Ids:
        """The numbers of rows of this version, which are kept unless they are already."""
        if not rows.num_rows:
            return _NO_ROWS
        batch = rows.combine_chunks().to_batches()[0]
        keys = key_columns(self._stored, batch)
        there = self._fetched.locate(keys) if self.extent else np.full(len(keys), -1)
        new = np.flatnonzero(there < 0)
        if len(new):
            added = batch if len(new) == batch.num_rows else batch.take(pa.array(new))
            addition = Addition(self._stored, added, key_columns(self._stored, added))
            self._fetched = changed(self._fetched, _NO_ROWS, addition)
        return distinct(self._fetched.locate(Keys(keys.columns)))
