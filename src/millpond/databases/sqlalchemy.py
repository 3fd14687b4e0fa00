"""Databases by SQLAlchemy: addresses, engines, what their errors mean, and their types as Arrow's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.databases.driver_values import UNBOUNDED
from millpond.errors import MillpondError, SourceError
from millpond.redact import redact
from millpond.schema import TIMESTAMP, Column, Schema
from millpond.uris import Uri

SCHEME = "sql"
# Databases that are files: the rest of the URI is a path.
FILES = ("sqlite", "duckdb")
# Packages of drivers whose names differ from those of SQLAlchemy's dialects.
PACKAGES = {"duckdb": "duckdb-engine", "clickhouse": "clickhouse-sqlalchemy", "snowflake": "snowflake-sqlalchemy"}
DIGITS_MAX = 38
# Words of drivers for a server that does not respond, or a file that another process has locked.
LOST_WORDS = ("lock", "refused", "onnection", "timed out")
STANDARD_COLUMNS = """
SELECT column_name, data_type FROM information_schema.columns WHERE table_name = :name ORDER BY ordinal_position
"""
STANDARD_KEY = """
SELECT k.column_name FROM information_schema.table_constraints c JOIN information_schema.key_column_usage k
ON k.constraint_name = c.constraint_name AND k.table_name = c.table_name
WHERE c.constraint_type = 'PRIMARY KEY' AND c.table_name = :name ORDER BY k.ordinal_position
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


def address(uri: Uri, values: Mapping[str, Any]) -> tuple[str, str]:
    """The driver, and the rest of the URL that it is given."""
    text = uri.text.partition("?")[0].removeprefix("sql://").removeprefix("sql:")
    driver, colon, rest = text.partition(":")
    given = values.get("driver")
    if given is None or (colon and driver == given):
        return (driver, rest) if colon else ("", text)
    return given, text


def url_of(uri: Uri, values: Mapping[str, Any], base: Path) -> str:
    """What SQLAlchemy is given."""
    driver, rest = address(uri, values)
    if rest.startswith("//"):
        return f"{driver}:{rest}"
    if driver.partition("+")[0] in FILES:
        return f"{driver}:///{base / Path(rest).expanduser()}"
    return f"{driver}://{rest}"


def arrow_type(type_: Any, dialect: str) -> pa.DataType:
    """The type of a column that SQLAlchemy describes."""
    from sqlalchemy import types

    whole = pa.int64() if dialect == "sqlite" else pa.int32()
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


def described(engine: Any, table: str, schema: str | None) -> tuple[Schema | None, list[str]]:
    """The columns and the key of a table, as far as the driver can describe it; KeyError if there is no table."""
    import sqlalchemy as sa

    try:
        inspector = sa.inspect(engine)
        found = inspector.get_columns(table, schema)
        key = inspector.get_pk_constraint(table, schema).get("constrained_columns") or []
    except sa.exc.NoSuchTableError as error:
        raise KeyError(table) from error
    except (sa.exc.SQLAlchemyError, NotImplementedError):
        return _standard(engine, table)
    return Schema.of(Column(c["name"], arrow_type(c["type"], engine.dialect.name)) for c in found), list(key)


def known_tables(engine: Any, schema: str | None) -> list[str]:
    import sqlalchemy as sa

    inspector = sa.inspect(engine)
    return [*inspector.get_table_names(schema), *inspector.get_view_names(schema)]


def _standard(engine: Any, table: str) -> tuple[Schema | None, list[str]]:
    """The same from the standard's own catalog, for a driver that cannot describe tables."""
    import sqlalchemy as sa

    try:
        with engine.connect() as connection:
            found = connection.execute(sa.text(STANDARD_COLUMNS), {"name": table}).fetchall()
            key = connection.execute(sa.text(STANDARD_KEY), {"name": table}).fetchall()
    except sa.exc.SQLAlchemyError:
        return None, []
    columns = [Column(name, _standard_type(type_.upper())) for name, type_ in found]
    return Schema.of(columns) if columns else None, [name for (name,) in key]


def _standard_type(text: str) -> pa.DataType:
    digits = re.fullmatch(r"(?:DECIMAL|NUMERIC)\((\d+), ?(\d+)\)", text)
    if digits is not None:
        return pa.decimal128(min(int(digits[1]), DIGITS_MAX), int(digits[2]))
    return STANDARD_TYPES.get(text, pa.string())


def engine_of(uri: Uri, values: Mapping[str, Any], base: Path, shown: str, *, reads: bool) -> Any:
    """An engine, which does not connect yet; `reads`: it only reads, and a file must exist."""
    driver, rest = address(uri, values)
    try:
        import sqlalchemy as sa
    except ModuleNotFoundError as error:
        message = "sql:// requires the package 'sqlalchemy', which is not installed."
        raise SourceError("MP309", message, hint="Run: pip install 'millpond[sql]'") from error
    kind = driver.partition("+")[0]
    path = base / Path(rest).expanduser()
    if reads and kind in FILES and not rest.startswith("//") and not path.exists():
        raise SourceError("MP501", f"'{shown}' does not exist: there is no file {path}.", hint="Correct its path.")
    # A session is used by one thread at a time, but not always by the one that opened it.
    arguments = {"duckdb": {"read_only": reads}, "sqlite": {"check_same_thread": False}}
    options: dict[str, Any] = {"connect_args": arguments[kind]} if kind in arguments else {}
    try:
        return sa.create_engine(url_of(uri, values, base), poolclass=sa.pool.NullPool, **options)
    except (sa.exc.NoSuchModuleError, ModuleNotFoundError) as error:
        name = getattr(error, "name", None) or PACKAGES.get(kind, kind)
        message = f"The driver '{driver}' of sql:// is not installed."
        raise SourceError("MP309", message, hint=f"Run: pip install {name}") from error
    except sa.exc.ArgumentError as error:
        message = f"'{shown}' is not an address: {redact(str(error))}"
        raise SourceError("MP508", message, hint="It has the form sql://driver:rest of a SQLAlchemy URL.") from error


@contextmanager
def translated(shown: str) -> Iterator[None]:
    """Errors of SQLAlchemy as ours."""
    import sqlalchemy as sa

    try:
        yield
    except MillpondError:
        raise
    except sa.exc.DBAPIError as error:
        reported = redact(str(error.orig).strip().splitlines()[0]) if str(error.orig).strip() else str(type(error.orig))
        if error.connection_invalidated or any(word in reported for word in LOST_WORDS):
            hint = "Start the server, or wait until the file is not locked."
            raise SourceError("MP506", f"'{shown}' cannot be reached: {reported}.", hint=hint) from error
        wrong = isinstance(error, sa.exc.ProgrammingError) or "no such" in reported
        code, hint = "MP508" if wrong else "MP502", "Correct the name or the query in the URI."
        raise SourceError(code, f"'{shown}' cannot be read: {reported}.", hint=hint) from error
