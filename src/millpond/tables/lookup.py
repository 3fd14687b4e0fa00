"""Tables whose rows are looked up in their source.

Nothing is stored, and a transaction sees each row as it was when it asked for it first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from millpond.contracts.table import AggregateCall, BackendPlugin, Capabilities, Clock, TableFiles, TableSpec
from millpond.errors import TableError
from millpond.tables.backend import Urgency
from millpond.tables.draft import Draft
from millpond.tables.index import Ids
from millpond.tables.lookup_cache import CachedKeys, without_nulls
from millpond.tables.lookup_keys import Keys, among, key_columns
from millpond.tables.next_version import Addition, changed
from millpond.tables.remote.remote_changes import RemoteHistory
from millpond.tables.remote.row_cache import RemoteCache
from millpond.tables.remote.version_reader import ROW, ROWS_MAX, RemoteReader, RemoteVersion, stored_schema

_NO_ROWS = np.empty(0, dtype=np.int64)


class LookupReader(RemoteReader):
    """The rows that one transaction or query has asked for; each key is asked for once."""

    def __init__(self, table: LookupRows, version: RemoteVersion) -> None:
        super().__init__(table, version)
        # What was asked for by other columns than the key: the keys, and the rows that were found.
        self._by: dict[tuple[int, ...], tuple[list[Keys], list[Ids]]] = {}
        self._all: Ids | None = None

    def ids(self) -> Ids:
        if self._all is None:
            self._all = self._added(self._table.remote.scan())
        return self._all

    def locate_by(self, columns: tuple[int, ...], keys: Keys) -> Ids | None:
        asked, ids = self._by.setdefault(columns, ([], []))
        wanted = Keys(tuple(without_nulls(keys.columns)))
        for before in asked:
            wanted = Keys(tuple(wanted.taken(np.flatnonzero(~among(wanted, before)))))
        if len(wanted):
            names = [self.schema.columns[p].name for p in columns]
            ids.append(self._added(self._table.remote.lookup(names, wanted.columns)))
            asked.append(wanted)
        found = np.unique(np.concatenate(ids)) if ids else _NO_ROWS
        if not len(found):
            return _NO_ROWS
        own = Keys(tuple(c.combine_chunks() for c in self.table(found, columns).columns))
        return found[among(own, keys)]

    def narrowed(self, condition: exp.Expression, parameters: Sequence[Any]) -> Ids | None:
        return None

    def aggregated(self, calls: Sequence[AggregateCall], condition: exp.Expression | None) -> None:
        """None: the source is asked for rows."""

    def _added(self, rows: pa.Table) -> Ids:
        """The numbers of rows of the source; those of a table without a key are new ones."""
        if self.schema.key:
            return self._fetch(lambda: rows)
        first = self.extent
        if not rows.num_rows:
            return _NO_ROWS
        numbers = pa.array(np.arange(first, first + rows.num_rows))
        batch = rows.append_column(ROW, numbers).cast(self._stored.arrow()).combine_chunks().to_batches()[0]
        self._fetched = changed(
            self._fetched, _NO_ROWS, Addition(self._stored, batch, key_columns(self._stored, batch))
        )
        return np.arange(first, self.extent)


class LookupRows:
    """The rows of one table, for the store: read only, and without a log."""

    def __init__(self, spec: TableSpec, clock: Clock, folder: Path | None = None) -> None:
        self._clock = clock
        self.commits = self.compactions = self.bytes_disk = 0
        self.current = RemoteVersion(0, ROWS_MAX)
        self.answers: CachedKeys | None = None
        # Rows are cached by the reader that looks them up in the source.
        self.cache: RemoteCache | None = None
        self.define(spec)

    def define(self, spec: TableSpec) -> None:
        self.spec, self.stored = spec, stored_schema(spec.schema)
        self.history = RemoteHistory(spec.schema, self.stored)
        source = spec.values.get("source")
        if source is not None:
            self.close()
            self.answers = CachedKeys(source, spec.values["type"], spec.schema, self._clock)

    @property
    def remote(self) -> CachedKeys:
        assert self.answers is not None, "used before its options are known"
        return self.answers

    def count(self, version: RemoteVersion) -> int:
        """Unknown: so many that the table is never read as a whole if that can be avoided."""
        return version.live

    def settle(self) -> None:
        """Nothing to do: nothing is written."""

    def load(self, table: pa.Table, number: int) -> None:
        """Nothing to do: nothing is stored."""

    def view(self, version: RemoteVersion) -> LookupReader:
        return LookupReader(self, version)

    def files(self, version: RemoteVersion) -> TableFiles | None:
        """None: only the source reads its rows."""
        return None

    def use(self, version: RemoteVersion, ids: Ids) -> None:
        """Nothing to do: the cache counts uses itself."""

    def prepare(self, draft: Draft) -> Any:
        message = f"Table '{self.spec.name}' is looked up in its source, and cannot be changed here."
        raise TableError("MP409", message, hint="Change the rows in the database.")

    def has(self, number: int) -> bool:
        return False

    def stage(self, prepared: Any) -> None:
        """Never called: there are no changes."""

    def unstage(self) -> None:
        """Never called: there are no changes."""

    def apply(self, prepared: Any) -> RemoteVersion:
        return self.current

    @property
    def urgency(self) -> Urgency:
        return Urgency.NONE

    def begin_compaction(self) -> None:
        """None: nothing is stored."""

    def compact(self) -> None:
        """Nothing to do."""

    def drop(self) -> None:
        self.close()

    def close(self) -> None:
        if self.answers is not None:
            self.answers.close()
            self.answers = None


def _wrong(spec: TableSpec) -> str | None:
    return None if "source" in spec.values else "Rows are looked up with 'load' = 'lookup' of a source, not a backend."


PLUGIN = BackendPlugin(
    name="lookup",
    options=(),
    capabilities=Capabilities(durable=False, looked_up=True),
    make=LookupRows,  # type: ignore[arg-type]
    validate=_wrong,
    help="Rows that stay in a database and are looked up by key; chosen by 'load' = 'lookup'.",
)
