"""mysql:// and mariadb://: tables, views and queries of MySQL and MariaDB as tables.

Guarantee: a table equals what one transaction of the server sees, whatever is written meanwhile.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.source import Mode, Patience, SourcePlugin, SourceSpec
from millpond.databases.address import Address, address_of, completed, said_by, unknown_table
from millpond.databases.mysql.connection import PORT, SCHEME, connect, translated, type_of
from millpond.databases.options import CONNECTION, PACE, PARAMETERS, READING, captured
from millpond.databases.pool import Pool
from millpond.databases.server import Server, Session
from millpond.databases.statements import Dialect, Selection, Statement, divided, key_of
from millpond.databases.values import batch_of
from millpond.errors import NotYetError, SourceError
from millpond.options import BOOLEAN, TEXT, Option
from millpond.schema import Column, Schema
from millpond.sources.databases.plugin import notes, sent_by, unseen
from millpond.sources.databases.plugin import validate as validate_any
from millpond.sources.databases.table import DatabaseTable, catalog_columns

if TYPE_CHECKING:
    pass

# Collations are usually case-insensitive: equality finds at least the texts that Spark finds.
DIALECT = Dialect("`", strings=("=", "in"))
CATALOG, SESSION = "catalog", "session"
NOT_READ = ("parallel.readers", "max.rows.per.batch")
# Options of captured changes, which are only understood.
LATER = ("cdc", "binlog.file", "binlog.position")
OPTIONS = (
    *CONNECTION,
    *(option for option in READING if option.name not in NOT_READ),
    Option("cdc", BOOLEAN, "false", "Whether every change is captured as it happens; not in this version."),
    captured("binlog.file", TEXT, None, "The file of the log in which capture starts; not in this version."),
    captured("binlog.position", TEXT, None, "The position in that file; not in this version."),
)
KEY_QUERY = """
SELECT column_name FROM information_schema.key_column_usage
WHERE table_schema = %s AND table_name = %s AND constraint_name = 'PRIMARY' ORDER BY ordinal_position
"""
TABLES_QUERY = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY 1 LIMIT 1000"
NO_TABLE = 1146
# Dates that no calendar has, such as 0000-00-00, which the driver leaves as texts.
ZERO_DATE = re.compile(r"(\d{4}-\d\d-\d\d)")


class MysqlServer(Server):
    """One database of MySQL or MariaDB; a connection for the catalog, and one for each session."""

    def __init__(self, spec: SourceSpec, pool: Pool) -> None:
        self._spec, self._pool = spec, pool
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
        return Selection(self._spec, DIALECT, self._schema)

    def session(self) -> Session:
        return MysqlSession(self._spec, self._schema, self._pool)

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
    """A transaction whose rows are streamed."""

    def __init__(self, spec: SourceSpec, schema: Schema, pool: Pool) -> None:
        self._spec, self._columns, self._pool = spec, schema, pool
        self._address = address_of(SCHEME, spec.values, PORT)
        self._connection = pool.take(SESSION, lambda: connect(spec.values, spec.base), _validated)
        # A connection whose rows were not all read cannot be used again.
        self._is_reading = False
        with translated(self._address), self._connection.cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {spec.values['transaction.isolation'].upper()}")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")

    def value(self, statement: Statement) -> Any:
        with translated(self._address, self._spec.shown), self._connection.cursor() as cursor:
            cursor.execute(*bound_text(statement))
            row = cursor.fetchone()
        return None if row is None else row[0]

    def read(self, selection: Selection, statement: Statement) -> Iterator[pa.RecordBatch]:
        from pymysql.cursors import SSCursor

        columns = [self._columns[name] for name in selection.names or self._columns.names]
        rows_max, zone = self._spec.values["fetch.size"], self._spec.values["time.zone"]
        rows_max = min(rows_max, self._spec.values["batch.size"] or rows_max)
        times = [n for n, c in enumerate(columns) if pa.types.is_temporal(c.type)]
        self._is_reading = True
        with translated(self._address, self._spec.shown):
            cursor = self._connection.cursor(SSCursor)
            cursor.execute(*bound_text(statement))
            while rows := cursor.fetchmany(rows_max):
                yield batch_of(_without_zero_dates(rows, times), columns, zone)
            cursor.close()
        self._is_reading = False

    def close(self) -> None:
        if self._is_reading:
            # Closing it properly would read all rows that are left.
            self._connection._force_close()
            return
        try:
            self._connection.rollback()
        except Exception:
            self._connection._force_close()
        else:
            self._pool.give(SESSION, self._connection)


def _without_zero_dates(rows: Sequence[Sequence[Any]], times: list[int]) -> Sequence[Sequence[Any]]:
    """Rows with NULL in place of dates that no calendar has."""
    if not any(isinstance(row[n], str) for row in rows for n in times):
        return rows
    return [[None if n in times and _is_zero(value) else value for n, value in enumerate(row)] for row in rows]


def _is_zero(value: Any) -> bool:
    found = ZERO_DATE.match(value) if isinstance(value, str) else None
    if found is None:
        return False
    try:
        dt.date.fromisoformat(found[1])
    except ValueError:
        return True
    return False


def _validated(connection: Any, query: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(query)


def bound_text(statement: Statement) -> tuple[str, list[Any] | None]:
    """A statement and its values as the driver takes them."""
    if not statement.values:
        return statement.text, None
    values = [v.replace(tzinfo=None) if isinstance(v, dt.datetime) else v for v in statement.values]
    return "%s".join(part.replace("%", "%%") for part in divided(statement.text)), values


def validate(spec: SourceSpec) -> str | None:
    later = next((name for name in LATER if spec.values.get(name)), None)
    if later is not None:
        raise NotYetError("MP901", f"'{later}' of MySQL is not supported in this version.")
    return validate_any(spec)


PLUGIN = SourcePlugin(
    name=SCHEME,
    options=OPTIONS,
    stream_mode=Mode.SNAPSHOT,
    table_mode=Mode.SNAPSHOT,
    parameters=PARAMETERS,
    open_table=lambda spec: DatabaseTable(spec, MysqlServer),
    sample=lambda spec, spark: catalog_columns(spec, MysqlServer),
    has_catalog=True,
    watched=lambda values: values["poll.interval"] is not None,
    pace=PACE,
    patience=Patience.with_a_server,
    validate=validate,
    said_by=said_by,
    located=lambda uri, given, named: completed(SCHEME, uri, given, named),
    sent=lambda spec: sent_by(spec, DIALECT),
    unseen=unseen,
    notes=notes,
)
