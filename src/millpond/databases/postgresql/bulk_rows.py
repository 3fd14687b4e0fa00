"""Many rows of PostgreSQL at once: by binary COPY, through ADBC, without a Python object for each value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.databases.driver_values import decimals
from millpond.databases.postgresql.connection import connection_values
from millpond.schema import Schema

_DIRECT: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_binary,
    pa.types.is_date,
    pa.types.is_timestamp,
)
# Stands for a value; no name contains it.
MARK = "\x00"
# The days that Python has too: a server has more, and infinity.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY_US = 86_400_000_000


def connect(values: Mapping[str, Any]) -> Any:
    """A connection whose statements are committed at once."""
    from adbc_driver_postgresql import dbapi
    from psycopg.conninfo import make_conninfo

    return dbapi.connect(make_conninfo(**connection_values(values, Path())), autocommit=True)


def validate(connection: Any, query: str) -> None:
    """Raise if a connection is lost."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        cursor.fetchall()


def selected(schema: Schema, quoted: Callable[[str], str]) -> str | None:
    """The list of columns of a query for all columns; None if one has a type that cannot be read in this way."""
    parts = []
    for column in schema:
        type_ = column.type
        if pa.types.is_string(type_) or pa.types.is_decimal(type_):
            parts.append(f"t.{quoted(column.name)}::text")
        elif any(is_(type_) for is_ in _DIRECT):
            parts.append(f"t.{quoted(column.name)}")
        else:
            return None
    return ", ".join(parts)


def read(connection: Any, text: str, schema: Schema) -> pa.Table:
    """The rows of a query without parameters, whose columns are those of `selected`."""
    with connection.cursor() as cursor:
        cursor.execute(text)
        found = cursor.fetch_arrow_table()
    arrays = [_column(values, field.type) for values, field in zip(found.columns, schema.arrow(), strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema.arrow())


def literal(value: Any) -> str:
    """A value as PostgreSQL reads it: COPY takes no parameters, so it is quoted by the driver's own rules."""
    from psycopg import sql

    return str(sql.Literal(value).as_string(None))


def with_values(text: str, values: Sequence[Any]) -> str:
    """A condition with a value at each MARK."""
    first, *others = text.split(MARK)
    return first + "".join(f"{literal(value)}{other}" for value, other in zip(values, others, strict=True))


def _column(values: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if values.type == type_ and not pa.types.is_temporal(type_):
        return values
    if pa.types.is_decimal(type_):
        texts = values.combine_chunks()
        return pa.chunked_array([decimals(texts, type_)], type_)
    if pa.types.is_timestamp(type_):
        _require_days(values.cast(pa.timestamp("us")).cast(pa.int64()), _DAY_US)
        return values.cast(pa.timestamp("us")).cast(type_) if type_.tz is None else values.cast(type_)
    if pa.types.is_date(type_):
        _require_days(values.cast(pa.int32()), 1)
    return values.cast(type_)


def _require_days(numbers: pa.ChunkedArray, of_day: int) -> None:
    """pa.ArrowInvalid for times that Python has not, such as infinity, which the driver rejects too."""
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is not None and not (
        _FIRST_DAY * of_day <= bounds["min"] and bounds["max"] < (_LAST_DAY + 1) * of_day
    ):
        raise pa.ArrowInvalid("a time is not between the years 1 and 9999")
