"""CAST between simple types by ANSI rules: each conversion returns its values and the rows that cannot be cast."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions import text_casts
from millpond.expressions.array_elements import relisted
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

# The values, with NULL for rows that cannot be cast, and which rows these are.
Converted = tuple[pa.Array, pa.Array | None]
Convert = Callable[[pa.Array, pa.DataType], Converted]


@dataclass(frozen=True)
class Conversion:
    """A conversion between two types; `fallible` if some values cannot be cast."""

    convert: Convert
    fallible: bool = True


def node(source: Node, target: Any, *, safe: bool) -> Node:
    """The node cast to a type; unchanged if it has the type. With `safe`, values that cannot be cast become NULL."""
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


def as_type(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Values cast to a type as CAST does; RowError for one that does not fit, NotCompilable where only Spark can."""
    if values.type == target:
        return values
    converted, failed = _conversion(values.type, target).convert(values, target)
    if failed is not None and pc.any(failed).as_py():
        raise _misfit(values, failed, target)
    return converted


# Of these types Spark describes every text that it cannot read in the same way.
_MALFORMED = (*INTEGERS, *FLOATS, BOOLEAN, DATE, TIMESTAMP)
_QUOTED = re.compile(r"['\\\n\r\t]")


def _misfit(values: pa.Array, failed: pa.Array, target: pa.DataType) -> RowError:
    """The failure of the first value that cannot be cast."""
    reason = f"a value cannot be cast to {type_name(target)}"
    if values.type != STRING or target not in _MALFORMED:
        return RowError(reason)
    text = values.filter(failed)[0].as_py()
    if _QUOTED.search(text):
        return RowError(reason)
    described = f'The value \'{text}\' of the type "STRING" cannot be cast to "{type_name(target)}" because it is'
    advice = "malformed. Correct the value as per the syntax, or change its target type."
    return RowError(reason, f"A value cannot be cast. {described} {advice}")


def _runner(source: Node, conversion: Conversion, target: pa.DataType, safe: bool) -> Callable[[Frame], Datum]:
    def run(frame: Frame) -> Datum:
        value = source.run(frame)
        single = isinstance(value, pa.Scalar)
        array = pa.array([value.as_py()], value.type) if single else value
        converted, failed = conversion.convert(array, target)
        if failed is not None and not safe and pc.any(failed).as_py():
            raise _misfit(array, failed, target)
        return converted[0] if single else converted

    return run


def _conversion(source: pa.DataType, target: pa.DataType) -> Conversion:
    if is_list(source) and is_list(target):
        return _of_elements(_conversion(source.value_type, target.value_type))
    if source == target:
        return Conversion(_by_arrow, fallible=False)
    if pa.types.is_struct(source) and pa.types.is_struct(target) and source.num_fields == target.num_fields:
        return _of_fields([_conversion(a.type, b.type) for a, b in zip(source, target, strict=True)])
    if pa.types.is_nested(source) and target == STRING:
        return _nested_to_text(source)
    for fits_source, fits_target, conversion in CONVERSIONS:
        if fits_source(source) and fits_target(target):
            wide = conversion is _WHOLE_TO_WHOLE and INTEGERS.index(source) < INTEGERS.index(target)
            return Conversion(conversion.convert, fallible=False) if wide else conversion
    raise NotCompilable(f"a cast from {type_name(source)} to {type_name(target)}")


def _of_elements(inner: Conversion) -> Conversion:
    """A conversion of the elements of arrays; an element that cannot be cast becomes NULL, or makes the cast fail."""

    def convert(array: pa.Array, target: pa.DataType) -> Converted:
        values, failed = inner.convert(array.flatten(), target.value_type)
        if failed is None:
            return relisted(array, values), None
        bad = pa.array([bool(row) and any(row) for row in relisted(array, failed).to_pylist()], BOOLEAN)
        return relisted(array, values), bad

    return Conversion(convert, inner.fallible)


def _of_fields(inner: Sequence[Conversion]) -> Conversion:
    """A conversion of the fields of structs, one by one."""

    def convert(array: pa.Array, target: pa.DataType) -> Converted:
        parts = [c.convert(part, f.type) for c, part, f in zip(inner, array.flatten(), target, strict=True)]
        made = pa.StructArray.from_arrays([values for values, _ in parts], fields=list(target), mask=array.is_null())
        wrong = [pc.fill_null(failed, False) for _, failed in parts if failed is not None]
        return made, (reduce(pc.or_, wrong) if wrong else None)

    return Conversion(convert, any(c.fallible for c in inner))


def _nested_to_text(source: pa.DataType) -> Conversion:
    """Arrays as [1, null], structs as {1, a}, maps as {a -> 1}."""
    if is_list(source):
        inner = _conversion(source.value_type, STRING)
        return Conversion(lambda array, _: (_bracketed(array, _texts(inner, array.flatten()), "[]"), None), False)
    if pa.types.is_struct(source):
        fields = [_conversion(field.type, STRING) for field in source]
        return Conversion(lambda array, _: (_joined_fields(array, fields), None), False)
    key, item = _conversion(source.key_type, STRING), _conversion(source.item_type, STRING)

    def of_maps(array: pa.Array, _: pa.DataType) -> Converted:
        entries = array.cast(pa.list_(array.type.field(0).type))
        keys, items = entries.flatten().flatten()
        arrows = pc.binary_join_element_wise(_texts(key, keys), _texts(item, items), pa.scalar(" -> "))
        return _bracketed(entries, arrows, "{}"), None

    return Conversion(of_maps, fallible=False)


def _texts(inner: Conversion, values: pa.Array) -> pa.Array:
    return pc.fill_null(inner.convert(values, STRING)[0], "null")


def _bracketed(array: pa.Array, texts_: pa.Array, brackets: str) -> pa.Array:
    inside = pc.binary_join(relisted(array, texts_), ", ")
    return pc.binary_join_element_wise(pa.scalar(brackets[0]), inside, pa.scalar(brackets[1]), pa.scalar(""))


def _joined_fields(array: pa.Array, inner: Sequence[Conversion]) -> pa.Array:
    parts = [_texts(c, part) for c, part in zip(inner, array.flatten(), strict=True)]
    inside = pc.binary_join_element_wise(*parts, pa.scalar(", ")) if parts else pa.repeat("", len(array))
    whole = pc.binary_join_element_wise(pa.scalar("{"), inside, pa.scalar("}"), pa.scalar(""))
    return pc.if_else(array.is_valid(), whole, pa.scalar(None, STRING))


def _blank(values: pa.Array, failed: pa.Array) -> pa.Array:
    return pc.if_else(pc.fill_null(failed, False), pa.scalar(None, values.type), values)


def _outside(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Which whole numbers are out of range of an integer type."""
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
    """Truncated towards zero; Java compares with bounds that are floats, so that 2^63 passes and becomes the
    largest."""
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


# The precision that Arrow requires of a decimal for an integer type.
_ARROW_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


def _whole_to_decimal(array: pa.Array, target: pa.DataType) -> Converted:
    digits = _ARROW_DIGITS[array.type]
    if target.precision - target.scale >= digits:
        return array.cast(target), None
    return rescale(array.cast(pa.decimal128(digits, 0)), target)


def _decimal_to_decimal(array: pa.Array, target: pa.DataType) -> Converted:
    return rescale(array, target)


def _decimal_to_whole(array: pa.Array, target: pa.DataType) -> Converted:
    # Arrow requires room for a digit before the point even if it only truncates.
    wide = array.cast(pa.decimal256(array.type.precision + 1, array.type.scale))
    cut = pc.trunc(wide).cast(pa.decimal256(39, 0))
    failed = _outside(cut, target)
    return _blank(cut, failed).cast(target), failed


def _decimal_to_double(array: pa.Array, target: pa.DataType) -> Converted:
    # Arrow's conversion is not always the nearest double; one division of exact numbers is, and so is Python's.
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
        # Spark returns NULL for NaN and infinity here, even under ANSI rules.
        known = value is not None and np.isfinite(value)
        fit = _nearest_decimal(value, target) if known else None
        found.append(fit)
        failed.append(bool(known and fit is None))
    return pa.array(found, target), pa.array(failed)


def _nearest_decimal(value: float, target: pa.DataType) -> Decimal | None:
    """A double in a decimal type; Java's spelling matters only between the bounds."""
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
    """Bytes that are not UTF-8 become the replacement character, as in Spark's make_valid_utf8."""
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
    """Seconds since 1970; beyond the range Spark uses the nearest timestamp."""
    seconds = np.asarray(pc.fill_null(array, 0).to_numpy(zero_copy_only=False), dtype=np.int64)
    most = (2**63 - 1) // 1_000_000
    kept = np.clip(seconds, -most, most) * 1_000_000
    kept = np.where(seconds > most, 2**63 - 1, np.where(seconds < -most, -(2**63), kept))
    return from_numbers(kept, array, target), None


def _parsed(parse: Callable[[pa.DataType], Callable[[str], Any]]) -> Convert:
    """A conversion of text; each distinct text is parsed once."""

    def convert(array: pa.Array, target: pa.DataType) -> Converted:
        encoded = array.dictionary_encode()
        read = parse(target)
        values: list[Any] = []
        bad: list[bool] = []
        for text in encoded.dictionary.to_pylist():
            try:
                values.append(read(text))
                bad.append(False)
            except text_casts.Malformed:
                values.append(None)
                bad.append(True)
        places = encoded.indices
        return pa.array(values, target).take(places), pa.array(bad, BOOLEAN).take(places)

    return convert


def _read_decimal(target: pa.DataType) -> Callable[[str], Decimal]:
    def read(text: str) -> Decimal:
        found = fitted(text_casts.decimal(text), target)
        if found is None:
            raise text_casts.Malformed
        return found

    return read


def _is(*types: pa.DataType) -> Callable[[pa.DataType], bool]:
    return lambda type_: type_ in types


_any_type: Callable[[pa.DataType], bool] = lambda _: True  # noqa: E731
_whole, _float, _decimal = _is(*INTEGERS), _is(*FLOATS), pa.types.is_decimal
_WHOLE_TO_WHOLE = Conversion(_whole_to_whole)

# The first matching entry is used.
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
    (_is(STRING), _whole, Conversion(_parsed(lambda target: text_casts.whole(target.bit_width)))),
    (_is(STRING), _is(DOUBLE), Conversion(_parsed(lambda _: text_casts.double))),
    (_is(STRING), _is(pa.float32()), Conversion(_parsed(lambda _: text_casts.single))),
    (_is(STRING), _decimal, Conversion(_parsed(_read_decimal))),
    (_is(STRING), _is(BOOLEAN), Conversion(_parsed(lambda _: text_casts.boolean))),
    (_is(STRING), _is(DATE), Conversion(_parsed(lambda _: text_casts.day))),
    (_is(STRING), _is(TIMESTAMP), Conversion(_parsed(lambda _: text_casts.timestamp))),
    (_is(STRING), _is(BINARY), Conversion(_by_arrow, fallible=False)),
    (_is(BINARY), _is(STRING), Conversion(_binary_to_text, fallible=False)),
    (_is(DATE), _is(STRING), Conversion(_date_to_text, fallible=False)),
    (_is(DATE), _is(TIMESTAMP, TIMESTAMP_NTZ), Conversion(_date_to_timestamp)),
    (_is(TIMESTAMP, TIMESTAMP_NTZ), _is(STRING), Conversion(_timestamp_to_text, fallible=False)),
    (_is(TIMESTAMP, TIMESTAMP_NTZ), _is(DATE), Conversion(_timestamp_to_date, fallible=False)),
    (_is(TIMESTAMP, TIMESTAMP_NTZ), _is(TIMESTAMP, TIMESTAMP_NTZ), Conversion(_other_zone, fallible=False)),
    (_is(TIMESTAMP), _whole, Conversion(_timestamp_to_whole)),
)
