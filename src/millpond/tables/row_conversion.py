"""Conversion of a caller's rows, dicts or Arrow, to arrays of the table's types."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from millpond.contracts.table import ROWS_HINT, Rows, frame_as_arrow
from millpond.errors import BindError, ConstraintError, TableError, did_you_mean
from millpond.schema import Column, Schema, type_name
from millpond.tables.index import Ids
from millpond.tables.value_conversion import INTEGER_BITS, Refused, cast_array, converter, plain_value, to_timestamp

_NONE = type(None)
_ARROW_REFUSALS = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError)
_PLANS_MAX = 4096
_PLANS: dict[int, tuple[pa.DataType, set[type], Callable[[Any], Any]]] = {}
_READY: dict[pa.DataType, set[type]] = {pa.bool_(): {bool}, pa.string(): {str}, pa.binary(): {bytes}}


def to_array(values: Sequence[Any], column: Column) -> pa.Array:
    """Python values as the column's array; MP404 with the column and the first value that cannot be stored."""
    type_ = column.type
    kinds = set(map(type, values))
    kinds.discard(_NONE)
    ready, convert = _plan(type_)
    if kinds <= ready:
        try:
            return pa.array(values, type_)
        except _ARROW_REFUSALS:
            # Either a decimal that must be rounded or an invalid value; the slow path determines which.
            pass
    try:
        return pa.array([None if v is None else convert(v) for v in values], type_)
    except Refused as refused:
        raise _misfit(column, refused.value) from None
    except _ARROW_REFUSALS:
        raise _misfit(column, _first_misfit(values, type_)) from None


def exact_array(values: Sequence[Any], column: Column) -> pa.Array | None:
    """Python values as the column's array if all have exactly its type and range, else None."""
    if not set(map(type, values)) <= {_NONE, *_plan(column.type)[0]}:
        return None
    try:
        return pa.array(values, column.type)
    except _ARROW_REFUSALS:
        return None


def unmatched(values: Sequence[Any], column: Column) -> list[int]:
    """The positions of values that no row of the column can have, because they would be rounded or are out of range,
    such as 1.5 for INT. A value of another type is not among them: to_array rejects it."""
    type_ = column.type
    if not (type_ in INTEGER_BITS or pa.types.is_decimal(type_) or pa.types.is_date32(type_)):
        return []
    return [i for i, value in enumerate(values) if value is not None and not _matches(value, type_)]


def _matches(value: Any, type_: pa.DataType) -> bool:
    given = plain_value(value)
    if isinstance(given, bool) or not isinstance(given, int | float | Decimal | dt.date):
        return True
    try:
        kept = converter(type_)(given)
    except (Refused, OverflowError):
        return isinstance(given, dt.date)
    if isinstance(given, dt.date):
        return bool(to_timestamp(given, zoned=True) == to_timestamp(kept, zoned=True))
    return bool(kept == (Decimal(repr(given)) if isinstance(given, float) else given))


def _misfit(column: Column, value: Any) -> ConstraintError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    message = f"Column '{column.name}' is {type_name(column.type)} and cannot store {shown}."
    return ConstraintError("MP404", message, hint="Nothing was changed.")


def _first_misfit(values: Iterable[Any], type_: pa.DataType) -> Any:
    for value in values:
        try:
            pa.array([None if value is None else converter(type_)(value)], type_)
        except (Refused, *_ARROW_REFUSALS):
            return value
    raise AssertionError("no value misfits")


def _plan(type_: pa.DataType) -> tuple[set[type], Callable[[Any], Any]]:
    """How values of a type are converted, cached by the type's identity, because Arrow's types are slow to compare."""
    known = _PLANS.get(id(type_))
    if known is None:
        if len(_PLANS) >= _PLANS_MAX:
            _PLANS.clear()
        known = _PLANS[id(type_)] = (type_, _ready_kinds(type_), converter(type_))
    return known[1], known[2]


def _ready_kinds(type_: pa.DataType) -> set[type]:
    """The Python types that pa.array converts to an Arrow type exactly as Spark would, or rejects."""
    if type_ in INTEGER_BITS:
        return {int}
    if pa.types.is_floating(type_):
        return {float, int} if type_ == pa.float64() else {float}
    if pa.types.is_date32(type_):
        return {dt.date}
    if pa.types.is_timestamp(type_):
        return {dt.datetime}
    if pa.types.is_decimal(type_):
        return {Decimal}
    return _READY.get(type_, set())


@dataclass(frozen=True)
class Incoming:
    """Some columns of new rows, by their declared names."""

    columns: Mapping[str, pa.Array]
    rows: int

    def take(self, positions: Ids) -> Incoming:
        taken = pa.array(positions)
        return Incoming({name: c.take(taken) for name, c in self.columns.items()}, len(positions))

    def batch(self, schema: Schema, others: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """All columns: the given ones and others for the rest."""
        columns = {**others, **self.columns}
        # NOT NULL is checked separately, with its own message.
        return pa.RecordBatch.from_arrays([columns[c.name] for c in schema], schema=schema.arrow())


def incoming(table: str, schema: Schema, rows: Rows) -> list[Incoming]:
    """The columns of the rows, in groups of consecutive rows with the same columns; MP202 for a column that the table
    does not have, MP404 for a value that cannot be stored."""
    rows = frame_as_arrow(rows)
    if isinstance(rows, pa.Table | pa.RecordBatch):
        names = _declared(table, schema, rows.schema.names)
        columns = {name: cast_array(rows.column(i), schema[name]) for i, name in enumerate(names)}
        return [Incoming(columns, rows.num_rows)]
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Sequence):
        raise TableError("MP409", f"Rows of type {type(rows).__name__} are not supported.", hint=ROWS_HINT)
    alike = _columns(rows)
    if alike is not None:
        return [_from_columns(table, schema, *alike, len(rows))]
    return [_from_dicts(table, schema, group) for group in _groups(rows)]


def _columns(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[Sequence[Any]]] | None:
    """The names and values of the columns if all rows are dicts with the same names, else None."""
    if set(map(type, rows)) != {dict} or len(set(map(len, rows))) > 1 or len(rows[0]) < 2:
        return None
    names = list(rows[0])
    try:
        return names, list(zip(*map(itemgetter(*names), rows), strict=True))
    except KeyError:
        return None


def _groups(rows: Sequence[Mapping[str, Any]]) -> list[Sequence[Mapping[str, Any]]]:
    """Groups of consecutive rows with the same columns."""
    if not rows:
        return []
    for row in rows:
        if not isinstance(row, Mapping):
            raise TableError(
                "MP409", f"A row of type {type(row).__name__} is not supported.", hint="Pass each row as a dict."
            )
    first = rows[0].keys()
    if all(row.keys() == first for row in rows):
        return [rows]
    return [list(group) for _, group in groupby(rows, key=lambda row: frozenset(row))]


def _from_dicts(table: str, schema: Schema, rows: Sequence[Mapping[str, Any]]) -> Incoming:
    given = list(rows[0])
    return _from_columns(table, schema, given, [[row[name] for row in rows] for name in given], len(rows))


def _from_columns(
    table: str, schema: Schema, given: Sequence[str], values: Sequence[Sequence[Any]], rows: int
) -> Incoming:
    names = _declared(table, schema, given)
    return Incoming({n: to_array(v, schema[n]) for n, v in zip(names, values, strict=True)}, rows)


def _declared(table: str, schema: Schema, given: Sequence[str]) -> list[str]:
    names = []
    for name in given:
        column = schema.get(name) if isinstance(name, str) else None
        if column is None:
            hint = did_you_mean(str(name), schema.names) or f"Its columns are: {', '.join(schema.names)}."
            raise BindError("MP202", f"'{table}' has no column '{name}'.", hint=hint)
        if column.name in names:
            raise BindError("MP205", f"Column '{name}' of '{table}' is given twice.", hint="Keep one of them.")
        names.append(column.name)
    return names
