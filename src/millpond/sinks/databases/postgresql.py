"""postgresql:// as a sink: rows are copied into a temporary table, and upserted or appended from there.

Guarantee: exactly once; see `sink`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa

from millpond.contracts.sink import SinkSpec
from millpond.databases.address import Address, address_of
from millpond.databases.postgresql.connection import (
    COLUMNS_QUERY,
    KEYS_QUERY,
    PORT,
    SCHEME,
    connect,
    quoted,
    translated,
)
from millpond.databases.postgresql.copy_texts import copy_bytes, type_text
from millpond.databases.postgresql.types import PgType, type_of
from millpond.schema import Column, Schema
from millpond.sinks.databases.sink import COMMITS, DELETE, OPERATION, Write
from millpond.sinks.databases.transactional import TransactionalTarget, transactional_sink

ROWS, NUMBER, OP = "millpond_rows", "millpond_number", "millpond_op"
# Kinds of values that a column of each kind of type takes: those of PostgreSQL's catalog.
NUMBERS, TEXTS, TIMES, BOOLEANS, ARRAYS = "N", "S", "D", "B", "A"


class PostgresTarget(TransactionalTarget):
    """One table of PostgreSQL, over one connection."""

    product = "PostgreSQL"

    def __init__(self, spec: SinkSpec) -> None:
        super().__init__(spec)
        self._address: Address = address_of(SCHEME, spec.values, PORT)
        with self.translated():
            self._connection = connect(spec.values, spec.base)
        parts = [spec.values["schema"], spec.values["table"]] if spec.values["schema"] else [spec.values["table"]]
        self._table = ".".join(map(quoted, parts))
        self._describe()

    def driver_errors(self) -> AbstractContextManager[None]:
        return translated(self._address, self._spec.shown)

    def run(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        found = self._connection.execute(text, values or None)
        return found.fetchall() if found.description is not None else []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._connection.transaction():
            yield

    def _describe(self) -> None:
        with self.translated(), self._connection.transaction(), self._connection.cursor() as cursor:
            found = cursor.execute(COLUMNS_QUERY, [self._table]).fetchall()
            indexes = cursor.execute(KEYS_QUERY, [self._table]).fetchall()
        self._kinds = {name: (category, type_) for name, _, _, _, category, type_, _ in found}
        self.required = tuple(row[0] for row in found if row[-1])
        self._unique = [set(names) for _, names in indexes]
        key: list[str] = next((names for is_primary, names in indexes if is_primary), [])
        columns = [Column(name, _arrow(oid, mod, element)) for name, oid, mod, element, *_ in found]
        self.columns = Schema.of(columns, key) if columns else None

    def create(self, columns: Schema) -> None:
        parts = [f"{quoted(c.name)} {type_text(c.type)}" for c in columns if c.type is not None]
        if columns.key:
            parts.append(f"PRIMARY KEY ({', '.join(map(quoted, columns.key))})")
        with self.translated(), self._connection.transaction():
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({', '.join(parts)})")
        self._describe()

    def has_unique(self, key: Sequence[str]) -> bool:
        return set(key) in self._unique

    def accepts(self, type_: pa.DataType, column: Column) -> bool:
        category: str
        name: str
        category, name = self._kinds[column.name]
        if category == TEXTS:
            return True
        if pa.types.is_boolean(type_):
            return category == BOOLEANS
        if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
            return category == NUMBERS
        if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
            return category == TIMES and (name != "date" or bool(pa.types.is_date(type_)))
        if pa.types.is_list(type_):
            return category == ARRAYS or name in ("json", "jsonb")
        if pa.types.is_struct(type_) or pa.types.is_map(type_):
            return name in ("json", "jsonb")
        if pa.types.is_binary(type_):
            return name == "bytea"
        # A text is read by the column's own type, such as uuid, json, inet or an enum.
        return category not in (NUMBERS, BOOLEANS, ARRAYS, TIMES) and name != "bytea"

    def make_commits(self) -> None:
        """Asked first, because a user who may not create tables can still use an existing one."""
        with self.transaction():
            there = self.run("SELECT to_regclass(%s)", [COMMITS])
            if there[0][0] is None:
                columns = "flow TEXT PRIMARY KEY, mark TEXT NOT NULL, committed_at TIMESTAMPTZ NOT NULL DEFAULT now()"
                self.run(f"CREATE TABLE IF NOT EXISTS {COMMITS} ({columns})")

    def add_owner(self, owner: str) -> None:
        self.run(f"INSERT INTO {COMMITS} (flow, mark) VALUES (%s, '') ON CONFLICT (flow) DO NOTHING", [owner])

    def prepared(self, schema: pa.Schema, key: tuple[str, ...]) -> Write:
        merge = self._merge(schema, key)

        def write(rows: pa.Table) -> None:
            self._copy(rows)
            for statement in merge:
                self.run(statement)
            self.run(f"DELETE FROM {ROWS}")

        return write

    def rejection(self, error: Exception) -> str | None:
        import psycopg

        if not isinstance(error, psycopg.DataError | psycopg.IntegrityError):
            return None
        detail = f" {error.diag.message_detail}" if error.diag.message_detail else ""
        return f"{error.diag.message_primary or error}.{detail}"

    def _merge(self, schema: pa.Schema, key: tuple[str, ...]) -> list[str]:
        """Make the temporary table; returns the statements that bring its rows into the target."""
        assert self.columns is not None
        names = [self.columns[name].name for name in schema.names if name != OPERATION]
        listed = ", ".join(map(quoted, names))
        made = f"SELECT {listed}, 0::bigint AS {NUMBER}, ''::text AS {OP} FROM {self._table}"
        self._connection.execute(f"CREATE TEMPORARY TABLE {ROWS} ON COMMIT DROP AS {made} WITH NO DATA")
        if not key:
            return [f"INSERT INTO {self._table} ({listed}) SELECT {listed} FROM {ROWS} ORDER BY {NUMBER}"]
        keys = ", ".join(map(quoted, key))
        last = f"(SELECT DISTINCT ON ({keys}) * FROM {ROWS} ORDER BY {keys}, {NUMBER} DESC) AS n"
        others = [name for name in names if name not in key]
        sets = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
        conflict = f"ON CONFLICT ({keys}) DO {f'UPDATE SET {sets}' if sets else 'NOTHING'}"
        equal = " AND ".join(f"t.{quoted(name)} = n.{quoted(name)}" for name in key)
        deletes = f"DELETE FROM {self._table} AS t USING {last} WHERE {OP} = '{DELETE}' AND {equal}"
        kept = f"SELECT {listed} FROM {last} WHERE {OP} IS DISTINCT FROM '{DELETE}'"
        upsert = f"INSERT INTO {self._table} ({listed}) {kept} {conflict}"
        return [deletes, upsert] if OPERATION in schema.names else [upsert]

    def _copy(self, rows: pa.Table) -> None:
        assert self.columns is not None
        names = [name for name in rows.column_names if name != OPERATION]
        listed = ", ".join(quoted(self.columns[name].name) for name in names)
        arrays = {name: self._kinds[self.columns[name].name][0] == ARRAYS for name in names}
        operations = rows[OPERATION] if OPERATION in rows.column_names else None
        text = f"COPY {ROWS} ({listed}, {NUMBER}, {OP}) FROM STDIN (FORMAT csv)"
        with self._connection.cursor() as cursor, cursor.copy(text) as copy:
            copy.write(copy_bytes(rows.select(names), arrays, operations))

    def close(self) -> None:
        self._connection.close()


def _arrow(oid: int, modifier: int, element: int) -> pa.DataType:
    known: PgType = type_of(oid, modifier, {oid: element} if element else {})
    return known.arrow


PLUGIN = transactional_sink(SCHEME, PostgresTarget)
