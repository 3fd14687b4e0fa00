"""Python values into a column's array, and which of them no row of the column can have."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millpond.errors import ConstraintError
from millpond.schema import Column, type_name
from millpond.tables.conversion import INTEGER_BITS, Refused, converter, plain_value, to_timestamp

_NONE = type(None)
_ARROW_REFUSALS = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError)
_PLANS_MAX = 4096
_PLANS: dict[int, tuple[pa.DataType, set[type], Callable[[Any], Any]]] = {}
_READY: dict[pa.DataType, set[type]] = {pa.bool_(): {bool}, pa.string(): {str}, pa.binary(): {bytes}}


def to_array(values: Sequence[Any], column: Column) -> pa.Array:
    """Python values as the column's array; MP404 names the column and the first value that does not fit."""
    type_ = column.type
    kinds = set(map(type, values))
    kinds.discard(_NONE)
    ready, convert = _plan(type_)
    if kinds <= ready:
        try:
            return pa.array(values, type_)
        except _ARROW_REFUSALS:
            # A decimal to be rounded, or a misfit: the slow way tells which.
            pass
    try:
        return pa.array([None if v is None else convert(v) for v in values], type_)
    except Refused as refused:
        raise _misfit(column, refused.value) from None
    except _ARROW_REFUSALS:
        raise _misfit(column, _first_misfit(values, type_)) from None


def exact_array(values: Sequence[Any], column: Column) -> pa.Array | None:
    """Python values as the column's array if all are of its very type and within it, else None."""
    if not set(map(type, values)) <= {_NONE, *_plan(column.type)[0]}:
        return None
    try:
        return pa.array(values, column.type)
    except _ARROW_REFUSALS:
        return None


def unmatched(values: Sequence[Any], column: Column) -> list[int]:
    """Where values are that no row can have in the column, as it would round it or has no room for it: 1.5 in
    whole numbers. A value of a wrong kind is not among them: to_array refuses it."""
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
    message = f"Column '{column.name}' is {type_name(column.type)} and cannot take {shown}."
    return ConstraintError("MP404", message, hint="Nothing was changed.")


def _first_misfit(values: Iterable[Any], type_: pa.DataType) -> Any:
    for value in values:
        try:
            pa.array([None if value is None else converter(type_)(value)], type_)
        except (Refused, *_ARROW_REFUSALS):
            return value
    raise AssertionError("no value misfits")


def _plan(type_: pa.DataType) -> tuple[set[type], Callable[[Any], Any]]:
    """How values of a type are made, remembered by the type's identity: Arrow's types are slow to compare."""
    known = _PLANS.get(id(type_))
    if known is None:
        if len(_PLANS) >= _PLANS_MAX:
            _PLANS.clear()
        known = _PLANS[id(type_)] = (type_, _ready_kinds(type_), converter(type_))
    return known[1], known[2]


def _ready_kinds(type_: pa.DataType) -> set[type]:
    """The Python types that pa.array turns into an Arrow type exactly as Spark would, or refuses."""
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
