"""One Python value as a column's type takes it, by Spark's rules for assigning to a stored column."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

# Exact for every DECIMAL(38, s): no rounding but the one asked for.
EXACT = Context(prec=120, rounding=ROUND_HALF_UP)
# The bits of whole numbers, without the sign.
INTEGER_BITS = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}


class Refused(Exception):
    """A value that does not fit."""

    def __init__(self, value: Any) -> None:
        self.value = value


def converter(type_: pa.DataType) -> Callable[[Any], Any]:
    """What makes a value one of the type; it raises `Refused` for one that Spark would not assign."""
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
    """A numpy scalar as the Python value it stands for; other values as they are."""
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
    # A signaling NaN is no number for Python either.
    return _refuse(value) if isinstance(number, Decimal) and number.is_snan() else float(number)


def _to_decimal(value: Any, precision: int, scale: int) -> Decimal:
    number = plain_value(value)
    if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
        raise Refused(value)
    # A float stands for the digits it prints: 0.1 is 0.1, not 0.1000000000000000055.
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
    raise Refused(value)


def _to_date(value: Any) -> dt.date:
    if isinstance(value, dt.datetime):
        return (value.astimezone(dt.UTC) if value.tzinfo else value).date()
    if isinstance(value, dt.date):
        return value
    raise Refused(value)


def to_timestamp(value: Any, zoned: bool) -> dt.datetime:
    """A moment in UTC; a value without a zone is taken as UTC, one with a zone is converted."""
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
