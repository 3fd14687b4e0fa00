"""The PostgreSQL backend: the rows are in a table of a database, with native types, which others may read.

Rows are copied into a temporary table and upserted from there. Each change is one transaction that also writes its mark
into `millpond_commits`. An advisory lock keeps other apps out as long as this one is connected, and a change whose mark
is not the next one is rejected, so an app that lost its connection cannot overwrite what its successor wrote."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.remote_table import Mark, RowChange
from millpond.contracts.table import BackendPlugin, Capabilities, Clock, TableSpec
from millpond.databases.postgresql import bulk_rows
from millpond.databases.postgresql.bulk_rows import MARK
from millpond.databases.postgresql.connection import (
    COLUMNS_QUERY,
    KEYS_QUERY,
    PORT,
    SCHEME,
    connect,
    quoted,
    translated,
)
from millpond.databases.postgresql.copy_texts import array_text, copy_bytes, type_text, value_texts
from millpond.databases.postgresql.slot_watch import PostgresWatch
from millpond.databases.postgresql.types import type_of
from millpond.errors import ConstraintError, SourceError
from millpond.options import TEXT, Option
from millpond.schema import type_name
from millpond.tables.pushdown import SqlRules, pushed
from millpond.tables.remote.driver_rows import arrow_of, without_nul
from millpond.tables.remote.rows import RemoteRows
from millpond.tables.remote.sql_table import COMMITS, PLACE, SqlTable, held_in, wrong_url

ROWS, NUMBER, OP = "millpond_rows", "millpond_number", "millpond_op"
# How long the lock of a process that has just ended may last.
LOCK_S = 10.0
FETCH_ROWS = 50_000
# Up to this many rows are sent as arrays, which takes fewer messages; a temporary table costs some milliseconds.
ARRAY_ROWS = 5_000
# From this many keys on, rows are read without Python objects.
BULK_KEYS = 300
RULES = SqlRules(quoted, MARK, ' COLLATE "C"')
Found = TypeVar("Found")


class PostgresTable(SqlTable):
    """One table of a database."""

    rules = RULES

    def __init__(self, spec: TableSpec, owner: str) -> None:
        super().__init__(spec, owner, SCHEME, PORT, quoted)
        self._arrays: dict[str, bool] = {}
        # The types of all columns, as PostgreSQL writes them.
        self._types: dict[str, str] = {}
        self._bulk_columns = bulk_rows.selected(self._schema, quoted)

    # Connections

    @contextmanager
    def _translated(self) -> Iterator[None]:
        import psycopg

        try:
            with translated(self.address, f"table '{self._spec.name}'"):
                yield
        except SourceError as error:
            cause = error.__cause__
            if isinstance(cause, psycopg.DataError | psycopg.IntegrityError):
                reported = str(cause.diag.message_primary or cause)
                message = f"PostgreSQL cannot store a row of '{self._spec.name}': {reported}."
                raise ConstraintError("MP404", message, hint="Nothing was changed.") from error
            raise

    def connection(self) -> Any:
        """A connection that is not in use."""
        return self._pool.take("any", self._connect, lambda c, query: c.execute(query))

    def _connect(self) -> Any:
        return connect(self._values, Path())

    def release(self, connection: Any) -> None:
        """Take a connection back; one that is lost is closed."""
        if connection.closed or connection.broken or connection.info.transaction_status:
            with suppress(Exception):
                connection.close()
        else:
            self._pool.give("any", connection)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with self._translated():
            connection = self.connection()
            try:
                yield connection
            finally:
                self.release(connection)

    def _read(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement."""

        def ask() -> list[tuple[Any, ...]]:
            with self._connected() as connection:
                return list(connection.execute(text, values or None).fetchall())

        return self._asked(ask)

    def _read_bulk(self, text: str) -> pa.Table:
        """The rows of a query for `_bulk_columns`, without parameters."""

        def ask() -> pa.Table:
            with self._translated():
                connection = self._pool.take("bulk", lambda: bulk_rows.connect(self._values), bulk_rows.validate)
                try:
                    found = bulk_rows.read(connection, text, self._schema)
                except BaseException:
                    connection.close()
                    raise
                self._pool.give("bulk", connection)
                return found

        return self._asked(ask)

    def _asked(self, ask: Callable[[], Found]) -> Found:
        """What the server answers; a connection that it has closed meanwhile is replaced once."""
        for attempt in (1, 2):
            try:
                return ask()
            except SourceError as error:
                self._require_fence()
                if error.code != "MP506" or attempt == 2:
                    raise
                self._pool.close()
        raise AssertionError

    # The life of the table

    def open(self, *, known: bool) -> tuple[Mark, int]:
        if not self.is_shared:
            self._lock_out()
        with self._connected() as connection:
            connection.execute("SELECT pg_advisory_lock(hashtext('millpond_commits'))")
            try:
                columns = "flow TEXT PRIMARY KEY, mark TEXT NOT NULL, committed_at TIMESTAMPTZ NOT NULL DEFAULT now()"
                if connection.execute("SELECT to_regclass(%s)", [COMMITS]).fetchone()[0] is None:
                    connection.execute(f"CREATE TABLE IF NOT EXISTS {COMMITS} ({columns})")
            finally:
                connection.execute("SELECT pg_advisory_unlock(hashtext('millpond_commits'))")
            with connection.transaction():
                mark = self._open(connection, known=known)
            self._describe(connection)
        return Mark(mark.number, max(mark.next_row, self._next_row())), self.count()

    def _open(self, connection: Any, *, known: bool) -> Mark:
        there = connection.execute("SELECT to_regclass(%s)", [self._table]).fetchone()[0] is not None
        held = held_in(connection.execute(f"SELECT mark FROM {COMMITS} WHERE flow = %s", [self.flow]).fetchall())
        if self.is_left_behind(held, there=there, known=known):
            connection.execute(f"DROP TABLE {self._table}")
            there = False
        self.is_made = (held.made if known else not there) and not self.is_shared
        if not there:
            self._create(connection)
        elif not known:
            self._require_fit(connection)
        mark = Mark(held.version, held.row)
        text = f"INSERT INTO {COMMITS} VALUES (%s, %s) ON CONFLICT (flow) DO UPDATE SET mark = excluded.mark"
        connection.execute(text, [self.flow, self.mark_text(mark)])
        return mark

    def _lock_out(self) -> None:
        """Take the lock, which lasts as long as the connection."""
        with self._translated():
            fence, deadline = self._connect(), time.monotonic() + LOCK_S
            key = f"{self.address.database}/{self._table}"
            while not fence.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [key]).fetchone()[0]:
                if time.monotonic() > deadline:
                    fence.close()
                    raise self.in_use()
                time.sleep(0.05)
            self._fence = fence

    def _ask_fence(self) -> None:
        self._fence.execute("SELECT 1")

    def _create(self, connection: Any) -> None:
        parts = []
        for column in self._schema:
            not_null = "" if column.nullable or self._spec.null_keys else " NOT NULL"
            parts.append(f"{quoted(column.name)} {type_text(column.type)}{not_null}")
        keys = ", ".join(quoted(name) for name in self._schema.key)
        parts.append(f"UNIQUE NULLS NOT DISTINCT ({keys})" if self._spec.null_keys else f"PRIMARY KEY ({keys})")
        connection.execute(f"CREATE TABLE {self._table} ({', '.join(parts)})")

    def _require_fit(self, connection: Any) -> None:
        """MP409 with everything that differs."""
        found = {row[0]: row for row in connection.execute(COLUMNS_QUERY, [self._table]).fetchall()}
        wrong = []
        for column in self._schema:
            row = found.pop(column.name, None)
            wanted = type_text(column.type)
            if row is None:
                wrong.append(f"column '{column.name}' is missing")
                continue
            has = connection.execute("SELECT format_type(%s, %s)", [row[1], row[2]]).fetchone()[0]
            if not _fits(row, has, column.type, wanted):
                wrong.append(f"column '{column.name}' is {has}, not {wanted} ({type_name(column.type)})")
        wrong += [f"column '{name}' is NOT NULL and is not declared here" for name, row in found.items() if row[6]]
        keys = [set(names) for _, names in connection.execute(KEYS_QUERY, [self._table]).fetchall()]
        if set(self._schema.key) not in keys:
            wrong.append(f"there is no primary key or unique index on ({', '.join(self._schema.key)})")
        if wrong:
            raise self.misfit(wrong)

    def watch(self) -> PostgresWatch:
        return PostgresWatch(self._values, self._table)

    def _describe(self, connection: Any) -> None:
        for row in connection.execute(COLUMNS_QUERY, [self._table]).fetchall():
            self._arrays[row[0]] = row[4] == "A"
        self._types = dict(connection.execute(TYPES_QUERY, [self._table]).fetchall())

    def create_index(self, columns: Sequence[str]) -> None:
        with self._connected() as connection:
            names = [set(found) for (found,) in connection.execute(INDEXES_QUERY, [self._table]).fetchall()]
            if set(columns) not in names:
                connection.execute(f"CREATE INDEX ON {self._table} ({', '.join(map(quoted, columns))})")

    def drop(self) -> None:
        # A server that is away keeps the table; the next one of this name replaces it.
        with suppress(SourceError), self._connected() as connection, connection.transaction():
            if self.is_made:
                connection.execute(f"DROP TABLE IF EXISTS {self._table}")
            connection.execute(f"DELETE FROM {COMMITS} WHERE flow = %s", [self.flow])

    # Reading

    def lookup(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> pa.Table:
        keys = without_nul(keys)
        if self._bulk_columns is not None and len(keys[0]) >= BULK_KEYS:
            return self._lookup_bulk(columns, keys)
        texts = {
            name: _text_list(key, type_text(self._schema[name].type)) for name, key in zip(columns, keys, strict=True)
        }
        lists = ", ".join(f"{MARK}::{type_text(self._schema[name].type)}[]" for name in columns)
        names = ", ".join(f"k{n}" for n in range(len(columns)))
        equal = " AND ".join(_equal(f"t.{quoted(name)}", f"k.k{n}", keys[n]) for n, name in enumerate(columns))
        listed = ", ".join(f"t.{quoted(column.name)}" for column in self._schema)
        if len(columns) == 1 and not keys[0].null_count:
            text = f"SELECT {listed} FROM {self._table} AS t WHERE t.{quoted(columns[0])} = ANY ({lists})"
        else:
            source = f"(SELECT DISTINCT * FROM unnest({lists}) AS k ({names})) AS k"
            text = f"SELECT {listed} FROM {source} JOIN {self._table} AS t ON {equal}"
        return self._arrow(self._read(_marked(text), list(texts.values())))

    def _lookup_bulk(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> pa.Table:
        lists = []
        for name, key in zip(columns, keys, strict=True):
            texts = value_texts(pa.chunked_array([key]), is_array=False).to_pylist()
            lists.append(f"{bulk_rows.literal(array_text(texts))}::{type_text(self._schema[name].type)}[]")
        if len(columns) == 1 and not keys[0].null_count:
            source = f"{self._table} AS t WHERE t.{quoted(columns[0])} = ANY ({lists[0]})"
        else:
            names = ", ".join(f"k{n}" for n in range(len(columns)))
            equal = " AND ".join(_equal(f"t.{quoted(name)}", f"k.k{n}", keys[n]) for n, name in enumerate(columns))
            distinct = f"(SELECT DISTINCT * FROM unnest({', '.join(lists)}) AS k ({names})) AS k"
            source = f"{distinct} JOIN {self._table} AS t ON {equal}"
        return self._read_bulk(f"SELECT {self._bulk_columns} FROM {source}")

    def narrowed(self, condition: exp.Expression, parameters: Sequence[Any]) -> pa.Table | None:
        part = pushed(condition, self._schema, parameters, RULES)
        if part is None or any(isinstance(value, str) and "\0" in value for value in part.values):
            return None
        return self._selected(f" WHERE {bulk_rows.with_values(part.sql, part.values)}")

    def _ask(self, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._read(_marked(text) if values else text, values)

    def scan(self) -> pa.Table:
        return self._selected("")

    def _selected(self, rest: str) -> pa.Table:
        if self._bulk_columns is not None:
            return self._read_bulk(f"SELECT {self._bulk_columns} FROM {self._table} AS t{rest}")
        self._read("SELECT 1")
        parts = []
        with self._connected() as c, c.transaction(), c.cursor("millpond_scan") as cursor:
            cursor.execute(f"SELECT {self._listed} FROM {self._table} AS t{rest}")
            while rows := cursor.fetchmany(FETCH_ROWS):
                parts.append(self._arrow(rows))
        return pa.concat_tables([self._schema.arrow().empty_table(), *parts])

    def _arrow(self, rows: list[tuple[Any, ...]]) -> pa.Table:
        return self._of_rows(rows, arrow_of)

    # Writing

    def begin(self) -> PostgresPart:
        self._require_fence()
        return PostgresPart(self)

    def apply(self, connection: Any, change: RowChange) -> None:
        """Make a change in the transaction of a connection."""
        with self._translated():
            text = f"SELECT mark FROM {COMMITS} WHERE flow = %s FOR UPDATE"
            self.require_next(held_in(connection.execute(text, [self.flow]).fetchall()), change.mark)
            if change.deletes.num_rows:
                self._delete(connection, change.deletes)
            if change.upserts.num_rows:
                self._upsert(connection, change.upserts)
            text = f"UPDATE {COMMITS} SET mark = %s, committed_at = now() WHERE flow = %s"
            connection.execute(text, [self.mark_text(change.mark), self.flow])

    def _delete(self, connection: Any, keys: pa.RecordBatch) -> None:
        source, given = self._sent(connection, keys)
        equal = " AND ".join(
            _equal(f"t.{quoted(name)}", f"r.{quoted(name)}", keys.column(n)) for n, name in enumerate(keys.schema.names)
        )
        _run(connection, f"DELETE FROM {self._table} AS t USING {source} AS r WHERE {equal}", given)

    def _upsert(self, connection: Any, rows: pa.RecordBatch) -> None:
        source, given = self._sent(connection, rows)
        keys = ", ".join(quoted(name) for name in self._schema.key)
        others = [quoted(column.name) for column in self._schema if column.name not in self._schema.key]
        sets = ", ".join(f"{name} = excluded.{name}" for name in others)
        action = f"DO UPDATE SET {sets}" if sets else "DO NOTHING"
        text = f"INSERT INTO {self._table} ({self._listed}) SELECT {self._listed} FROM {source} AS r"
        _run(connection, f"{text} ON CONFLICT ({keys}) {action}", given)

    def _sent(self, connection: Any, rows: pa.RecordBatch) -> tuple[str, list[str] | None]:
        """What to select rows from, and its parameters: few rows are arrays of texts, many are copied."""
        if rows.num_rows > ARRAY_ROWS:
            self._copy(connection, rows)
            return ROWS, None
        names = rows.schema.names
        given = [
            array_text(value_texts(column, is_array=self._arrays.get(name, False)).to_pylist())
            for name, column in zip(names, pa.Table.from_batches([rows]).columns, strict=True)
        ]
        casts = ", ".join(f"c{n}::{self._types[name]} AS {quoted(name)}" for n, name in enumerate(names))
        arrays, columns = ", ".join([f"{MARK}::text[]"] * len(names)), ", ".join(f"c{n}" for n in range(len(names)))
        return f"(SELECT {casts} FROM unnest({arrays}) AS u ({columns}))", given

    def _copy(self, connection: Any, rows: pa.RecordBatch) -> None:
        """Copy rows into the temporary table of the transaction."""
        names = rows.schema.names
        listed = ", ".join(quoted(name) for name in names)
        made = f"SELECT {listed}, 0::bigint AS {NUMBER}, ''::text AS {OP} FROM {self._table}"
        connection.execute(f"DROP TABLE IF EXISTS {ROWS}")
        connection.execute(f"CREATE TEMPORARY TABLE {ROWS} ON COMMIT DROP AS {made} WITH NO DATA")
        text = f"COPY {ROWS} ({listed}, {NUMBER}, {OP}) FROM STDIN (FORMAT csv)"
        with connection.cursor() as cursor, cursor.copy(text) as copy:
            copy.write(copy_bytes(pa.Table.from_batches([rows]), {n: self._arrays.get(n, False) for n in names}, None))


class PostgresPart:
    """The part of a commit in one database."""

    def __init__(self, table: PostgresTable) -> None:
        self._table = table
        with table._translated():
            self._connection = table.connection()
            try:
                self._connection.execute("BEGIN")
            except Exception:
                # The server has closed it since it was used last.
                self._connection.close()
                self._connection = table._connect()
                self._connection.execute("BEGIN")

    def apply(self, table: PostgresTable, change: RowChange) -> None:
        table.apply(self._connection, change)

    def commit(self) -> None:
        with self._table._translated():
            self._connection.execute("COMMIT")
        self._table.release(self._connection)

    def abort(self) -> None:
        with suppress(Exception):
            self._connection.execute("ROLLBACK")
        self._table.release(self._connection)


TYPES_QUERY = """
SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
INDEXES_QUERY = """
SELECT array_agg(a.attname::text) FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indrelid = to_regclass(%s) AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid
"""


def _marked(text: str) -> str:
    """A statement for the driver, to which a % in a name is none of its own."""
    return text.replace("%", "%%").replace(MARK, "%s")


def _run(connection: Any, text: str, given: Sequence[Any] | None) -> None:
    connection.execute(text if given is None else _marked(text), given)


def _equal(left: str, right: str, values: pa.Array) -> str:
    return f"{left} IS NOT DISTINCT FROM {right}" if values.null_count else f"{left} = {right}"


def _fits(row: tuple[Any, ...], has: str, type_: pa.DataType, wanted: str) -> bool:
    """Whether an existing column has the values of a type, exactly."""
    if row[4] == "S" and pa.types.is_string(type_):
        return has == "text" or (has.startswith("character varying") and "(" not in has)
    if pa.types.is_nested(type_):
        return has in ("json", "jsonb") or has == wanted
    element = {row[1]: row[3]} if row[3] else {}
    return has == wanted or bool(type_of(row[1], row[2], element).arrow == type_)


def _text_list(values: pa.Array, type_: str) -> list[Any]:
    """Values as psycopg sends them in an array."""
    found = values.to_pylist()
    return [str(v) if isinstance(v, Decimal) else v for v in found] if type_.startswith("numeric") else found


def validate(spec: TableSpec) -> str | None:
    """What is wrong with the options, as a sentence."""
    return wrong_url(spec, SCHEME, "postgresql://user:password@host:5432/database")


def notes(spec: TableSpec) -> tuple[str, ...]:
    return PostgresTable(spec, "").notes("PostgreSQL")


def make(spec: TableSpec, clock: Clock, folder: Path | None) -> Any:
    return RemoteRows(PostgresTable, spec, clock, folder)


PLUGIN = BackendPlugin(
    name=SCHEME,
    options=(
        Option("url", TEXT, None, "The database: postgresql://user:password@host:5432/database.", secret=True),
        Option("schema", TEXT, None, "The schema of that table.", defines=True),
        *PLACE,
    ),
    capabilities=Capabilities(outside=True, remote=True),
    make=make,
    validate=validate,
    notes=notes,
    watch=lambda spec: PostgresTable(spec, "").watch(),
    help="Rows in a table of PostgreSQL, with native types; others may read it.",
)
