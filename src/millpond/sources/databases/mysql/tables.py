"""mysql:// and mariadb://: tables, views and queries of MySQL and MariaDB as tables.

Guarantee: a table equals what one transaction of the server sees, whatever is written meanwhile.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from millpond.contracts.source import SourceSpec
from millpond.databases.address import Address, address_of, unknown_table
from millpond.databases.mysql.connection import DATETIME, FLOAT, PORT, SCHEME, connect, translated, type_of
from millpond.databases.mysql.text_rows import batch_of_texts
from millpond.databases.pool import Pool
from millpond.databases.sessions import Server, Session
from millpond.databases.sql_text import Dialect, Selection, Statement, divided, key_of
from millpond.errors import SourceError
from millpond.schema import Column, Schema

# Collations are usually case-insensitive: equality finds at least the texts that Spark finds.
DIALECT = Dialect("`", strings=("=", "in"))
CATALOG, SESSION = "catalog", "session"
KEY_QUERY = """
SELECT column_name FROM information_schema.key_column_usage
WHERE table_schema = %s AND table_name = %s AND constraint_name = 'PRIMARY' ORDER BY ordinal_position
"""
TABLES_QUERY = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY 1 LIMIT 1000"
NO_TABLE = 1146


class MysqlServer(Server):
    """One database of MySQL or MariaDB; a connection for the catalog, and one for each session."""

    def __init__(self, spec: SourceSpec, pool: Pool) -> None:
        self.spec = self._spec = spec
        self._pool = pool
        self._address: Address = address_of(SCHEME, spec.values, PORT)
        self._connection = pool.take(CATALOG, lambda: connect(spec.values, spec.base), _validated)
        try:
            self._columns = self._described()
        except BaseException:
            self._connection.close()
            raise

    def _described(self) -> Schema:
        source = Selection(self._spec, DIALECT, None).source()
        try:
            with translated(self._address, self._spec.shown), self._connection.cursor() as cursor:
                cursor.execute(*bound_text(Statement(f"SELECT * FROM {source.text} LIMIT 0", source.values)))
                fields = cursor._result.fields
        except SourceError as error:
            number = error.__cause__.args[0] if error.__cause__ is not None and error.__cause__.args else 0
            raise (self._no_table() if number == NO_TABLE and self._spec.values.get("table") else error) from error
        names = [field.name for field in fields]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            hint = "Give each column of the query a name of its own, with AS."
            raise SourceError("MP508", f"The query of {self._spec.shown} yields '{twice}' twice.", hint=hint)
        self._codes = {field.name: field.type_code for field in fields}
        return Schema.of(Column(field.name, type_of(field)) for field in fields)

    def _rows(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with translated(self._address), self._connection.cursor() as cursor:
            cursor.execute(query, values)
            return list(cursor.fetchall())

    @property
    def _database(self) -> str | None:
        found: str | None = self._spec.values.get("schema") or self._address.database
        return found

    def _no_table(self) -> SourceError:
        known = [name for (name,) in self._rows(TABLES_QUERY, [self._database])]
        message, hint = unknown_table(self._address.shown, self._spec.values["table"], known)
        return SourceError("MP508", message, hint=hint)

    @cached_property
    def _schema(self) -> Schema:
        table = self._spec.values.get("table")
        key = [name for (name,) in self._rows(KEY_QUERY, [self._database, table])] if table else []
        return key_of(self._spec, self._columns, key)

    def columns(self) -> Schema:
        return self._schema

    def selection(self) -> Selection:
        # The text of a FLOAT has only six digits; that of a DOUBLE has all.
        exact = {name: f"{DIALECT.name(name)} + 0e0" for name, code in self._codes.items() if code == FLOAT}
        return Selection(self._spec, DIALECT, self._schema, exact)

    def session(self) -> Session:
        found = MysqlSession(self._spec, self._schema, self._zones, self._pool)
        found.begin()
        return found

    def session_over(self, connection: Any) -> MysqlSession:
        """A session in the transaction of a connection."""
        return MysqlSession(self._spec, self._schema, self._zones, self._pool, connection)

    @property
    def _zones(self) -> dict[str, str]:
        """The zone of each column of times: a TIMESTAMP is sent in that of the connection, UTC."""
        local = self._spec.values["time.zone"]
        return {name: local if code == DATETIME else "UTC" for name, code in self._codes.items()}

    def estimate(self) -> int | None:
        table = self._spec.values.get("table")
        if table is None or self._spec.values.get("where") or self._spec.wanted.predicates:
            return None
        query = "SELECT table_rows FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
        found = self._rows(query, [self._database, table])
        return int(found[0][0]) if found and found[0][0] else None

    def close(self) -> None:
        self._pool.give(CATALOG, self._connection) if self._connection.open else self._connection.close()


class MysqlSession(Session):
    """A transaction whose rows are streamed, as texts."""

    def __init__(
        self, spec: SourceSpec, schema: Schema, zones: dict[str, str], pool: Pool, connection: Any = None
    ) -> None:
        self._spec, self._columns, self._zones, self._pool = spec, schema, zones, pool
        self._address = address_of(SCHEME, spec.values, PORT)
        self._is_own = connection is None
        self._connection = connection or pool.take(SESSION, lambda: open_session(spec), _validated)
        # A connection whose rows were not all read cannot be used again.
        self._is_reading = False

    def begin(self) -> None:
        """Begin the transaction."""
        with translated(self._address), self._connection.cursor() as cursor:
            begin_snapshot(cursor, self._spec.values["transaction.isolation"])

    def value(self, statement: Statement) -> Any:
        with translated(self._address, self._spec.shown), self._connection.cursor() as cursor:
            cursor.execute(*bound_text(statement))
            row = cursor.fetchone()
        return None if row is None else row[0]

    def read(self, selection: Selection, statement: Statement) -> Iterator[pa.RecordBatch]:
        from pymysql.cursors import SSCursor

        columns = [self._columns[name] for name in selection.names or self._columns.names]
        zones = [self._zones[column.name] for column in columns]
        rows_max = self._spec.values["fetch.size"]
        rows_max = min(rows_max, self._spec.values["batch.size"] or rows_max)
        self._is_reading = True
        with translated(self._address, self._spec.shown):
            cursor = self._connection.cursor(SSCursor)
            cursor.execute(*bound_text(statement))
            while rows := cursor.fetchmany(rows_max):
                yield batch_of_texts(rows, columns, zones)
            cursor.close()
        self._is_reading = False

    def close(self) -> None:
        if self._is_reading:
            # Closing it properly would read all rows that are left.
            self._connection._force_close()
            return
        if not self._is_own:
            return
        try:
            self._connection.rollback()
        except Exception:
            self._connection._force_close()
        else:
            self._pool.give(SESSION, self._connection)


def open_session(spec: SourceSpec) -> Any:
    """A connection for sessions: its values are bytes, as the server sends them."""
    return connect(spec.values, spec.base, decodes=False)


def begin_snapshot(cursor: Any, isolation: str) -> None:
    """Begin a transaction that sees one state of the database."""
    cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation.upper()}")
    cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")


def _validated(connection: Any, query: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(query)


def bound_text(statement: Statement) -> tuple[str, list[Any] | None]:
    """A statement and its values as the driver takes them."""
    if not statement.values:
        return statement.text, None
    values = [v.replace(tzinfo=None) if isinstance(v, dt.datetime) else v for v in statement.values]
    return "%s".join(part.replace("%", "%%") for part in divided(statement.text)), values
