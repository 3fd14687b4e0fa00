"""postgresql://: tables, views and queries of PostgreSQL as tables.

Guarantee: a table equals what one transaction of the server sees, whatever is written meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.source import BAD, RAW, SourceSpec
from millpond.databases.address import Address, address_of, unknown_table
from millpond.databases.driver_values import Reasons, in_zone
from millpond.databases.pool import Pool
from millpond.databases.postgresql.connection import PORT, SCHEME, connect, connection_values, translated
from millpond.databases.postgresql.copy_texts import array_text, value_texts
from millpond.databases.postgresql.types import KEY_TYPES, STAMP, UUID, PgType, from_texts, type_of
from millpond.databases.sessions import KEYS_MAX, Server, Session
from millpond.databases.sql_text import MARK, Dialect, Selection, Statement, key_of
from millpond.errors import SourceError
from millpond.schema import Column, Schema

# With collations that are not deterministic, equality finds more texts than Spark does, and <> fewer.
DIALECT = Dialect('"', strings=("=", "in"))
ODD = "_mp_odd"
UUID_TEXT = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
# Rows of a portion, whatever is asked for.
ROWS_MAX = 1_000_000
# The fewest rows of an estimate by the query's plan.
ESTIMATED_MIN = 10_000
# Kinds of connections.
CATALOG, SESSION = "catalog", "session"
KEY_QUERY = """
SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indrelid = %s::regclass AND i.indisprimary ORDER BY array_position(i.indkey::int2[], a.attnum)
"""
GENERATED_QUERY = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attgenerated <> ''"
TABLES_QUERY = """
SELECT n.nspname, c.relname, pg_table_is_visible(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND has_table_privilege(c.oid, 'SELECT') ORDER BY 1, 2 LIMIT 10000
"""


class PostgresServer(Server):
    """One database of PostgreSQL; a connection for the catalog, and one for each session."""

    is_parallel = True

    def __init__(self, spec: SourceSpec, pool: Pool) -> None:
        self._spec, self._pool = spec, pool
        self._address: Address = address_of(SCHEME, spec.values, PORT)
        self._connection = pool.take(CATALOG, lambda: connect(spec.values, spec.base), _validated)
        try:
            self._types = self._described()
        except BaseException:
            self._connection.close()
            raise

    @property
    def _what(self) -> str:
        table = self._spec.values.get("table")
        return f"table '{table}' of {self._address.shown}" if table else f"the query of {self._spec.shown}"

    def _described(self) -> dict[str, PgType]:
        """The columns of what is read, as the server describes an empty result."""
        import psycopg

        source = Selection(self._spec, DIALECT, None).source()
        text = f"SELECT * FROM {literal_text(source)} LIMIT 0"
        try:
            with translated(self._address, self._what), self._connection.cursor() as cursor:
                cursor.execute(text)
                result = cursor.pgresult
                assert result is not None
                found = [(result.fname(n), result.ftype(n), result.fmod(n)) for n in range(result.nfields)]
        except SourceError as error:
            missing = isinstance(error.__cause__, psycopg.errors.UndefinedTable) and self._spec.values.get("table")
            raise (self._no_table() if missing else error) from error
        names = [(name or b"").decode() for name, _, _ in found]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None or not names:
            wrong = f"yields '{twice}' twice" if names else "has no columns"
            message = f"{self._what[0].upper()}{self._what[1:]} {wrong}."
            hint = "Give each column of the query a name of its own, with AS." if names else "Add a column to it."
            raise SourceError("MP508", message, hint=hint)
        elements = self._elements([oid for _, oid, _ in found])
        self.generated = self._generated()
        found = [(name, oid, modifier) for name, oid, modifier in found if (name or b"").decode() not in self.generated]
        names = [name for name in names if name not in self.generated]
        return {name: type_of(oid, modifier, elements) for name, (_, oid, modifier) in zip(names, found, strict=True)}

    def _elements(self, oids: list[int]) -> dict[int, int]:
        query = "SELECT oid, typelem FROM pg_type WHERE typcategory = 'A' AND oid = ANY (%s)"
        with translated(self._address), self._connection.cursor() as cursor:
            return dict(cursor.execute(query, [oids]).fetchall())

    def _generated(self) -> list[str]:
        """The columns whose values are generated, which captured changes do not have."""
        if not self._spec.values.get("cdc") or self._relation is None:
            return []
        with translated(self._address), self._connection.cursor() as cursor:
            return [name for (name,) in cursor.execute(GENERATED_QUERY, [self._relation]).fetchall()]

    def _no_table(self) -> SourceError:
        table, schema = self._spec.values["table"], self._spec.values.get("schema")
        with translated(self._address), self._connection.cursor() as cursor:
            found = cursor.execute(TABLES_QUERY).fetchall()
        known = [name for home, name, visible in found if (visible if schema is None else home == schema)]
        message, hint = unknown_table(self._address.shown, table, known)
        homes = [home for home, name, _ in found if name == table]
        if homes:
            hint = f"It is in the schema {' and '.join(homes)}: write schema={homes[0]}."
        return SourceError("MP508", message, hint=hint)

    @property
    def _relation(self) -> str | None:
        """The table as PostgreSQL writes its name; None for a query."""
        return None if self._spec.values.get("query") else Selection(self._spec, DIALECT, None).source().text

    @cached_property
    def _schema(self) -> Schema:
        columns = Schema.of(Column(name, type_.arrow) for name, type_ in self._types.items())
        key: list[str] = []
        if self._relation is not None:
            with translated(self._address, self._what), self._connection.cursor() as cursor:
                key = [name for (name,) in cursor.execute(KEY_QUERY, [self._relation]).fetchall()]
        return key_of(self._spec, columns, key)

    def columns(self) -> Schema:
        return self._schema

    def selection(self) -> Selection:
        plain = Selection(self._spec, DIALECT, self._schema)
        names = [name for name in self._types if plain.names is None or name in plain.names]
        selected = {name: self._types[name].selected(DIALECT.name(name)) for name in names}
        times = [name for name in names if self._types[name].is_time]
        beside = (self._odd(times),) if times else ()
        expressions = {name: text for name, text in selected.items() if text is not None}
        return Selection(self._spec, self._dialect, self._schema, expressions, beside=beside)

    @cached_property
    def _dialect(self) -> Dialect:
        others = (n for n, type_ in self._types.items() if pa.types.is_string(type_.arrow) and not type_.is_direct)
        return replace(DIALECT, others=frozenset(others))

    def among(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> list[Selection]:
        keys = self._possible(columns, keys)
        compared = [self._compared(name) for name in columns]
        found = []
        for first in range(0, len(keys[0]), KEYS_MAX):
            chunks = [pa.chunked_array([key.slice(first, KEYS_MAX)]) for key in keys]
            lists = [array_text(value_texts(chunk, is_array=False).to_pylist()) for chunk in chunks]
            arrays = ", ".join(f"{MARK}::{type_}[]" for _, type_ in compared)
            if len(columns) == 1:
                condition = f"{compared[0][0]} = ANY ({arrays})"
            else:
                condition = f"({', '.join(text for text, _ in compared)}) IN (SELECT * FROM unnest({arrays}))"
            found.append(self.selection().where(condition, *lists))
        return found

    def _compared(self, name: str) -> tuple[str, str]:
        """What is compared with a key, and the type of both."""
        oid, quoted = self._types[name].oid, DIALECT.name(name)
        if oid == STAMP:
            return f"({quoted} AT TIME ZONE {literal(self._spec.values['time.zone'])})", "timestamptz"
        return (quoted, KEY_TYPES[oid]) if oid in KEY_TYPES else (f"{quoted}::text", "text")

    def _possible(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> Sequence[pa.Array]:
        """The keys that a row can have: the server would reject the others."""
        for name, key in zip(columns, keys, strict=True):
            if pa.types.is_string(key.type):
                is_uuid = self._types[name].oid == UUID
                there = pc.match_substring_regex(key, UUID_TEXT if is_uuid else r"^[^\x00]*$")
                keys = [other.filter(there) for other in keys] if not pc.all(there).as_py() else keys
        return keys

    def _odd(self, times: list[str]) -> str:
        """The times of a row as text, where one of them is outside of what Spark has, such as infinity."""
        conditions = " OR ".join(self._types[name].is_odd(DIALECT.name(name)) for name in times)
        named = dict.fromkeys((*self._schema.key, *times))
        pairs = ", ".join(f"{literal(name)}, {DIALECT.name(name)}::text" for name in named)
        return f"CASE WHEN {conditions} THEN json_build_object({pairs})::text END AS {DIALECT.name(ODD)}"

    def session(self) -> Session:
        return PostgresSession(self._spec, self._types, self._pool, None)

    def session_of(self, snapshot: str) -> PostgresSession:
        """A session of a snapshot that was exported."""
        return PostgresSession(self._spec, self._types, self._pool, snapshot)

    def estimate(self) -> int | None:
        is_whole = not (self._spec.values.get("where") or self._spec.wanted.predicates)
        with translated(self._address, self._what), self._connection.cursor() as cursor:
            if self._relation is not None and is_whole:
                query = "SELECT reltuples::bigint FROM pg_class WHERE oid = %s::regclass"
                row = cursor.execute(query, [self._relation]).fetchone()
                if row is not None and row[0] > 0:
                    return int(row[0])
            plan = cursor.execute(f"EXPLAIN (FORMAT JSON) {literal_text(self.selection().statement())}").fetchone()
        assert plan is not None
        rows = int(plan[0][0]["Plan"]["Plan Rows"])
        # Of small tables that were never analysed the server assumes far too much.
        return rows if rows >= ESTIMATED_MIN else None

    def close(self) -> None:
        if self._connection.broken or self._connection.closed:
            self._connection.close()
        else:
            self._pool.give(CATALOG, self._connection)


def _validated(connection: Any, query: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(query)


class PostgresSession(Session):
    """A transaction that reads by binary COPY, through ADBC. NUMERIC is sent as text, which is exact."""

    def __init__(self, spec: SourceSpec, types: Mapping[str, PgType], pool: Pool, snapshot: str | None) -> None:
        self._spec, self._types, self._pool = spec, types, pool
        self._address = address_of(SCHEME, spec.values, PORT)
        with translated(self._address):
            self._connection = pool.take(SESSION, self._opened, _validated)
            isolation = spec.values["transaction.isolation"].upper()
            if snapshot is not None and isolation == "READ COMMITTED":
                # Only these transactions keep to a snapshot.
                isolation = "REPEATABLE READ"
            self._run(f"BEGIN ISOLATION LEVEL {isolation} READ ONLY")
            if snapshot is not None:
                self._run(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")

    def _opened(self) -> Any:
        from adbc_driver_postgresql import dbapi
        from psycopg.conninfo import make_conninfo

        place = make_conninfo(**connection_values(self._spec.values, self._spec.base))
        return dbapi.connect(place, autocommit=True)

    def _run(self, text: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.adbc_statement.set_sql_query(text)
            cursor.adbc_statement.execute_update()

    def value(self, statement: Statement) -> Any:
        with translated(self._address), self._connection.cursor() as cursor:
            cursor.execute(literal_text(statement))
            row = cursor.fetchone()
        return None if row is None else row[0]

    def sibling(self) -> Session:
        snapshot = self.value(Statement("SELECT pg_export_snapshot()"))
        return PostgresSession(self._spec, self._types, self._pool, snapshot)

    def read(self, selection: Selection, statement: Statement) -> Iterator[pa.RecordBatch]:
        names = selection.names or tuple(self._types)
        rows_max = min(self._spec.values["fetch.size"], self._spec.values["batch.size"] or ROWS_MAX)
        with translated(self._address, self._spec.shown), self._connection.cursor() as cursor:
            cursor.execute(literal_text(statement))
            for batch in cursor.fetch_record_batch():
                for first in range(0, batch.num_rows, rows_max):
                    yield self._decoded(batch.slice(first, rows_max), names)

    def _decoded(self, rows: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch:
        reasons: Reasons = {}
        columns = [self._column(rows.column(n), name, reasons) for n, name in enumerate(names)]
        raw: list[bytes | None] = [None] * rows.num_rows
        if rows.num_columns > len(names):
            for row in pc.indices_nonzero(pc.is_valid(rows.column(len(names)))).to_pylist():
                text = rows.column(len(names))[row].as_py()
                reasons.setdefault(row, f"a time is not between the years 1 and 9999: {text}")
                raw[row] = text.encode()
        if not reasons:
            nothing = [pa.nulls(rows.num_rows, pa.string()), pa.nulls(rows.num_rows, pa.binary())]
            return pa.RecordBatch.from_arrays([*columns, *nothing], names=[*names, BAD, RAW])
        bad = pa.array([row in reasons for row in range(rows.num_rows)])
        columns = [pc.if_else(bad, pa.scalar(None, column.type), column) for column in columns]
        whys = pa.array([reasons.get(row) for row in range(rows.num_rows)], pa.string())
        return pa.RecordBatch.from_arrays([*columns, whys, pa.array(raw, pa.binary())], names=[*names, BAD, RAW])

    def _column(self, values: pa.Array, name: str, reasons: Reasons) -> pa.Array:
        type_ = self._types[name]
        if not type_.is_direct:
            return from_texts(values.cast(pa.string()), type_, name, reasons, self._spec.values["time.zone"])
        if type_.oid == STAMP:
            return in_zone(values.cast(pa.timestamp("us")), self._spec.values["time.zone"])
        return values if values.type == type_.arrow else values.cast(type_.arrow)

    def close(self) -> None:
        try:
            self._run("ROLLBACK")
        except Exception:
            self._connection.close()
        else:
            self._pool.give(SESSION, self._connection)


def literal(value: Any) -> str:
    """A value as PostgreSQL reads it: COPY takes no parameters, so it is quoted by the driver's own rules."""
    from psycopg import sql

    return str(sql.Literal(value).as_string(None))


def literal_text(statement: Statement) -> str:
    """A statement with its values in place."""
    texts = [literal(value) for value in statement.values]
    return statement.numbered(lambda n: texts[n])
