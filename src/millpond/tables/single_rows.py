"""Single rows as Python values, in exactly the form in which a table returns them, for changes without Arrow."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import pyarrow as pa

from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ, Column, Schema
from millpond.tables.lookup_keys import OneKey
from millpond.tables.value_conversion import EXACT

Row = tuple[Any, ...]

_SHAPES_MAX = 256
_DOUBLE_INT_MAX = 1 << 53
_INT_BITS = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}
# The time zone object of timestamps that Arrow returns.
_UTC = pa.scalar(0, TIMESTAMP).as_py().tzinfo
_INEXACT = (KeyError, TypeError, ValueError, OverflowError, InvalidOperation)


class RowShape:
    """The columns of a table whose types all have exact Python values."""

    def __init__(self, schema: Schema, exact: Sequence[Callable[[Any], Any]]) -> None:
        self.schema = schema
        self._columns = tuple((c.name, e, c.nullable, c.default) for c, e in zip(schema, exact, strict=True))
        self._exact = {name: (i, exact, nullable) for i, (name, exact, nullable, _) in enumerate(self._columns)}
        self._key = tuple(schema.position(name) for name in schema.key)
        self._key_types = tuple(schema[name].type for name in schema.key)
        self._simple_key = all(t in _INT_BITS or t in (pa.string(), pa.binary()) for t in self._key_types)

    def row(self, given: Mapping[str, Any], *, whole: bool) -> Row | None:
        """A row from a dict by declared names; None if a value must be converted or rejected. An absent column is NULL,
        unless the row must be whole."""
        values = []
        absent = 0
        try:
            for name, exact, nullable, default in self._columns:
                value = given.get(name)
                if value is not None:
                    value = exact(value)
                elif not nullable:
                    return None
                elif name not in given:
                    absent += 1
                    if whole or default is not None:
                        return None
                values.append(value)
        except _INEXACT:
            return None
        return tuple(values) if len(given) + absent == len(values) else None

    def changed(self, row: Row, given: Mapping[str, Any]) -> Row | None:
        """A row with some columns outside the key replaced; None as in `row`."""
        values = list(row)
        try:
            for name, value in given.items():
                position, exact, nullable = self._exact[name]
                if position in self._key or (value is None and not nullable):
                    return None
                values[position] = None if value is None else exact(value)
        except _INEXACT:
            return None
        return tuple(values)

    def key(self, row: Row) -> OneKey | None:
        """The key of a row, if it is made of texts, bytes and whole numbers only."""
        parts = tuple([row[position] for position in self._key])
        return OneKey(parts, self._key_types) if self._simple_key and None not in parts else None

    def row_of(self, batch: pa.RecordBatch) -> Row | None:
        """The only row of a batch; None for a timestamp that Python cannot represent."""
        try:
            return tuple(column[0].as_py() for column in batch.columns)
        except (ValueError, OverflowError):
            return None

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        """Rows as Arrow."""
        columns = zip(*rows, strict=True) if rows else ((),) * len(self._columns)
        arrays = [pa.array(values, column.type) for values, column in zip(columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema.arrow())


@lru_cache(_SHAPES_MAX)
def shape_of(schema: Schema) -> RowShape | None:
    """The shape of a table's rows; None if a column's values are not exact, or are mutable, in Python."""
    exact = [_exact(column) for column in schema]
    known = [e for e in exact if e is not None]
    return RowShape(schema, known) if len(known) == len(exact) else None


def _exact(column: Column) -> Callable[[Any], Any] | None:
    """A function that returns a value that needs no conversion, and raises for any other."""
    type_ = column.type
    assert type_ is not None
    if type_ in _INT_BITS:
        return _exact_int(_INT_BITS[type_])
    if pa.types.is_decimal128(type_):
        return _exact_decimal(type_.precision, type_.scale)
    return _SIMPLE.get(type_)


def _exact_int(bits: int) -> Callable[[Any], int]:
    end = 1 << bits

    def exact(value: Any) -> int:
        if type(value) is int and -end <= value < end:
            return value
        raise ValueError

    return exact


def _exact_decimal(precision: int, scale: int) -> Callable[[Any], Decimal]:
    quantum = Decimal(1).scaleb(-scale)
    end = Decimal(10) ** (precision - scale)

    def exact(value: Any) -> Decimal:
        if type(value) is not Decimal or not -end < value < end:
            raise ValueError
        rounded = value.quantize(quantum, context=EXACT)
        if rounded != value:
            raise ValueError
        # Arrow's decimals have no negative zero.
        return rounded or abs(rounded)

    return exact


def _exact_moment(value: Any) -> dt.datetime:
    if type(value) is not dt.datetime:
        raise ValueError
    return _unfolded(value.replace(tzinfo=_UTC) if value.tzinfo is None else value.astimezone(_UTC))


def _exact_local(value: Any) -> dt.datetime:
    if type(value) is not dt.datetime or value.tzinfo is not None:
        raise ValueError
    return _unfolded(value)


def _unfolded(value: dt.datetime) -> dt.datetime:
    """Without `fold`, which has no meaning in UTC or without a zone, but would make equal values differ."""
    return value.replace(fold=0) if value.fold else value


def _exact_text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError
    if not value.isascii():
        value.encode()
    return value


def _exact_double(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int and -_DOUBLE_INT_MAX <= value <= _DOUBLE_INT_MAX:
        return float(value)
    raise ValueError


def _exactly(kind: type) -> Callable[[Any], Any]:
    def exact(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError
        return value

    return exact


_SIMPLE: dict[pa.DataType, Callable[[Any], Any]] = {
    pa.bool_(): _exactly(bool),
    pa.float64(): _exact_double,
    pa.string(): _exact_text,
    pa.binary(): _exactly(bytes),
    pa.date32(): _exactly(dt.date),
    TIMESTAMP: _exact_moment,
    TIMESTAMP_NTZ: _exact_local,
}
