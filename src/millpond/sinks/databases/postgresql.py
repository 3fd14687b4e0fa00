"""postgresql:// as a sink: rows are copied into a temporary table, and upserted or appended from there.

Guarantee: exactly once; see `sink`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from millpond.contracts.sink import Sink, SinkPlugin, SinkSpec
from millpond.databases.address import Address, address_of, located_sink, said_by_sink, wrong_sink
from millpond.databases.options import WRITING
from millpond.databases.postgresql.catalog import COLUMNS_QUERY, KEYS_QUERY, quoted
from millpond.databases.postgresql.connection import PORT, SCHEME, connect, translated
from millpond.databases.postgresql.texts import copy_bytes, type_text
from millpond.databases.postgresql.types import PgType, type_of
from millpond.errors import SinkError, SourceError
from millpond.schema import Column, Schema
from millpond.sinks.databases.outbox import Parcel
from millpond.sinks.databases.sink import COMMITS, DELETE, OPERATION, DatabaseSink, Rejected, Target

ROWS, NUMBER, OP = "millpond_rows", "millpond_number", "millpond_op"
# Kinds of values that a column of each kind of type takes: those of PostgreSQL's catalog.
NUMBERS, TEXTS, TIMES, BOOLEANS, ARRAYS = "N", "S", "D", "B", "A"


class PostgresTarget(Target):
    """One table of PostgreSQL, over one connection."""

    def __init__(self, spec: SinkSpec) -> None:
        self._spec = spec
        self._address: Address = address_of(SCHEME, spec.values, PORT)
        with self._translated():
            self._connection = connect(spec.values, spec.base)
        parts = [spec.values["schema"], spec.values["table"]] if spec.values["schema"] else [spec.values["table"]]
        self._table = ".".join(map(quoted, parts))
        self._describe()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of the server as those of a sink."""
        try:
            with translated(self._address, self._spec.shown):
                yield
        except SourceError as error:
            problem = error.problems[0]
            code = "MP602" if problem.code == "MP506" else "MP601"
            message = problem.message.replace("cannot read", "cannot write")
            raise SinkError(code, message, hint=problem.hint) from error

    def _describe(self) -> None:
        with self._translated(), self._connection.transaction(), self._connection.cursor() as cursor:
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
        with self._translated(), self._connection.transaction():
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

    def apply(self, parcel: Parcel, key: tuple[str, ...], owner: str, reject: Callable[[Rejected], None]) -> int:
        rejected: Rejected = []
        written = 0
        with self._translated():
            self._make_commits()
            with self._connection.transaction():
                if self._was_applied(owner, parcel.mark):
                    return 0
                merge = self._prepared(parcel.schema, key)
                for batch in parcel.rows():
                    written += self._apply(pa.Table.from_batches([batch]), merge, rejected)
                text = f"UPDATE {COMMITS} SET mark = %s, committed_at = now() WHERE flow = %s"
                self._connection.execute(text, [parcel.mark, owner])
                reject(rejected)
        return written

    def _make_commits(self) -> None:
        """The table of marks; asked first, because a user who may not create tables can still use an existing one."""
        with self._connection.transaction():
            there = self._connection.execute("SELECT to_regclass(%s)", [COMMITS]).fetchone()
            if there is None or there[0] is None:
                columns = "flow TEXT PRIMARY KEY, mark TEXT NOT NULL, committed_at TIMESTAMPTZ NOT NULL DEFAULT now()"
                self._connection.execute(f"CREATE TABLE IF NOT EXISTS {COMMITS} ({columns})")

    def _was_applied(self, owner: str, mark: str) -> bool:
        """Whether this is the last output that was applied; the row is locked until the end of the transaction."""
        self._connection.execute(
            f"INSERT INTO {COMMITS} (flow, mark) VALUES (%s, '') ON CONFLICT (flow) DO NOTHING", [owner]
        )
        row = self._connection.execute(f"SELECT mark FROM {COMMITS} WHERE flow = %s FOR UPDATE", [owner]).fetchone()
        return row is not None and row[0] == mark

    def _prepared(self, schema: pa.Schema, key: tuple[str, ...]) -> list[str]:
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

    def _apply(self, rows: pa.Table, merge: list[str], rejected: Rejected) -> int:
        """Apply rows; where the server rejects values, those rows are found by halves."""
        import psycopg

        try:
            with self._connection.transaction():
                self._copy(rows)
                for statement in merge:
                    self._connection.execute(statement)
                self._connection.execute(f"DELETE FROM {ROWS}")
            return int(rows.num_rows)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            if rows.num_rows == 1:
                said = str(error.diag.message_primary or error)
                detail = f" {error.diag.message_detail}" if error.diag.message_detail else ""
                rejected.append((rows, f"PostgreSQL rejects the row: {said}.{detail}"))
                return 0
        middle = rows.num_rows // 2
        return self._apply(rows.slice(0, middle), merge, rejected) + self._apply(rows.slice(middle), merge, rejected)

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


def open_sink(spec: SinkSpec) -> Sink:
    return DatabaseSink(spec, PostgresTarget)


def validate(spec: SinkSpec) -> str | None:
    return wrong_sink(spec.uri, spec.values)


PLUGIN = SinkPlugin(
    name=SCHEME,
    options=WRITING,
    guarantee="exactly once",
    open=open_sink,
    validate=validate,
    said_by=said_by_sink,
    located=lambda uri, given, named: located_sink(SCHEME, uri, given, named),
)
