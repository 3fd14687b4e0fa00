"""CAST between simple types by ANSI rules: each conversion gives its values and says which rows do not fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions import texts
from millpond.expressions.arrays import relisted
from millpond.expressions.coercion import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOATS,
    INTEGERS,
    PRECISION_MAX,
    STRING,
    VOID,
    is_list,
)
from millpond.expressions.decimals import DOUBLE_DIGITS, fitted, nearest_single, rescale, spelled, unscaled
from millpond.expressions.failures import NotCompilable, RowError
from millpond.expressions.frames import NO_ROWS, Datum, Frame, Node
from millpond.expressions.times import DAY_US, as_text, from_numbers, numbers, timestamp_text
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ, type_name

# The values, with NULL where a row does not fit, and the rows that do not fit.
Converted = tuple[pa.Array, pa.Array | None]
Convert = Callable[[pa.Array, pa.DataType], Converted]


@dataclass(frozen=True)
class Conversion:
    """How values of one type become another's; `fallible` when a row may not fit."""

    convert: Convert
    fallible: bool = True


def node(source: Node, target: Any, *, safe: bool) -> Node:
    """The node cast to a type: itself when it has it already; `safe` makes NULL of what does not fit."""
    assert isinstance(target, pa.DataType)
    if source.type == target:
        return source
    found = _conversion(source.type, target)
    run = _runner(source, found, target, safe)
    fallible = source.fallible or (found.fallible and not safe)
    constant = source.constant
    if isinstance(constant, pa.Scalar) and not fallible:
        value = run(NO_ROWS)
        return Node(target, lambda _: value, constant=value)
    return Node(target, run, fallible)


def _runner(source: Node, conversion: Conversion, target: pa.DataType, safe: bool) -> Callable[[Frame], Datum]:
    def run(frame: Frame) -> Datum:
        value = source.run(frame)
        single = isinstance(value, pa.Scalar)
        array = pa.array([value.as_py()], value.type) if single else value
        converted, failed = conversion.convert(array, target)
        if failed is not None and not safe and pc.any(failed).as_py():
            raise RowError(f"a value does not fit {type_name(target)}")
        return converted[0] if single else converted

    return run


def _conversion(source: pa.DataType, target: pa.DataType) -> Conversion:
    if is_list(source) and is_list(target):
        return _of_elements(_conversion(source.value_type, target.value_type))
    if source == target:
        return Conversion(_by_arrow, fallible=False)
    for fits_source, fits_target, conversion in CONVERSIONS:
        if fits_source(source) and fits_target(target):
            wide = conversion is _WHOLE_TO_WHOLE and INTEGERS.index(source) < INTEGERS.index(target)
            return Conversion(conversion.convert, fallible=False) if wide else conversion
    raise NotCompilable(f"a cast from {type_name(source)} to {type_name(target)}")


def _of_elements(inner: Conversion) -> Conversion:
    """An array whose elements are converted; one that does not fit makes NULL of itself, or the cast fail."""

    def convert(array: pa.Array, target: pa.DataType) -> Converted:
        values, failed = inner.convert(array.flatten(), target.value_type)
        if failed is None:
            return relisted(array, values), None
        bad = pa.array([bool(row) and any(row) for row in relisted(array, failed).to_pylist()], BOOLEAN)
        return relisted(array, values), bad

    return Conversion(convert, inner.fallible)


def _blank(values: pa.Array, failed: pa.Array) -> pa.Array:
    return pc.if_else(pc.fill_null(failed, False), pa.scalar(None, values.type), values)


def _outside(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Where whole numbers are beyond an integer type."""
    top = 2 ** (target.bit_width - 1)
    kind = values.type
    low, high = (Decimal(-top), Decimal(top - 1)) if pa.types.is_decimal(kind) else (-top, top - 1)
    return pc.or_(pc.less(values, pa.scalar(low, kind)), pc.greater(values, pa.scalar(high, kind)))


def _whole_to_whole(array: pa.Array, target: pa.DataType) -> Converted:
    if INTEGERS.index(array.type) < INTEGERS.index(target):
        return array.cast(target), None
    failed = _outside(array, target)
    return _blank(array, failed).cast(target), failed


def _whole_to_float(array: pa.Array, target: pa.DataType) -> Converted:
    return array.cast(target, safe=False), None


def _float_to_float(array: pa.Array, target: pa.DataType) -> Converted:
    return array.cast(target, safe=False), None


def _float_to_whole(array: pa.Array, target: pa.DataType) -> Converted:
    """Cut towards zero; Java's bounds are floats themselves, so that 2^63 still passes and becomes the largest."""
    values = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False)
    top = values.dtype.type(2 ** (target.bit_width - 1) - 1)
    low = values.dtype.type(-(2 ** (target.bit_width - 1)))
    with np.errstate(invalid="ignore"):
        good = (np.floor(values) <= top) & (np.ceil(values) >= low)
    whole = [int(v) if ok else 0 for v, ok in zip(values.tolist(), good.tolist(), strict=True)]
    limit = 2 ** (target.bit_width - 1) - 1
    found = pa.array([max(-limit - 1, min(limit, v)) for v in whole], target)
    failed = pa.array(~good)
    return _blank(pc.if_else(array.is_valid(), found, pa.scalar(None, target)), failed), failed


# How many digits Arrow wants a decimal to have for every value of an integer type.
_ARROW_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


def _whole_to_decimal(array: pa.Array, target: pa.DataType) -> Converted:
    digits = _ARROW_DIGITS[array.type]
    if target.precision - target.scale >= digits:
        return array.cast(target), None
    return rescale(array.cast(pa.decimal128(digits, 0)), target)


def _decimal_to_decimal(array: pa.Array, target: pa.DataType) -> Converted:
    return rescale(array, target)


def _decimal_to_whole(array: pa.Array, target: pa.DataType) -> Converted:
    # Arrow wants room for a digit before the point even when it only cuts.
    wide = array.cast(pa.decimal256(array.type.precision + 1, array.type.scale))
    cut = pc.trunc(wide).cast(pa.decimal256(39, 0))
    failed = _outside(cut, target)
    return _blank(cut, failed).cast(target), failed


def _decimal_to_double(array: pa.Array, target: pa.DataType) -> Converted:
    # Arrow's own conversion is not always the nearest double; one division of exact numbers is, and so is Python's.
    if array.type.precision <= DOUBLE_DIGITS:
        exact = unscaled(array).astype(np.float64) / 10.0**array.type.scale
        return pa.array(exact, mask=array.is_null().to_numpy(zero_copy_only=False)), None
    return pa.array([None if v is None else float(v) for v in array.to_pylist()], target), None


def _decimal_to_single(array: pa.Array, target: pa.DataType) -> Converted:
    return pa.array([None if v is None else nearest_single(v) for v in array.to_pylist()], target), None


def _float_to_decimal(array: pa.Array, target: pa.DataType) -> Converted:
    found: list[Decimal | None] = []
    failed: list[bool] = []
    for value in array.cast(DOUBLE).to_pylist():
        # Spark makes NULL of NaN and infinity here, even under ANSI rules.
        known = value is not None and np.isfinite(value)
        fit = _nearest_decimal(value, target) if known else None
        found.append(fit)
        failed.append(bool(known and fit is None))
    return pa.array(found, target), pa.array(failed)


def _nearest_decimal(value: float, target: pa.DataType) -> Decimal | None:
    """A double in a decimal type; only between the two ends does it matter how Java spells it."""
    if abs(value) >= 10.0**PRECISION_MAX:
        return None
    if abs(value) < 10.0 ** -(target.scale + 1):
        return Decimal(0)
    return fitted(spelled(value), target)


def _float_to_text(array: pa.Array, target: pa.DataType) -> Converted:
    return pa.array([None if v is None else java_spelling(v) for v in array.to_pylist()], target), None


_JAVA_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
# Between these Java writes no exponent.
PLAIN_MIN, PLAIN_MAX = 1e-3, 1e7


def java_spelling(value: float) -> str:
    """A double as Java writes it."""
    if not math.isfinite(value):
        return _JAVA_WORDS[repr(value)]
    exact = spelled(value)
    if value == 0 or PLAIN_MIN <= abs(value) < PLAIN_MAX:
        return repr(value)
    digits = "".join(map(str, exact.as_tuple().digits)).rstrip("0")
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{exact.adjusted()}"


def _to_boolean(array: pa.Array, _: pa.DataType) -> Converted:
    zero = pa.scalar(Decimal(0), array.type) if pa.types.is_decimal(array.type) else pa.scalar(0, array.type)
    return pc.not_equal(array, zero), None


def _boolean_to_number(array: pa.Array, target: pa.DataType) -> Converted:
    return array.cast(target), None


def _boolean_to_decimal(array: pa.Array, target: pa.DataType) -> Converted:
    return _whole_to_decimal(array.cast(pa.int8()), target)


def _by_arrow(array: pa.Array, target: pa.DataType) -> Converted:
    return array.cast(target), None


def _decimal_to_text(array: pa.Array, target: pa.DataType) -> Converted:
    return pa.array([None if v is None else format(v, "f") for v in array.to_pylist()], target), None


def _binary_to_text(array: pa.Array, target: pa.DataType) -> Converted:
    """What is not UTF-8 becomes the character that stands for it, as make_valid_utf8 of Spark has it."""
    try:
        return array.cast(target), None
    except pa.ArrowInvalid:
        return pa.array([None if v is None else v.decode("utf-8", "replace") for v in array.to_pylist()], target), None


def _date_to_text(array: pa.Array, _: pa.DataType) -> Converted:
    return as_text(numbers(array), "D", array), None


def _timestamp_to_text(array: pa.Array, _: pa.DataType) -> Converted:
    return timestamp_text(array), None


def _date_to_timestamp(array: pa.Array, target: pa.DataType) -> Converted:
    days = numbers(array)
    failed = np.abs(days) > (2**63 - 1) // DAY_US
    values = from_numbers(np.where(failed, 0, days) * DAY_US, array, target)
    return _blank(values, pa.array(failed)), pa.array(failed)


def _timestamp_to_date(array: pa.Array, target: pa.DataType) -> Converted:
    return from_numbers(numbers(array) // DAY_US, array, target), None


def _other_zone(array: pa.Array, target: pa.DataType) -> Converted:
    return array.view(target), None


def _timestamp_to_whole(array: pa.Array, target: pa.DataType) -> Converted:
    seconds = from_numbers(numbers(array) // 1_000_000, array, BIGINT)
    return (seconds, None) if target == BIGINT else _whole_to_whole(seconds, target)


def _whole_to_timestamp(array: pa.Array, target: pa.DataType) -> Converted:
    """Seconds since 1970; beyond the range Spark takes the nearest timestamp."""
    seconds = np.asarray(pc.fill_null(array, 0).to_numpy(zero_copy_only=False), dtype=np.int64)
    most = (2**63 - 1) // 1_000_000
    kept = np.clip(seconds, -most, most) * 1_000_000
    kept = np.where(seconds > most, 2**63 - 1, np.where(seconds < -most, -(2**63), kept))
    return from_numbers(kept, array, target), None


def _parsed(parse: Callable[[pa.DataType], Callable[[str], Any]]) -> Convert:
    """A conversion of text; each distinct text is read once."""

    def convert(array: pa.Array, target: pa.DataType) -> Converted:
        encoded = array.dictionary_encode()
        read = parse(target)
        values: list[Any] = []
        bad: list[bool] = []
        for text in encoded.dictionary.to_pylist():
            try:
                values.append(read(text))
                bad.append(False)
            except texts.Malformed:
                values.append(None)
                bad.append(True)
        places = encoded.indices
        return pa.array(values, target).take(places), pa.array(bad, BOOLEAN).take(places)

    return convert


def _read_decimal(target: pa.DataType) -> Callable[[str], Decimal]:
    def read(text: str) -> Decimal:
        found = fitted(texts.decimal(text), target)
        if found is None:
            raise texts.Malformed
        return found

    return read


def _is(*types: pa.DataType) -> Callable[[pa.DataType], bool]:
    return lambda type_: type_ in types


_any_type: Callable[[pa.DataType], bool] = lambda _: True  # noqa: E731
_whole, _float, _decimal = _is(*INTEGERS), _is(*FLOATS), pa.types.is_decimal
_WHOLE_TO_WHOLE = Conversion(_whole_to_whole)

# The first line that fits counts.
CONVERSIONS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool], Conversion], ...] = (
    (_is(VOID), _any_type, Conversion(_by_arrow, fallible=False)),
    (_whole, _whole, _WHOLE_TO_WHOLE),
    (_whole, _float, Conversion(_whole_to_float, fallible=False)),
    (_whole, _decimal, Conversion(_whole_to_decimal)),
    (_whole, _is(BOOLEAN), Conversion(_to_boolean, fallible=False)),
    (_whole, _is(STRING), Conversion(_by_arrow, fallible=False)),
    (_whole, _is(TIMESTAMP), Conversion(_whole_to_timestamp, fallible=False)),
    (_float, _float, Conversion(_float_to_float, fallible=False)),
    (_float, _whole, Conversion(_float_to_whole)),
    (_float, _decimal, Conversion(_float_to_decimal)),
    (_float, _is(BOOLEAN), Conversion(_to_boolean, fallible=False)),
    (_is(DOUBLE), _is(STRING), Conversion(_float_to_text, fallible=False)),
    (_decimal, _decimal, Conversion(_decimal_to_decimal)),
    (_decimal, _whole, Conversion(_decimal_to_whole)),
    (_decimal, _is(DOUBLE), Conversion(_decimal_to_double, fallible=False)),
    (_decimal, _is(pa.float32()), Conversion(_decimal_to_single, fallible=False)),
    (_decimal, _is(BOOLEAN), Conversion(_to_boolean, fallible=False)),
    (_decimal, _is(STRING), Conversion(_decimal_to_text, fallible=False)),
    (_is(BOOLEAN), _decimal, Conversion(_boolean_to_decimal)),
    (_is(BOOLEAN), _is(*INTEGERS, *FLOATS, STRING), Conversion(_boolean_to_number, fallible=False)),
    (_is(STRING), _whole, Conversion(_parsed(lambda target: texts.whole(target.bit_width)))),
    (_is(STRING), _is(DOUBLE), Conversion(_parsed(lambda _: texts.double))),
    (_is(STRING), _is(pa.float32()), Conversion(_parsed(lambda _: texts.single))),
    (_is(STRING), _decimal, Conversion(_parsed(_read_decimal))),
    (_is(STRING), _is(BOOLEAN), Conversion(_parsed(lambda _: texts.boolean))),
    (_is(STRING), _is(DATE), Conversion(_parsed(lambda _: texts.day))),
    (_is(STRING), _is(TIMESTAMP), Conversion(_parsed(lambda _: texts.timestamp))),
    (_is(STRING), _is(BINARY), Conversion(_by_arrow, fallible=False)),
    (_is(BINARY), _is(STRING), Conversion(_binary_to_text, fallible=False)),
    (_is(DATE), _is(STRING), Conversion(_date_to_text, fallible=False)),
    (_is(DATE), _is(TIMESTAMP, TIMESTAMP_NTZ), Conversion(_date_to_timestamp)),
    (_is(TIMESTAMP, TIMESTAMP_NTZ), _is(STRING), Conversion(_timestamp_to_text, fallible=False)),
    (_is(TIMESTAMP, TIMESTAMP_NTZ), _is(DATE), Conversion(_timestamp_to_date, fallible=False)),
    (_is(TIMESTAMP, TIMESTAMP_NTZ), _is(TIMESTAMP, TIMESTAMP_NTZ), Conversion(_other_zone, fallible=False)),
    (_is(TIMESTAMP), _whole, Conversion(_timestamp_to_whole)),
)
