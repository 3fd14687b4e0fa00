"""Conversion of Python values and Arrow arrays to a column's type, by Spark's rules for storing values."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import ConstraintError
from millpond.schema import Column, type_name

# Exact for every DECIMAL(38, s): only the explicit rounding takes place.
EXACT = Context(prec=120, rounding=ROUND_HALF_UP)
# The bits of whole numbers, without the sign.
INTEGER_BITS = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}


class Refused(Exception):
    """A value that cannot be stored."""

    def __init__(self, value: Any) -> None:
        self.value = value


def converter(type_: pa.DataType) -> Callable[[Any], Any]:
    """A function that converts a value to the type; it raises `Refused` for one that Spark would not store."""
    if type_ in INTEGER_BITS:
        return lambda value: _to_int(value, INTEGER_BITS[type_])
    if pa.types.is_decimal(type_):
        return lambda value: _to_decimal(value, type_.precision, type_.scale)
    if pa.types.is_timestamp(type_):
        return lambda value: to_timestamp(value, type_.tz is not None)
    if pa.types.is_list(type_):
        item = converter(type_.value_type)
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
    raise Refused(value)


def _to_boolean(value: Any) -> bool:
    return value if isinstance(value, bool) else bool(plain_value(value)) if _is_numpy_bool(value) else _refuse(value)


def _is_numpy_bool(value: Any) -> bool:
    return type(value).__name__ in ("bool_", "bool") and hasattr(value, "item")


def plain_value(value: Any) -> Any:
    """A numpy scalar as a Python value; other values unchanged."""
    return value.item() if hasattr(value, "dtype") and hasattr(value, "item") else value


def _to_int(value: Any, bits: int) -> int:
    number = plain_value(value)
    if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
        raise Refused(value)
    if not (number.is_finite() if isinstance(number, Decimal) else math.isfinite(number)):
        raise Refused(value)
    whole = int(number)
    if not -(1 << bits) <= whole < (1 << bits):
        raise Refused(value)
    return whole


def _to_float(value: Any) -> float:
    number = plain_value(value)
    if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
        raise Refused(value)
    # float() of a signaling NaN raises.
    return _refuse(value) if isinstance(number, Decimal) and number.is_snan() else float(number)


def _to_decimal(value: Any, precision: int, scale: int) -> Decimal:
    number = plain_value(value)
    if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
        raise Refused(value)
    # A float is converted by its shortest digits: 0.1 is 0.1, not 0.1000000000000000055.
    exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
    try:
        rounded = exact.quantize(Decimal(1).scaleb(-scale), context=EXACT)
    except InvalidOperation:
        raise Refused(value) from None
    if not rounded.is_finite() or (rounded.adjusted() >= precision - scale and rounded != 0):
        raise Refused(value)
    return rounded


def _to_text(value: Any) -> str:
    value = plain_value(value)
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
    raise Refused(value)


def _timestamp_text(value: dt.datetime) -> str:
    moment = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
    text = moment.isoformat(sep=" ")
    return text.rstrip("0") if moment.microsecond else text


def _float_text(value: float) -> str:
    """A double as Java prints it: plain from 0.001 to 10,000,000, with an exponent outside."""
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
    raise Refused(value)


def _to_date(value: Any) -> dt.date:
    if isinstance(value, dt.datetime):
        return (value.astimezone(dt.UTC) if value.tzinfo else value).date()
    if isinstance(value, dt.date):
        return value
    raise Refused(value)


def to_timestamp(value: Any, zoned: bool) -> dt.datetime:
    """A timestamp in UTC; a value without a zone is interpreted as UTC, one with a zone is converted."""
    if isinstance(value, dt.datetime):
        moment = value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
    elif isinstance(value, dt.date):
        moment = dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    else:
        raise Refused(value)
    return moment if zoned else moment.replace(tzinfo=None)


def _sequence(value: Any) -> Iterable[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise Refused(value)
    return value


def _to_map(value: Any, type_: pa.DataType) -> list[tuple[Any, Any]]:
    key, item = converter(type_.key_type), converter(type_.item_type)
    pairs = list(value.items()) if isinstance(value, Mapping) else [tuple(p) for p in _sequence(value)]
    if any(len(p) != 2 or p[0] is None for p in pairs):
        raise Refused(value)
    return [(key(k), None if v is None else item(v)) for k, v in pairs]


def _to_struct(value: Any, type_: pa.DataType) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Refused(value)
    given = {str(name).lower(): v for name, v in value.items()}
    if given.keys() - {f.name.lower() for f in type_}:
        raise Refused(value)
    fields = {f.name: given.get(f.name.lower()) for f in type_}
    return {f.name: None if fields[f.name] is None else converter(f.type)(fields[f.name]) for f in type_}


_SIMPLE: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_boolean, _to_boolean),
    (pa.types.is_floating, _to_float),
    (pa.types.is_string, _to_text),
    (pa.types.is_binary, _to_bytes),
    (pa.types.is_date32, _to_date),
    (pa.types.is_null, _refuse),
)


def cast_array(values: pa.Array | pa.ChunkedArray, column: Column) -> pa.Array:
    """An Arrow array as the column's type; MP404 for a value or a type that cannot be stored."""
    target = column.type
    if values.type == target:
        return _whole(values)
    array = _plain(values)
    try:
        cast = _cast(array, target)
    except Refused:
        cast = None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        message = f"A value cannot be stored in column '{column.name}' ({type_name(target)}): {error}."
        raise ConstraintError("MP404", message, hint="Nothing was changed.") from error
    if cast is None:
        message = f"Column '{column.name}' is {type_name(target)} and cannot store {type_name(array.type)}."
        raise ConstraintError("MP404", message, hint="Cast the values first.")
    return cast


def may_round(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a value of the source type may lose digits in the target type, or be out of its range."""
    if source == target or pa.types.is_null(source):
        return False
    numbers = _is_number(source) and (target in INTEGER_BITS or pa.types.is_decimal(target))
    return bool(numbers or (pa.types.is_timestamp(source) and pa.types.is_date32(target)))


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
    """The array in the target type, or None if Spark does not store the one type in the other."""
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
        # Half is rounded away from zero, as Spark does; one more digit is for the carry.
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
    convert = converter(target)
    return pa.array([None if v is None else convert(v) for v in array.to_pylist()], target)
