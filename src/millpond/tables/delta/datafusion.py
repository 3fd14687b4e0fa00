"""Conditions in the SQL of DataFusion, by which delta-rs reads only a part of a table.

They only have to keep every row that is wanted: the rest is filtered here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.schema import Schema
from millpond.tables.pushdown import SqlRules, pushed, ranges

# More values than this are compared here: planning a condition takes longer than reading the rows.
VALUES_MAX = 2_000
# Stands for a value; no name contains it.
_MARK = "\x00"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def of_keys(schema: Schema, names: Sequence[str], keys: Sequence[pa.Array]) -> str | None:
    """A condition that all rows with one of the keys satisfy; None if there is none."""
    parts = [_among(schema, name, values) for name, values in zip(names, keys, strict=True)]
    return _all([part for part in parts if part is not None])


def of_condition(schema: Schema, condition: exp.Expression, parameters: Sequence[Any]) -> str | None:
    """The part of a condition that DataFusion evaluates as Spark does: whole numbers, texts and ranges of times."""
    parts = [*_ranges(schema, condition, parameters)]
    found = pushed(condition, schema, parameters, SqlRules(quoted, _MARK))
    if found is not None:
        texts = found.sql.split(_MARK)
        values = [literal(value, pa.string() if isinstance(value, str) else pa.int64()) for value in found.values]
        parts.append(texts[0] + "".join(f"{value}{text}" for value, text in zip(values, texts[1:], strict=True)))
    return _all(parts)


def _ranges(schema: Schema, condition: exp.Expression, parameters: Sequence[Any]) -> Iterator[str]:
    for found in ranges(condition, schema, parameters, schema.names):
        for bound, value in ((">=", found.low), ("<=", found.high)):
            if value is not None:
                yield f"{quoted(found.column)} {bound} {literal(value, found.type)}"


def _among(schema: Schema, name: str, values: pa.Array) -> str | None:
    type_, column = schema[name].type, quoted(name)
    # Floating-point numbers have two zeros, and values that statistics do not contain.
    if pa.types.is_nested(type_) or pa.types.is_floating(type_):
        return None
    known = pc.unique(values.drop_null())
    found = "false" if not len(known) else _listed(column, known, type_)
    return f"({found} OR {column} IS NULL)" if values.null_count else found


def _listed(column: str, values: pa.Array, type_: pa.DataType) -> str | None:
    if len(values) <= VALUES_MAX:
        return f"{column} IN ({', '.join(literal(value, type_) for value in values.to_pylist())})"
    if pa.types.is_boolean(type_):
        return "true"
    bounds = pc.min_max(values)
    low, high = (literal(bounds[end].as_py(), type_) for end in ("min", "max"))
    return f"{column} BETWEEN {low} AND {high}"


def literal(value: Any, type_: pa.DataType) -> str:
    """A value of a column's type."""
    if pa.types.is_boolean(type_):
        return "true" if value else "false"
    if pa.types.is_binary(type_):
        return f"X'{value.hex()}'"
    if pa.types.is_integer(type_):
        # The smallest BIGINT is not a literal with a sign.
        return f"arrow_cast('{value}', 'Int64')" if value == -(2**63) else str(value)
    if pa.types.is_decimal(type_):
        return f"arrow_cast('{value:f}', 'Decimal128({type_.precision}, {type_.scale})')"
    if pa.types.is_date(type_):
        return f"arrow_cast('{value.isoformat()}', 'Date32')"
    if pa.types.is_timestamp(type_):
        zone = 'Some("UTC")' if type_.tz is not None else "None"
        micros = pa.scalar(value, type_).cast(pa.int64()).as_py()
        return f"arrow_cast({micros}, 'Timestamp(Microsecond, {zone})')"
    return "'" + str(value).replace("'", "''") + "'"


def _all(parts: Sequence[str]) -> str | None:
    return " AND ".join(f"({part})" for part in parts) or None
