"""sql://driver:rest: tables, views and queries of any database with a SQLAlchemy driver.

Guarantee: a table equals the result of one query, compared again at each poll.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from millpond.contracts.source import SourceSpec
from millpond.databases.address import unknown_table
from millpond.databases.driver_values import batch_of, seen_columns
from millpond.databases.options import CONNECTION, READING
from millpond.databases.pool import Pool
from millpond.databases.sessions import Server, Session
from millpond.databases.sql_text import Dialect, Selection, Statement, divided, key_of
from millpond.databases.sqlalchemy import SCHEME, address, described, engine_of, known_tables, translated
from millpond.errors import SourceError
from millpond.options import TEXT, Option
from millpond.schema import Schema
from millpond.sources.databases.plugin import database_source
from millpond.sources.databases.plugin import validate as validate_any

# A database of which nothing is known compares texts by rules of its own.
DIALECT = Dialect('"', strings=())
# Rows that are read to find the types of a query's columns.
SAMPLE_ROWS = 1000
NOT_READ = ("parallel.readers", "transaction.isolation", "load", "max.rows.per.batch")
PLACED = ("retry.", "connect.wait")
OPTIONS = (
    Option("driver", TEXT, None, "The name of the SQLAlchemy driver, in place of the one in the URI."),
    *(option for option in CONNECTION if option.name.startswith(PLACED)),
    *(option for option in READING if option.name not in NOT_READ),
)


class SqlServer(Server):
    """One database; each session is a connection of its own."""

    def __init__(self, spec: SourceSpec, pool: Pool) -> None:
        self._spec, self._pool = spec, pool
        self._engine = engine_of(spec.uri, spec.values, spec.base, spec.shown, reads=True)
        self._dialect = replace(DIALECT, quote=self._engine.dialect.identifier_preparer.initial_quote)
        try:
            self._schema = self._described()
        except BaseException:
            self._engine.dispose()
            raise

    def _described(self) -> Schema:
        with translated(self._spec.shown):
            known, key = self._catalog() if self._spec.values.get("table") else (None, [])
            if known is None:
                with self._engine.connect() as connection:
                    names, rows = self._first(connection)
                known = seen_columns(names, rows)
        return key_of(self._spec, known, key)

    def _catalog(self) -> tuple[Schema | None, list[str]]:
        """Columns and key as the driver describes them; none where it cannot."""
        table, schema = self._spec.values["table"], self._spec.values.get("schema")
        try:
            return described(self._engine, table, schema)
        except KeyError:
            message, hint = unknown_table(self._spec.shown, table, known_tables(self._engine, schema))
            raise SourceError("MP508", message, hint=hint) from None

    def _first(self, connection: Any) -> tuple[list[str], list[Any]]:
        """The names and first rows of what is read."""
        source = Selection(self._spec, self._dialect, None).source()
        text = Statement(f"SELECT * FROM {source.text}", source.values)
        result = connection.execute(*bound_text(text))
        names = list(result.keys())
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            hint = "Give each column of the query a name of its own, with AS."
            raise SourceError("MP508", f"The query of {self._spec.shown} yields '{twice}' twice.", hint=hint)
        return names, [tuple(row) for row in result.fetchmany(SAMPLE_ROWS)]

    def columns(self) -> Schema:
        return self._schema

    def selection(self) -> Selection:
        return Selection(self._spec, self._dialect, self._schema)

    def session(self) -> Session:
        return SqlSession(self._spec, self._engine, self._schema)

    def close(self) -> None:
        self._engine.dispose()


class SqlSession(Session):
    """One connection; its rows are streamed where the driver can."""

    def __init__(self, spec: SourceSpec, engine: Any, schema: Schema) -> None:
        self._spec, self._columns = spec, schema
        with translated(spec.shown):
            self._connection = engine.connect().execution_options(stream_results=True)

    def value(self, statement: Statement) -> Any:
        with translated(self._spec.shown):
            return self._connection.execute(*bound_text(statement)).scalar()

    def read(self, selection: Selection, statement: Statement) -> Iterator[pa.RecordBatch]:
        names = selection.names or self._columns.names
        columns = [self._columns[name] for name in names]
        rows_max, zone = self._spec.values["fetch.size"], self._spec.values["time.zone"]
        with translated(self._spec.shown):
            result = self._connection.execute(*bound_text(statement))
            while rows := result.fetchmany(min(rows_max, self._spec.values["batch.size"] or rows_max)):
                yield batch_of(rows, columns, zone)

    @cached_property
    def _closed(self) -> bool:
        self._connection.close()
        return True

    def close(self) -> None:
        assert self._closed


def bound_text(statement: Statement) -> tuple[Any, dict[str, Any]]:
    """A statement and its values as SQLAlchemy takes them."""
    import sqlalchemy as sa

    parts = [part.replace(":", "\\:") for part in divided(statement.text)]
    text = "".join(part + (f":p{n}" if n < len(parts) - 1 else "") for n, part in enumerate(parts))
    # Moments are compared with times that have no zone.
    values = [v.replace(tzinfo=None) if hasattr(v, "tzinfo") else v for v in statement.values]
    return sa.text(text), {f"p{n}": value for n, value in enumerate(values)}


def validate(spec: SourceSpec) -> str | None:
    if not address(spec.uri, spec.values)[0]:
        return "sql:// names a driver: sql://sqlite:/data/parts.db?table=parts."
    return validate_any(spec)


PLUGIN = replace(database_source(SCHEME, OPTIONS, SqlServer, DIALECT), validate=validate)
