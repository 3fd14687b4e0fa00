"""sql://driver:rest: tables, views and queries of any database with a SQLAlchemy driver.

Guarantee: a table equals the result of one query, compared again at each poll.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.source import Mode, Patience, SourcePlugin, SourceSpec
from millpond.databases.address import unknown_table
from millpond.databases.options import CONNECTION, PACE, PARAMETERS, READING
from millpond.databases.pool import Pool
from millpond.databases.server import Server, Session
from millpond.databases.statements import Dialect, Selection, Statement, divided, key_of
from millpond.databases.values import UNBOUNDED, batch_of, seen_columns
from millpond.errors import MillpondError, SourceError
from millpond.options import TEXT, Option
from millpond.redact import redact
from millpond.schema import TIMESTAMP, Column, Schema
from millpond.sources.databases.plugin import notes, sent_by, unseen
from millpond.sources.databases.plugin import validate as validate_any
from millpond.sources.databases.table import DatabaseTable, catalog_columns
from millpond.uris import Uri

if TYPE_CHECKING:
    pass

SCHEME = "sql"
# Databases that are files: the rest of the URI is a path.
FILES = ("sqlite", "duckdb")
# Packages of drivers whose names differ from those of SQLAlchemy's dialects.
PACKAGES = {"duckdb": "duckdb-engine", "clickhouse": "clickhouse-sqlalchemy", "snowflake": "snowflake-sqlalchemy"}
# A database of which nothing is known compares texts by rules of its own.
DIALECT = Dialect('"', strings=())
# Rows that are read to find the types of a query's columns.
SAMPLE_ROWS = 1000
DIGITS_MAX = 38
# Words of drivers for a server that does not respond, or a file that another process has locked.
LOST_WORDS = ("lock", "refused", "onnection", "timed out")
STANDARD_COLUMNS = """
SELECT column_name, data_type FROM information_schema.columns WHERE table_name = ? ORDER BY ordinal_position
"""
STANDARD_KEY = """
SELECT k.column_name FROM information_schema.table_constraints c JOIN information_schema.key_column_usage k
ON k.constraint_name = c.constraint_name AND k.table_name = c.table_name
WHERE c.constraint_type = 'PRIMARY KEY' AND c.table_name = ? ORDER BY k.ordinal_position
"""
STANDARD_TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": TIMESTAMP,
    "BLOB": pa.binary(),
}
NOT_READ = ("parallel.readers", "transaction.isolation", "load", "max.rows.per.batch")
PLACED = ("retry.", "connect.wait")
OPTIONS = (
    Option("driver", TEXT, None, "The name of the SQLAlchemy driver, in place of the one in the URI."),
    *(option for option in CONNECTION if option.name.startswith(PLACED)),
    *(option for option in READING if option.name not in NOT_READ),
)


def address(uri: Uri, values: Mapping[str, Any]) -> tuple[str, str]:
    """The driver, and the rest of the URL that it is given."""
    text = uri.text.partition("?")[0].removeprefix("sql://").removeprefix("sql:")
    driver, colon, rest = text.partition(":")
    given = values.get("driver")
    if given is None or (colon and driver == given):
        return (driver, rest) if colon else ("", text)
    return given, text


def url_of(spec: SourceSpec) -> str:
    """What SQLAlchemy is given."""
    driver, rest = address(spec.uri, spec.values)
    if rest.startswith("//"):
        return f"{driver}:{rest}"
    if driver.partition("+")[0] in FILES:
        return f"{driver}:///{spec.base / Path(rest).expanduser()}"
    return f"{driver}://{rest}"


class SqlServer(Server):
    """One database; each session is a connection of its own."""

    def __init__(self, spec: SourceSpec, pool: Pool) -> None:
        self._spec, self._pool = spec, pool
        self._engine = _engine(spec)
        self._dialect = replace(DIALECT, quote=self._engine.dialect.identifier_preparer.initial_quote)
        try:
            self._schema = self._described()
        except BaseException:
            self._engine.dispose()
            raise

    def _described(self) -> Schema:
        with translated(self._spec):
            known, key = self._catalog() if self._spec.values.get("table") else (None, [])
            if known is None:
                with self._engine.connect() as connection:
                    names, rows = self._first(connection)
                known = seen_columns(names, rows)
        return key_of(self._spec, known, key)

    def _catalog(self) -> tuple[Schema | None, list[str]]:
        """Columns and key as the driver describes them; none where it cannot."""
        import sqlalchemy as sa

        table, schema = self._spec.values["table"], self._spec.values.get("schema")
        try:
            inspector = sa.inspect(self._engine)
            found = inspector.get_columns(table, schema)
            key = inspector.get_pk_constraint(table, schema).get("constrained_columns") or []
        except sa.exc.NoSuchTableError:
            known = [*inspector.get_table_names(schema), *inspector.get_view_names(schema)]
            message, hint = unknown_table(self._spec.shown, table, known)
            raise SourceError("MP508", message, hint=hint) from None
        except (sa.exc.SQLAlchemyError, NotImplementedError):
            return self._standard()
        return Schema.of(Column(c["name"], self._arrow(c["type"])) for c in found), list(key)

    def _standard(self) -> tuple[Schema | None, list[str]]:
        """The same from the standard's own catalog, for a driver that cannot describe tables."""
        import sqlalchemy as sa

        table = self._spec.values["table"]
        try:
            with self._engine.connect() as connection:
                found = connection.execute(*bound_text(Statement(STANDARD_COLUMNS, (table,)))).fetchall()
                key = connection.execute(*bound_text(Statement(STANDARD_KEY, (table,)))).fetchall()
        except sa.exc.SQLAlchemyError:
            return None, []
        columns = [Column(name, _standard_type(type_.upper())) for name, type_ in found]
        return Schema.of(columns) if columns else None, [name for (name,) in key]

    def _arrow(self, type_: Any) -> pa.DataType:
        from sqlalchemy import types

        whole = pa.int64() if self._engine.dialect.name == "sqlite" else pa.int32()
        kinds: tuple[tuple[Any, pa.DataType], ...] = (
            (types.Boolean, pa.bool_()),
            (types.SmallInteger, pa.int16()),
            (types.BigInteger, pa.int64()),
            (types.Integer, whole),
            (types.Float, pa.float64()),
            (types.DateTime, TIMESTAMP),
            (types.Date, pa.date32()),
            (types.LargeBinary, pa.binary()),
        )
        if isinstance(type_, types.Numeric) and not isinstance(type_, types.Float):
            if type_.precision is None:
                return UNBOUNDED
            return pa.decimal128(min(type_.precision, DIGITS_MAX), min(type_.scale or 0, DIGITS_MAX))
        return next((found for kind, found in kinds if isinstance(type_, kind)), pa.string())

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


def _standard_type(text: str) -> pa.DataType:
    digits = re.fullmatch(r"(?:DECIMAL|NUMERIC)\((\d+), ?(\d+)\)", text)
    if digits is not None:
        return pa.decimal128(min(int(digits[1]), DIGITS_MAX), int(digits[2]))
    return STANDARD_TYPES.get(text, pa.string())


class SqlSession(Session):
    """One connection; its rows are streamed where the driver can."""

    def __init__(self, spec: SourceSpec, engine: Any, schema: Schema) -> None:
        self._spec, self._columns = spec, schema
        with translated(spec):
            self._connection = engine.connect().execution_options(stream_results=True)

    def value(self, statement: Statement) -> Any:
        with translated(self._spec):
            return self._connection.execute(*bound_text(statement)).scalar()

    def read(self, selection: Selection, statement: Statement) -> Iterator[pa.RecordBatch]:
        names = selection.names or self._columns.names
        columns = [self._columns[name] for name in names]
        rows_max, zone = self._spec.values["fetch.size"], self._spec.values["time.zone"]
        with translated(self._spec):
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


def _engine(spec: SourceSpec) -> Any:
    driver, rest = address(spec.uri, spec.values)
    try:
        import sqlalchemy as sa
    except ModuleNotFoundError as error:
        message = "sql:// requires the package 'sqlalchemy', which is not installed."
        raise SourceError("MP309", message, hint="Run: pip install 'millpond[sql]'") from error
    kind = driver.partition("+")[0]
    path = spec.base / Path(rest).expanduser()
    if kind in FILES and not rest.startswith("//") and not path.exists():
        raise SourceError("MP501", f"'{spec.shown}' does not exist: there is no file {path}.", hint="Correct its path.")
    # A session is used by one thread at a time, but not always by the one that opened it.
    arguments = {"duckdb": {"read_only": True}, "sqlite": {"check_same_thread": False}}
    options: dict[str, Any] = {"connect_args": arguments[kind]} if kind in arguments else {}
    try:
        return sa.create_engine(url_of(spec), poolclass=sa.pool.NullPool, **options)
    except (sa.exc.NoSuchModuleError, ModuleNotFoundError) as error:
        name = getattr(error, "name", None) or PACKAGES.get(kind, kind)
        message = f"The driver '{driver}' of sql:// is not installed."
        raise SourceError("MP309", message, hint=f"Run: pip install {name}") from error
    except sa.exc.ArgumentError as error:
        message = f"'{spec.shown}' is not an address: {redact(str(error))}"
        raise SourceError("MP508", message, hint="It has the form sql://driver:rest of a SQLAlchemy URL.") from error


@contextmanager
def translated(spec: SourceSpec) -> Iterator[None]:
    """Errors of SQLAlchemy as ours."""
    import sqlalchemy as sa

    try:
        yield
    except MillpondError:
        raise
    except sa.exc.DBAPIError as error:
        said = redact(str(error.orig).strip().splitlines()[0]) if str(error.orig).strip() else str(type(error.orig))
        if error.connection_invalidated or any(word in said for word in LOST_WORDS):
            hint = "Start the server, or wait until the file is not locked."
            raise SourceError("MP506", f"'{spec.shown}' cannot be reached: {said}.", hint=hint) from error
        wrong = isinstance(error, sa.exc.ProgrammingError) or "no such" in said
        code, hint = "MP508" if wrong else "MP502", "Correct the name or the query in the URI."
        raise SourceError(code, f"'{spec.shown}' cannot be read: {said}.", hint=hint) from error


def validate(spec: SourceSpec) -> str | None:
    if not address(spec.uri, spec.values)[0]:
        return "sql:// names a driver: sql://sqlite:/data/parts.db?table=parts."
    return validate_any(spec)


PLUGIN = SourcePlugin(
    name=SCHEME,
    options=OPTIONS,
    stream_mode=Mode.SNAPSHOT,
    table_mode=Mode.SNAPSHOT,
    parameters=PARAMETERS,
    open_table=lambda spec: DatabaseTable(spec, SqlServer),
    sample=lambda spec, spark: catalog_columns(spec, SqlServer),
    has_catalog=True,
    watched=lambda values: values["poll.interval"] is not None,
    pace=PACE,
    patience=Patience.with_a_server,
    validate=validate,
    sent=lambda spec: sent_by(spec, DIALECT),
    unseen=unseen,
    notes=notes,
)
