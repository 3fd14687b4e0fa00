"""Values of Python and Arrow into a column's exact type, by Spark's rules for assigning to a stored column."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import ConstraintError
from millpond.schema import Column, type_name

_NONE = type(None)
# Exact for every DECIMAL(38, s): no rounding but the one asked for.
EXACT = Context(prec=120, rounding=ROUND_HALF_UP)
_ARROW_REFUSALS = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError)
_PLANS_MAX = 4096
_PLANS: dict[int, tuple[pa.DataType, set[type], Callable[[Any], Any]]] = {}
_READY: dict[pa.DataType, set[type]] = {pa.bool_(): {bool}, pa.string(): {str}, pa.binary(): {bytes}}
_INT_RANGES = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}


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
    except _Refused as refused:
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
    if not (type_ in _INT_RANGES or pa.types.is_decimal(type_) or pa.types.is_date32(type_)):
        return []
    return [i for i, value in enumerate(values) if value is not None and not _matches(value, type_)]


def may_round(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a value of the one type may lose something of itself in the other, or find no room there."""
    if source == target or pa.types.is_null(source):
        return False
    numbers = _is_number(source) and (target in _INT_RANGES or pa.types.is_decimal(target))
    return bool(numbers or (pa.types.is_timestamp(source) and pa.types.is_date32(target)))


def _matches(value: Any, type_: pa.DataType) -> bool:
    given = _number_of_numpy(value)
    if isinstance(given, bool) or not isinstance(given, int | float | Decimal | dt.date):
        return True
    try:
        kept = _converter(type_)(given)
    except (_Refused, OverflowError):
        return isinstance(given, dt.date)
    if isinstance(given, dt.date):
        return bool(_to_timestamp(given, zoned=True) == _to_timestamp(kept, zoned=True))
    return bool(kept == (Decimal(repr(given)) if isinstance(given, float) else given))


def cast_array(values: pa.Array | pa.ChunkedArray, column: Column) -> pa.Array:
    """An Arrow array as the column's type; MP404 for a value or a type that does not fit."""
    target = column.type
    if values.type == target:
        return _whole(values)
    array = _plain(values)
    try:
        cast = _cast(array, target)
    except _Refused:
        cast = None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        message = f"Column '{column.name}' ({type_name(target)}) cannot take a value: {error}."
        raise ConstraintError("MP404", message, hint="Nothing was changed.") from error
    if cast is None:
        message = f"Column '{column.name}' is {type_name(target)} and cannot take {type_name(array.type)}."
        raise ConstraintError("MP404", message, hint="Cast it first.")
    return cast


class _Refused(Exception):
    """A value that does not fit."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _misfit(column: Column, value: Any) -> ConstraintError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    message = f"Column '{column.name}' is {type_name(column.type)} and cannot take {shown}."
    return ConstraintError("MP404", message, hint="Nothing was changed.")


def _first_misfit(values: Iterable[Any], type_: pa.DataType) -> Any:
    for value in values:
        try:
            pa.array([None if value is None else _converter(type_)(value)], type_)
        except (_Refused, *_ARROW_REFUSALS):
            return value
    raise AssertionError("no value misfits")


def _plan(type_: pa.DataType) -> tuple[set[type], Callable[[Any], Any]]:
    """How values of a type are made, remembered by the type's identity: Arrow's types are slow to compare."""
    known = _PLANS.get(id(type_))
    if known is None:
        if len(_PLANS) >= _PLANS_MAX:
            _PLANS.clear()
        known = _PLANS[id(type_)] = (type_, _ready_kinds(type_), _converter(type_))
    return known[1], known[2]


def _ready_kinds(type_: pa.DataType) -> set[type]:
    """The Python types that pa.array turns into an Arrow type exactly as Spark would, or refuses."""
    if type_ in _INT_RANGES:
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


def _converter(type_: pa.DataType) -> Callable[[Any], Any]:
    if type_ in _INT_RANGES:
        return lambda value: _to_int(value, _INT_RANGES[type_])
    if pa.types.is_decimal(type_):
        return lambda value: _to_decimal(value, type_.precision, type_.scale)
    if pa.types.is_timestamp(type_):
        return lambda value: _to_timestamp(value, type_.tz is not None)
    if pa.types.is_list(type_):
        item = _converter(type_.value_type)
        return lambda value: [None if v is None else item(v) for v in _sequence(value)]
    if pa.types.is_map(type_):
        return lambda value: _to_map(value, type_)
    if pa.types.is_struct(type_):
        return lambda value: _to_struct(value, type_)
    for test, convert in _SIMPLE:
        if test(type_):
            return convert
    return _refuse


def _refuse(value: Any) -> Any:
    raise _Refused(value)


def _to_boolean(value: Any) -> bool:
    return (
        value if isinstance(value, bool) else bool(_number_of_numpy(value)) if _is_numpy_bool(value) else _refuse(value)
    )


def _is_numpy_bool(value: Any) -> bool:
    return type(value).__name__ in ("bool_", "bool") and hasattr(value, "item")


def _number_of_numpy(value: Any) -> Any:
    """A numpy scalar as the Python value it stands for; other values as they are."""
    return value.item() if hasattr(value, "dtype") and hasattr(value, "item") else value


def _to_int(value: Any, bits: int) -> int:
    number = _number_of_numpy(value)
    if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
        raise _Refused(value)
    if not (number.is_finite() if isinstance(number, Decimal) else math.isfinite(number)):
        raise _Refused(value)
    whole = int(number)
    if not -(1 << bits) <= whole < (1 << bits):
        raise _Refused(value)
    return whole


def _to_float(value: Any) -> float:
    number = _number_of_numpy(value)
    if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
        raise _Refused(value)
    # A signaling NaN is no number for Python either.
    return _refuse(value) if isinstance(number, Decimal) and number.is_snan() else float(number)


def _to_decimal(value: Any, precision: int, scale: int) -> Decimal:
    number = _number_of_numpy(value)
    if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
        raise _Refused(value)
    # A float stands for the digits it prints: 0.1 is 0.1, not 0.1000000000000000055.
    exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
    try:
        rounded = exact.quantize(Decimal(1).scaleb(-scale), context=EXACT)
    except InvalidOperation:
        raise _Refused(value) from None
    if not rounded.is_finite() or (rounded.adjusted() >= precision - scale and rounded != 0):
        raise _Refused(value)
    return rounded


def _to_text(value: Any) -> str:
    value = _number_of_numpy(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, Decimal):
        return format(value, "f") if value.is_finite() else _refuse(value)
    if isinstance(value, dt.datetime):
        return _timestamp_text(value)
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float):
        return _float_text(value)
    raise _Refused(value)


def _timestamp_text(value: dt.datetime) -> str:
    moment = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
    text = moment.isoformat(sep=" ")
    return text.rstrip("0") if moment.microsecond else text


def _float_text(value: float) -> str:
    """As Java prints a double: plain from 0.001 to 10,000,000, with an exponent outside."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = exponent + len(digits) - 1
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise _Refused(value)


def _to_date(value: Any) -> dt.date:
    if isinstance(value, dt.datetime):
        return (value.astimezone(dt.UTC) if value.tzinfo else value).date()
    if isinstance(value, dt.date):
        return value
    raise _Refused(value)


def _to_timestamp(value: Any, zoned: bool) -> dt.datetime:
    """A moment in UTC; a value without a zone is taken as UTC, one with a zone is converted."""
    if isinstance(value, dt.datetime):
        moment = value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
    elif isinstance(value, dt.date):
        moment = dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    else:
        raise _Refused(value)
    return moment if zoned else moment.replace(tzinfo=None)


def _sequence(value: Any) -> Iterable[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise _Refused(value)
    return value


def _to_map(value: Any, type_: pa.DataType) -> list[tuple[Any, Any]]:
    key, item = _converter(type_.key_type), _converter(type_.item_type)
    pairs = list(value.items()) if isinstance(value, Mapping) else [tuple(p) for p in _sequence(value)]
    if any(len(p) != 2 or p[0] is None for p in pairs):
        raise _Refused(value)
    return [(key(k), None if v is None else item(v)) for k, v in pairs]


def _to_struct(value: Any, type_: pa.DataType) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _Refused(value)
    given = {str(name).lower(): v for name, v in value.items()}
    if given.keys() - {f.name.lower() for f in type_}:
        raise _Refused(value)
    fields = {f.name: given.get(f.name.lower()) for f in type_}
    return {f.name: None if fields[f.name] is None else _converter(f.type)(fields[f.name]) for f in type_}


_SIMPLE: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_boolean, _to_boolean),
    (pa.types.is_floating, _to_float),
    (pa.types.is_string, _to_text),
    (pa.types.is_binary, _to_bytes),
    (pa.types.is_date32, _to_date),
    (pa.types.is_null, _refuse),
)


def _whole(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(values, pa.ChunkedArray):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks or [pa.array([], values.type)])


def _plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array, with dictionaries decoded and the large and view forms of text as ordinary text."""
    array = _whole(values)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        return array.cast(pa.string())
    if pa.types.is_large_binary(array.type) or pa.types.is_binary_view(array.type):
        return array.cast(pa.binary())
    return array


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array | None:
    """The array in the target type, or None when Spark does not assign the one type to the other."""
    source = array.type
    if source == target:
        return array
    if pa.types.is_null(source):
        return pa.nulls(len(array), target)
    if pa.types.is_decimal(target) and _is_number(source):
        return _cast_to_decimal(array, target)
    if _is_number(source) and _is_number(target):
        return _cast_number(array, target)
    if _is_moment(source) and _is_moment(target):
        return _cast_moment(array, target)
    if pa.types.is_nested(source) or pa.types.is_nested(target) or pa.types.is_string(target):
        return _cast_by_value(array, target)
    return None


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _is_moment(type_: pa.DataType) -> bool:
    return bool(pa.types.is_date(type_) or pa.types.is_timestamp(type_))


def _cast_number(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_integer(target) and not pa.types.is_integer(array.type):
        return pc.trunc(array).cast(target)
    if pa.types.is_floating(target) and pa.types.is_decimal(array.type):
        return _cast_by_value(array, target)
    return array.cast(target, safe=pa.types.is_integer(target))


def _cast_to_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    source = array.type
    if pa.types.is_floating(source):
        return _cast_by_value(array, target)
    if pa.types.is_integer(source):
        wide = pa.decimal256(20 + target.scale, target.scale)
        return array.cast(pa.decimal256(20, 0)).cast(wide).cast(target)
    if source.scale > target.scale:
        # Away from zero at the half, as Spark rounds; one more digit for the carry.
        array = pc.round(array.cast(pa.decimal256(76, source.scale)), target.scale, "half_towards_infinity")
    return array.cast(target)


def _cast_moment(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(array.type) and pa.types.is_date(target):
        return pc.floor_temporal(array.cast(pa.timestamp("us", array.type.tz)), unit="day").cast(target)
    if pa.types.is_date(array.type) and pa.types.is_timestamp(target):
        array = array.cast(pa.timestamp("us"))
    return array.cast(target, safe=False)


def _cast_by_value(array: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Through Python values: for nested types, and for numbers and moments as text."""
    convert = _converter(target)
    return pa.array([None if v is None else convert(v) for v in array.to_pylist()], target)
