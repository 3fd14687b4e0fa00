"""'load' = 'lookup' of a database: the rows of the keys of a batch, by one query for all of them.

Guarantee: the rows are those that the database had when it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import pyarrow as pa

from millpond.contracts.lookup import KeyReader
from millpond.contracts.source import BAD, SourceSpec
from millpond.databases.pool import Pool
from millpond.databases.sessions import Server
from millpond.databases.sql_text import Selection
from millpond.errors import SourceError
from millpond.schema import Schema, fitted
from millpond.sources.databases.table import OpenServer


class DatabaseKeys(KeyReader):
    """A table, view or query of a database; connections stay open between two queries."""

    def __init__(self, spec: SourceSpec, open_server: OpenServer) -> None:
        assert spec.columns is not None, "rows are looked up only when the columns are known"
        self._spec, self._open = spec, open_server
        self._columns: Schema = spec.columns
        self._pool = Pool(spec.values)
        self._server: Server | None = None
        self._lock = threading.Lock()

    def lookup(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> pa.Table:
        return self._read(lambda server: server.among(columns, keys))

    def scan(self) -> pa.Table:
        return self._read(lambda server: [server.selection()])

    def _read(self, selections: Callable[[Server], Sequence[Selection]]) -> pa.Table:
        with self._lock:
            try:
                if self._server is None:
                    self._server = self._open(self._spec, self._pool)
                parts = list(self._rows(self._server, selections(self._server)))
            except SourceError:
                # The server may have been restarted: no connection is used again.
                self._let_go()
                raise
        return pa.concat_tables([self._columns.arrow().empty_table(), *parts])

    def _rows(self, server: Server, selections: Sequence[Selection]) -> list[pa.Table]:
        found = []
        schema = self._columns.arrow()
        with server.session() as session:
            for selection in selections:
                for batch in session.read(selection, selection.statement()):
                    rows = pa.Table.from_batches([batch])
                    self._require_good(rows)
                    found.append(fitted(rows, self._columns, self._spec.shown).cast(schema))
        return found

    def _require_good(self, rows: pa.Table) -> None:
        reasons = rows[BAD].drop_null() if BAD in rows.column_names else []
        if len(reasons):
            message = f"A row that was looked up in '{self._spec.shown}' cannot be read: {reasons[0].as_py()}."
            raise SourceError("MP502", message, hint="Exclude it with 'where', or cast the column in a 'query'.")

    def _let_go(self) -> None:
        if self._server is not None:
            with suppress(Exception):
                self._server.close()
        self._server = None
        self._pool.close()

    def close(self) -> None:
        with self._lock:
            self._let_go()
