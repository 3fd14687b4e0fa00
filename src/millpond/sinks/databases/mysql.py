"""mysql:// and mariadb:// as a sink: rows are upserted or appended by statements of many rows.

Guarantee: exactly once; see `sink`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.sink import SinkSpec
from millpond.databases.address import Address, address_of
from millpond.databases.driver_values import last_of_each
from millpond.databases.mysql.connection import PORT, SCHEME, connect, translated, type_of
from millpond.databases.mysql.row_literals import portions, quoted, row_literals, type_text
from millpond.errors import SinkError
from millpond.schema import Column, Schema
from millpond.sinks.databases.sink import COMMITS, DELETE, OPERATION, Write
from millpond.sinks.databases.transactional import TransactionalTarget, transactional_sink

# Values that do not fit are errors, and a backslash is an escape, whatever the server is set to.
MODE = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,NO_AUTO_VALUE_ON_ZERO"
COLUMNS_QUERY = """
SELECT column_name, data_type, is_nullable = 'NO' AND column_default IS NULL AND extra NOT LIKE '%%auto_increment%%'
       AND extra NOT LIKE '%%GENERATED%%'
FROM information_schema.columns WHERE table_schema = coalesce(%s, database()) AND table_name = %s
"""
INDEXES_QUERY = """
SELECT index_name, column_name FROM information_schema.statistics
WHERE table_schema = coalesce(%s, database()) AND table_name = %s AND non_unique = 0 ORDER BY index_name, seq_in_index
"""
ENGINE_QUERY = """
SELECT t.engine, e.transactions
FROM information_schema.tables t JOIN information_schema.engines e ON e.engine = t.engine
WHERE t.table_schema = coalesce(%s, database()) AND t.table_name = %s
"""
COMMITS_COLUMNS = (
    "flow VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, mark TEXT NOT NULL,"
    " committed_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
)
# Errors of a value that the driver does not list among them: a CHECK, a trigger, and our own below.
REJECTED = (1242, 1265, 1292, 1366, 1525, 1644, 3140, 3819, 4025, 4078)
# Raised where a row conflicts with another one than that of its key, by a unique index.
OTHER_ROW = "(SELECT 1 UNION SELECT 2)"
CONFLICT = 1242
TEXTS = (
    "char",
    "varchar",
    "tinytext",
    "text",
    "mediumtext",
    "longtext",
    "json",
    "enum",
    "set",
    "uuid",
    "inet4",
    "inet6",
)


class MysqlTarget(TransactionalTarget):
    """One table of MySQL or MariaDB, over one connection."""

    product = "MySQL"

    def __init__(self, spec: SinkSpec) -> None:
        super().__init__(spec)
        self._address: Address = address_of(SCHEME, spec.values, PORT)
        with self.translated():
            self._connection = connect(spec.values, spec.base)
            self.run(f"SET SESSION sql_mode = '{MODE}'")
        self._name = [spec.values["schema"], spec.values["table"]]
        self._table = ".".join(quoted(part) for part in self._name if part)
        self._depth = 0
        self._describe()

    def driver_errors(self) -> AbstractContextManager[None]:
        return translated(self._address, self._spec.shown)

    def run(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(text, values or None)
            return list(cursor.fetchall() or ())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        begin, end, undo = (
            (f"SAVEPOINT s{self._depth}", f"RELEASE SAVEPOINT s{self._depth}", f"ROLLBACK TO SAVEPOINT s{self._depth}")
            if self._depth
            else ("START TRANSACTION", "COMMIT", "ROLLBACK")
        )
        self.run(begin)
        self._depth += 1
        try:
            yield
        except BaseException:
            self._depth -= 1
            with suppress(Exception):
                self.run(undo)
            raise
        self._depth -= 1
        self.run(end)

    def _describe(self) -> None:
        with self.translated():
            found = self.run(COLUMNS_QUERY, self._name)
            self.columns = None
            if not found:
                return
            self._require_transactions()
            indexes = self.run(INDEXES_QUERY, self._name)
            with self._connection.cursor() as cursor:
                cursor.execute(f"SELECT * FROM {self._table} LIMIT 0")
                columns = [Column(field.name, type_of(field)) for field in cursor._result.fields]
        self._kinds = {name: kind for name, kind, _ in found}
        self.required = tuple(name for name, _, is_required in found if is_required)
        unique = {name: [c for _, c in group] for name, group in itertools.groupby(indexes, lambda row: row[0])}
        self._unique = [set(names) for names in unique.values()]
        self.columns = Schema.of(columns, unique.get("PRIMARY", []))

    def _require_transactions(self) -> None:
        for engine, transactions in self.run(ENGINE_QUERY, self._name):
            if transactions != "YES":
                hint = f"ALTER TABLE {self._spec.values['table']} ENGINE = InnoDB;"
                message = f"The table of '{self._spec.shown}' is stored by {engine}, which has no transactions."
                raise SinkError("MP601", message, hint=hint)

    def create(self, columns: Schema) -> None:
        parts = [
            f"{quoted(c.name)} {type_text(c.type, is_key=c.name in columns.key)}" for c in columns if c.type is not None
        ]
        if columns.key:
            parts.append(f"PRIMARY KEY ({', '.join(map(quoted, columns.key))})")
        with self.translated():
            self.run(f"CREATE TABLE IF NOT EXISTS {self._table} ({', '.join(parts)}) ENGINE = InnoDB")
        self._describe()

    def has_unique(self, key: Sequence[str]) -> bool:
        return set(key) in self._unique

    def accepts(self, type_: pa.DataType, column: Column) -> bool:
        kind, stored = self._kinds[column.name], column.type
        if pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_floating(type_):
            return _is_number(stored)
        if pa.types.is_decimal(type_):
            return _is_number(stored)
        if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
            return kind in ("datetime", "timestamp") or (kind == "date" and bool(pa.types.is_date(type_)))
        if pa.types.is_nested(type_):
            return kind in ("json", "longtext", "mediumtext", "text")
        if pa.types.is_binary(type_):
            return bool(pa.types.is_binary(stored))
        # A text is read by the column's own type, such as an enum, uuid or time.
        return kind in TEXTS or kind == "time"

    def make_commits(self) -> None:
        """Asked first, because a user who may not create tables can still use an existing one."""
        query = "SELECT 1 FROM information_schema.tables WHERE table_schema = database() AND table_name = %s"
        if not self.run(query, [COMMITS]):
            self.run(f"CREATE TABLE IF NOT EXISTS {COMMITS} ({COMMITS_COLUMNS}) ENGINE = InnoDB")

    def add_owner(self, owner: str) -> None:
        self.run(f"INSERT IGNORE INTO {COMMITS} (flow, mark) VALUES (%s, '')", [owner])

    def prepared(self, schema: pa.Schema, key: tuple[str, ...]) -> Write:
        assert self.columns is not None
        names = [name for name in schema.names if name != OPERATION]
        own = {name: self.columns[name].name for name in names}
        listed = ", ".join(quoted(own[name]) for name in names)
        insert = f"INSERT INTO {self._table} ({listed}) VALUES "
        behind = _upsert([own[name] for name in names], key) if key else ""
        given = {column: name for name, column in own.items()}
        keys = [given[column] for column in key]

        def write(rows: pa.Table) -> None:
            if OPERATION in rows.column_names:
                rows = self._deleted(last_of_each(rows, keys), key, keys)
            for values in portions(row_literals(rows.select(names))):
                self._insert(insert, values, behind, is_single=rows.num_rows == 1)

        return write

    def _insert(self, insert: str, values: str, behind: str, *, is_single: bool) -> None:
        import pymysql

        try:
            self.run(f"{insert}{values}{behind}")
        except pymysql.err.MySQLError as error:
            if not is_single or error.args[0] != CONFLICT:
                raise
            # The same without an upsert names the index.
            self.run(f"{insert}{values}")

    def _deleted(self, rows: pa.Table, key: Sequence[str], keys: list[str]) -> pa.Table:
        """Delete the rows that are gone; returns the others."""
        is_gone = pc.fill_null(pc.equal(rows[OPERATION], DELETE), False)
        names = ", ".join(map(quoted, key))
        for values in portions(row_literals(rows.filter(is_gone).select(keys))):
            self.run(f"DELETE FROM {self._table} WHERE ({names}) IN ({values})")
        return rows.filter(pc.invert(is_gone))

    def rejection(self, error: Exception) -> str | None:
        import pymysql

        if not isinstance(error, pymysql.err.MySQLError):
            return None
        known = isinstance(error, pymysql.err.DataError | pymysql.err.IntegrityError)
        return f"{error.args[-1]}." if known or error.args[0] in REJECTED else None

    def close(self) -> None:
        with suppress(Exception):
            self._connection.close()


def _is_number(type_: pa.DataType | None) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return type_ is not None and any(kind(type_) for kind in kinds)


def _upsert(names: list[str], key: Sequence[str]) -> str:
    """What is done with a row whose key exists. A conflict with another row, by another unique index, is an error."""
    same = " AND ".join(f"{quoted(name)} <=> VALUES({quoted(name)})" for name in key)
    first = quoted(key[0])
    sets = [f"{first} = IF({same}, {first}, {OTHER_ROW})"]
    sets += [f"{quoted(name)} = VALUES({quoted(name)})" for name in names if name not in key]
    return f" ON DUPLICATE KEY UPDATE {', '.join(sets)}"


PLUGIN = transactional_sink(SCHEME, MysqlTarget)
