"""The MySQL and MariaDB backend: the rows are in a table of a database, with native types, which others may read.

Rows are upserted with ON DUPLICATE KEY UPDATE. Each change is one transaction that also writes its mark into
`millpond_commits`. A named lock keeps other apps out as long as this one is connected, and a change whose mark is not
the next one is rejected. Texts are compared by their bytes: the columns have a binary collation."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.remote_table import Mark, RowChange
from millpond.contracts.table import BackendPlugin, Capabilities, Clock, TableSpec
from millpond.databases.mysql.binlog_watch import MysqlWatch
from millpond.databases.mysql.connection import PORT, SCHEME, connect, translated
from millpond.errors import ConstraintError, SourceError
from millpond.options import DURATION, TEXT, Option
from millpond.schema import type_name
from millpond.tables.pushdown import SqlRules, pushed
from millpond.tables.remote.driver_rows import arrow_of, row_keys, texts_of
from millpond.tables.remote.replicas import Replicas
from millpond.tables.remote.rows import RemoteRows
from millpond.tables.remote.sql_table import COMMITS, PLACE, SqlTable, held_in, wrong_url

# The key of a table of groups, whose own key may be NULL.
GROUP = "millpond_key"
# How long the lock of a process that has just ended may last.
LOCK_S = 10.0
# Rows of one statement.
ROWS_MAX = 2_000
# A key of texts must fit into an index; several texts share it.
KEY_CHARACTERS = 700
# Errors of a value, not of the connection.
VALUE_ERRORS = (1048, 1062, 1264, 1265, 1292, 1366, 1406, 1690, 3140, 4025)
_TYPES: tuple[tuple[Any, str], ...] = (
    (pa.types.is_boolean, "tinyint(1)"),
    (pa.types.is_int8, "tinyint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "int"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_floating, "double"),
    (pa.types.is_date, "date"),
    (pa.types.is_timestamp, "datetime(6)"),
    (pa.types.is_binary, "longblob"),
)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


RULES = SqlRules(lambda name: quoted(name).replace("%", "%%"), "%s")


class MysqlTable(SqlTable):
    """One table of a database."""

    rules = RULES

    def __init__(self, spec: TableSpec, owner: str) -> None:
        super().__init__(spec, owner, SCHEME, PORT, RULES.quoted)
        self._read_by: tuple[MysqlReplica, ...] = ()

    # Connections

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Errors of the driver as ours."""
        import pymysql

        try:
            with translated(self.address, f"table '{self._spec.name}'"):
                yield
        except SourceError as error:
            cause = error.__cause__
            if isinstance(cause, pymysql.err.MySQLError) and cause.args and cause.args[0] in VALUE_ERRORS:
                message = f"MySQL cannot store a row of '{self._spec.name}': {cause.args[-1]}."
                raise ConstraintError("MP404", message, hint="Nothing was changed.") from error
            raise

    def connection(self) -> Any:
        """A connection that is not in use."""
        return self._pool.take("any", lambda: connect(self._values, Path()), _validate)

    def release(self, connection: Any, *, broken: bool) -> None:
        if broken:
            with suppress(Exception):
                connection.close()
        else:
            self._pool.give("any", connection)

    def _read(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement; a connection that the server has closed meanwhile is replaced once."""
        for attempt in (1, 2):
            try:
                with self.translated():
                    connection, broken = self.connection(), True
                    try:
                        found = run(connection, text, values)
                        broken = False
                        return found
                    finally:
                        self.release(connection, broken=broken)
            except SourceError as error:
                if error.code != "MP506" or attempt == 2:
                    raise
                self._pool.close()
        raise AssertionError

    # The life of the table

    def open(self, *, known: bool) -> tuple[Mark, int]:
        if not self.is_shared:
            self._lock_out()
        flow = "flow VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY"
        stamp = "committed_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
        self._read(f"CREATE TABLE IF NOT EXISTS {COMMITS} ({flow}, mark TEXT NOT NULL, {stamp})")
        return self._open(known=known), self.count()

    def _open(self, *, known: bool) -> Mark:
        there = bool(self._read("SHOW TABLES LIKE %s", [self._name.replace("_", "\\_").replace("%", "\\%")]))
        held = held_in(self._read(f"SELECT mark FROM {COMMITS} WHERE flow = %s", [self.flow]))
        if self.is_left_behind(held, there=there, known=known):
            self._read(f"DROP TABLE {self._table}")
            there = False
        self.is_made = (held.made if known else not there) and not self.is_shared
        if not there:
            self._create()
        elif not known:
            self._require_fit()
        mark = Mark(held.version, max(held.row, self._next_row()))
        text = f"INSERT INTO {COMMITS} (flow, mark) VALUES (%s, %s) ON DUPLICATE KEY UPDATE mark = VALUES(mark)"
        self._read(text, [self.flow, self.mark_text(mark)])
        return mark

    def _lock_out(self) -> None:
        """Take the lock, which lasts as long as the connection."""
        name = "millpond " + hashlib.sha256(f"{self.address.database}/{self._name}".encode()).hexdigest()[:40]
        with self.translated():
            fence = connect(self._values, Path())
            if run(fence, "SELECT GET_LOCK(%s, %s)", [name, LOCK_S])[0][0] != 1:
                fence.close()
                raise self.in_use()
            self._fence = fence

    def _ask_fence(self) -> None:
        run(self._fence, "SELECT 1")

    def _create(self) -> None:
        parts = []
        for column in self._schema:
            not_null = "" if column.nullable or self._spec.null_keys else " NOT NULL"
            is_key = column.name in self._schema.key and not self._spec.null_keys
            parts.append(f"{quoted(column.name)} {self._type_text(column.type, is_key=is_key)}{not_null}")
        if self._spec.null_keys:
            parts.append(f"{GROUP} VARBINARY({KEY_CHARACTERS}) NOT NULL PRIMARY KEY")
        else:
            parts.append(f"PRIMARY KEY ({', '.join(quoted(name) for name in self._schema.key)})")
        self._read(f"CREATE TABLE {self._table} ({', '.join(parts)}) CHARACTER SET utf8mb4 COLLATE {self._collation()}")

    def _type_text(self, type_: Any, *, is_key: bool) -> str:
        texts = [name for name in self._schema.key if _has_length(self._schema[name].type)]
        return type_text(type_, KEY_CHARACTERS // max(1, len(texts)) if is_key else None)

    def _collation(self) -> str:
        """The collation that compares texts by their bytes and counts spaces at the end."""
        is_mariadb = "mariadb" in str(self._read("SELECT version()")[0][0]).lower()
        return "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin"

    def _require_fit(self) -> None:
        """MP409 with everything that differs."""
        query = (
            "SELECT column_name, column_type, is_nullable, column_default, extra, column_key, collation_name "
            "FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s"
        )
        found = {row[0]: row for row in self._read(query, [self._name])}
        wrong = []
        for column in self._schema:
            row = found.pop(column.name, None)
            if row is None:
                wrong.append(f"column '{column.name}' is missing")
            elif not _fits(str(row[1]).lower(), column.type):
                wanted = type_text(column.type)
                wrong.append(f"column '{column.name}' is {row[1]}, not {wanted} ({type_name(column.type)})")
            elif row[6] is not None and not str(row[6]).endswith("_bin") and column.name in self._schema.key:
                wrong.append(f"column '{column.name}' has the collation {row[6]}, which is not binary")
        required = [n for n, r in found.items() if r[2] == "NO" and r[3] is None and not r[4] and n != GROUP]
        wrong += [f"column '{name}' is NOT NULL and is not declared here" for name in required]
        keys = [row[4] for row in self._read(f"SHOW INDEX FROM {self._table} WHERE Key_name = 'PRIMARY'")]
        if set(keys) != ({GROUP} if self._spec.null_keys else set(self._schema.key)):
            wrong.append(f"the primary key is not ({', '.join(self._schema.key)})")
        if wrong:
            raise self.misfit(wrong)

    def create_index(self, columns: Sequence[str]) -> None:
        rows = self._read(f"SHOW INDEX FROM {self._table}")
        there: dict[str, set[str]] = {}
        for row in rows:
            there.setdefault(row[2], set()).add(row[4])
        if set(columns) in there.values():
            return
        types = {name: type_text(self._schema[name].type) for name in columns}
        # Long texts are indexed by their beginning.
        parts = ", ".join(quoted(n) + ("(100)" if t in ("longtext", "longblob") else "") for n, t in types.items())
        # A name of MySQL has at most 64 characters.
        name = quoted(f"millpond_{'_'.join(columns)}"[:64])
        self._read(f"CREATE INDEX {name} ON {self._table} ({parts})")

    def drop(self) -> None:
        # A server that is away keeps the table; the next one of this name replaces it.
        with suppress(SourceError):
            if self.is_made:
                self._read(f"DROP TABLE IF EXISTS {self._table}")
            self._read(f"DELETE FROM {COMMITS} WHERE flow = %s", [self.flow])

    # Reading

    def lookup(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> pa.Table:
        for position in range(len(keys)):
            if pa.types.is_floating(keys[position].type):
                # No row has NaN or infinity, which MySQL cannot store.
                finite = pc.fill_null(pc.is_finite(keys[position]), fill_value=True)
                keys = [key.filter(finite) for key in keys]
        return self._found(columns, keys)

    def _found(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> pa.Table:
        parts = [self._schema.arrow().empty_table()]
        for start in range(0, len(keys[0]), ROWS_MAX):
            condition, values = _among(columns, [sent(key.slice(start, ROWS_MAX)) for key in keys])
            parts.append(self._arrow(self._read(f"SELECT {self._listed} FROM {self._table} WHERE {condition}", values)))
        return pa.concat_tables(parts)

    def narrowed(self, condition: exp.Expression, parameters: Sequence[Any]) -> pa.Table | None:
        part = pushed(condition, self._schema, parameters, RULES)
        if part is None:
            return None
        return self._arrow(self._read(f"SELECT {self._listed} FROM {self._table} WHERE {part.sql}", part.values))

    def scan(self) -> pa.Table:
        return self._arrow(self._read(f"SELECT {self._listed} FROM {self._table}"))

    def _arrow(self, rows: list[tuple[Any, ...]]) -> pa.Table:
        return self._of_rows(rows, received)

    def watch(self) -> MysqlWatch:
        return MysqlWatch(self._values, self._name)

    def replicas(self, behind_s: Callable[[int], float]) -> Replicas:
        """The servers of 'read.url', for reads outside of transactions."""
        urls = [url.strip() for url in self._spec.values["read.url"].split(",")]
        self._read_by = tuple(MysqlReplica(self._spec, self._owner, url, behind_s) for url in urls)
        return Replicas(self, self._read_by)

    def close(self) -> None:
        super().close()
        for replica in self._read_by:
            replica.close()

    # Writing

    def begin(self) -> MysqlPart:
        self._require_fence()
        return MysqlPart(self)

    def apply(self, connection: Any, change: RowChange) -> None:
        """Make a change in the transaction of a connection."""
        with self.translated():
            marks = run(connection, f"SELECT mark FROM {COMMITS} WHERE flow = %s FOR UPDATE", [self.flow])
            self.require_next(held_in(marks), change.mark)
            names, deletes = change.deletes.schema.names, change.deletes
            for start in range(0, deletes.num_rows, ROWS_MAX):
                columns = [sent(column.slice(start, ROWS_MAX)) for column in deletes.columns]
                condition, values = _among(names, columns)
                run(connection, f"DELETE FROM {self._table} WHERE {condition}", values)
            for start in range(0, change.upserts.num_rows, ROWS_MAX):
                self._upsert(connection, change.upserts.slice(start, ROWS_MAX))
            run(connection, f"UPDATE {COMMITS} SET mark = %s WHERE flow = %s", [self.mark_text(change.mark), self.flow])

    def _upsert(self, connection: Any, rows: pa.RecordBatch) -> None:
        names = list(rows.schema.names)
        columns = [sent(column) for column in rows.columns]
        for name, values in zip(names, columns, strict=True):
            if any(isinstance(value, float) and not math.isfinite(value) for value in values):
                message = f"MySQL cannot store NaN or infinity in column '{name}' of '{self._spec.name}'."
                raise ConstraintError("MP404", message, hint="Nothing was changed.")
        others = [RULES.quoted(name) for name in names if name not in self._schema.key]
        if self._spec.null_keys:
            keys = [rows.column(self._schema.position(name)) for name in self._schema.key]
            names, columns = [*names, GROUP], [*columns, [key.encode() for key in row_keys("", keys)]]
        first = RULES.quoted(names[0])
        sets = ", ".join(f"{name} = VALUES({name})" for name in others) or f"{first} = {first}"
        listed = ", ".join(map(RULES.quoted, names))
        place = f"({', '.join(['%s'] * len(names))})"
        places = ", ".join([place] * rows.num_rows)
        values = [value for row in zip(*columns, strict=True) for value in row]
        run(connection, f"INSERT INTO {self._table} ({listed}) VALUES {places} ON DUPLICATE KEY UPDATE {sets}", values)


class MysqlReplica(MysqlTable):
    """The same table on a replica, which is only read."""

    def __init__(self, spec: TableSpec, owner: str, url: str, behind_s: Callable[[int], float]) -> None:
        super().__init__(replace(spec, values={**spec.values, "url": url}), owner)
        self._behind_s, self._delay_s = behind_s, spec.values.get("read.max.delay", 0) / 1_000_000

    def _read(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement. MP502 if the replica lacks commits that are too old; the mark is read together with
        the rows."""
        with self.translated():
            connection, broken = self.connection(), True
            try:
                run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
                held = held_in(run(connection, f"SELECT mark FROM {COMMITS} WHERE flow = %s", [self.flow]))
                if held.owner != self._owner or self._behind_s(held.version) > self._delay_s:
                    raise SourceError("MP502", f"{self.address.shown} is behind the server that it replicates.")
                found = run(connection, text, values)
                run(connection, "COMMIT")
                broken = False
                return found
            finally:
                self.release(connection, broken=broken)


class MysqlPart:
    """The part of a commit in one database."""

    def __init__(self, table: MysqlTable) -> None:
        self._table = table
        with table.translated():
            self._connection = table.connection()
            try:
                run(self._connection, "BEGIN")
            except Exception:
                # The server has closed it since it was used last.
                table.release(self._connection, broken=True)
                self._connection = connect(table._values, Path())
                run(self._connection, "BEGIN")

    def apply(self, table: MysqlTable, change: RowChange) -> None:
        table.apply(self._connection, change)

    def commit(self) -> None:
        with self._table.translated():
            run(self._connection, "COMMIT")
        self._table.release(self._connection, broken=False)

    def abort(self) -> None:
        try:
            run(self._connection, "ROLLBACK")
        except Exception:
            self._table.release(self._connection, broken=True)
        else:
            self._table.release(self._connection, broken=False)


def run(connection: Any, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """The rows of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(text if values else text.replace("%%", "%"), list(values) or None)
        return [tuple(row) for row in cursor.fetchall()]


def _validate(connection: Any, query: str) -> None:
    run(connection, query)


def _has_length(type_: Any) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def type_text(type_: Any, key_characters: int | None = None) -> str:
    """The type of a column that is created for values of a type; a part of a key has a bound."""
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if key_characters is not None and _has_length(type_):
        return f"{'varchar' if pa.types.is_string(type_) else 'varbinary'}({key_characters})"
    return next((text for fits, text in _TYPES if fits(type_)), "longtext")


def _fits(has: str, type_: Any) -> bool:
    """Whether an existing column has the values of a type, exactly."""
    if pa.types.is_string(type_):
        return "text" in has or has.startswith("varchar") or has == "json"
    if pa.types.is_binary(type_):
        return "blob" in has or has.startswith("varbinary")
    if pa.types.is_nested(type_):
        return has in ("json", "longtext")
    wanted = type_text(type_)
    base, whole = has.partition("(")[0], pa.types.is_integer(type_)
    return base == wanted if whole and "unsigned" not in has else has == wanted


def _among(names: Sequence[str], columns: Sequence[list[Any]]) -> tuple[str, list[Any]]:
    """A condition that a row has one of some keys; NULL matches NULL."""
    if not any(value is None for column in columns for value in column):
        row = ", ".join(map(RULES.quoted, names))
        place = f"({', '.join(['%s'] * len(names))})"
        keys = list(zip(*columns, strict=True))
        return f"({row}) IN ({', '.join([place] * len(keys))})", [value for key in keys for value in key]
    one = "(" + " AND ".join(f"{RULES.quoted(name)} <=> %s" for name in names) + ")"
    keys = list(zip(*columns, strict=True))
    return " OR ".join([one] * len(keys)), [value for key in keys for value in key]


def sent(column: pa.Array) -> list[Any]:
    """Values as the driver sends them; times are in UTC."""
    if pa.types.is_nested(column.type):
        return texts_of(column)
    if pa.types.is_timestamp(column.type):
        return [None if v is None else v.replace(tzinfo=None).isoformat(" ") for v in column.to_pylist()]
    if pa.types.is_date(column.type):
        return [None if v is None else v.isoformat() for v in column.to_pylist()]
    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [0.0 if v == 0 else v for v in values]
    return values


def received(values: Sequence[Any], type_: Any) -> pa.Array:
    """A column of values as the driver returns them."""
    if pa.types.is_nested(type_):
        values = [None if v is None else json.loads(v) for v in values]
    elif pa.types.is_boolean(type_):
        values = [None if v is None else bool(v) for v in values]
    elif pa.types.is_timestamp(type_):
        return _of_texts(values).cast(pa.timestamp("us")).cast(type_)
    elif pa.types.is_date(type_):
        return _of_texts(values).cast(type_)
    return arrow_of(values, type_)


def _of_texts(values: Sequence[Any]) -> pa.Array:
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def validate(spec: TableSpec) -> str | None:
    """What is wrong with the options, as a sentence."""
    wrong = wrong_url(spec, SCHEME, "mysql://user:password@host:3306/database")
    if wrong is not None:
        return wrong
    for url in (spec.values.get("read.url") or "").split(","):
        other = wrong_url(replace(spec, values={"url": url.strip()}), SCHEME, "mysql://host/database") if url else None
        if other is not None:
            return other.replace("'url'", "'read.url'")
    wide = [c.name for c in spec.schema if c.type is not None and pa.types.is_decimal(c.type) and c.type.scale > 30]
    return f"MySQL cannot store column '{wide[0]}': it has at most 30 digits after the point." if wide else None


def notes(spec: TableSpec) -> tuple[str, ...]:
    return MysqlTable(spec, "").notes("MySQL")


def make(spec: TableSpec, clock: Clock, folder: Path | None) -> Any:
    return RemoteRows(MysqlTable, spec, clock, folder)


PLUGIN = BackendPlugin(
    name=SCHEME,
    options=(
        Option("url", TEXT, None, "The database: mysql://user:password@host:3306/database.", secret=True),
        Option("read.url", TEXT, None, "Replicas of the database, separated by commas, for reads.", secret=True),
        Option("read.max.delay", DURATION, "1s", "How long a replica that is read may lack a commit."),
        *PLACE,
    ),
    capabilities=Capabilities(outside=True, remote=True),
    make=make,
    validate=validate,
    notes=notes,
    watch=lambda spec: MysqlTable(spec, "").watch(),
    help="Rows in a table of MySQL or MariaDB, with native types; others may read it.",
)
