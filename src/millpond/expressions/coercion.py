"""Type coercion by Spark's ANSI rules: which types can be compared and assigned, and their common types."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ

PRECISION_MAX = 38
SCALE_KEPT = 6
INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
FLOATS = (pa.float32(), pa.float64())
DAY_TIME = pa.duration("us")
YEAR_MONTH = pa.month_day_nano_interval()

BOOLEAN, INT, BIGINT, DOUBLE = pa.bool_(), pa.int32(), pa.int64(), pa.float64()
STRING, BINARY, DATE, VOID = pa.string(), pa.binary(), pa.date32(), pa.null()

_INTEGER_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


def plain(type_: pa.DataType) -> pa.DataType:
    """The one Arrow type that represents a SQL type: STRING for every text layout, microseconds for every timestamp,
    and parts of nested types that may be NULL, also where Spark has inferred that none is."""
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return STRING
    if pa.types.is_dictionary(type_):
        return plain(type_.value_type)
    if pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return BINARY
    if pa.types.is_timestamp(type_):
        return TIMESTAMP if type_.tz else TIMESTAMP_NTZ
    return _plain_nested(type_) if pa.types.is_nested(type_) else type_


def _plain_nested(type_: pa.DataType) -> pa.DataType:
    if is_list(type_):
        return pa.list_(plain(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(plain(type_.key_type), plain(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, plain(field.type)) for field in type_])
    return type_


def family(type_: pa.DataType) -> str:
    """The family of a type: number, string, boolean, time, interval, binary, nested or void."""
    type_ = plain(type_)
    if is_number(type_):
        return "number"
    if is_interval(type_):
        return "interval"
    if pa.types.is_nested(type_):
        return "nested"
    if pa.types.is_temporal(type_):
        return "time"
    words = {STRING: "string", BOOLEAN: "boolean", BINARY: "binary", VOID: "void"}
    return words.get(type_, str(type_))


def is_number(type_: pa.DataType) -> bool:
    return pa.types.is_decimal(type_) or type_ in INTEGERS or type_ in FLOATS


def is_interval(type_: pa.DataType) -> bool:
    return type_ in (DAY_TIME, YEAR_MONTH)


def comparable(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether Spark compares the two with = or <, after casting one of them if necessary."""
    together = wider(left, right)
    return together is not None and not has_map(together)


def has_map(type_: pa.DataType) -> bool:
    """Maps have neither order nor equality in Spark."""
    if pa.types.is_map(type_):
        return True
    return any(has_map(type_.field(place).type) for place in range(type_.num_fields))


def assignable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Spark stores a value of one type in a column of another (INSERT and UPDATE, ANSI store assignment)."""
    source, target = plain(source), plain(target)
    if source in (target, VOID):
        return True
    kinds = (family(source), family(target))
    if "nested" in kinds:
        return _assignable_nested(source, target)
    if target == STRING:
        return True
    return kinds in (("number", "number"), ("time", "time"))


def _assignable_nested(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_map(source) and pa.types.is_map(target):
        return assignable(source.key_type, target.key_type) and assignable(source.item_type, target.item_type)
    if is_list(source) and is_list(target):
        return assignable(source.value_type, target.value_type)
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        pairs = zip(list(source), list(target), strict=False)
        return source.num_fields == target.num_fields and all(assignable(a.type, b.type) for a, b in pairs)
    return False


def is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def bounded(precision: int, scale: int) -> pa.DataType:
    """A decimal type, with precision and scale limited to 38."""
    return pa.decimal128(min(precision, PRECISION_MAX), min(scale, PRECISION_MAX))


def adjusted(precision: int, scale: int) -> pa.DataType:
    """The type of a decimal result: beyond 38 digits the scale is reduced first, but not below 6."""
    if precision <= PRECISION_MAX:
        return pa.decimal128(precision, scale)
    kept = max(PRECISION_MAX - (precision - scale), min(scale, SCALE_KEPT))
    return pa.decimal128(PRECISION_MAX, kept)


def as_decimal(type_: pa.DataType) -> pa.DataType:
    """The decimal type for all values of an integer type."""
    return type_ if pa.types.is_decimal(type_) else pa.decimal128(_INTEGER_DIGITS[type_], 0)


def wider_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The decimal type for values of both; beyond 38 digits the integral digits are kept."""
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    if whole + scale <= PRECISION_MAX:
        return pa.decimal128(whole + scale, scale)
    return pa.decimal128(PRECISION_MAX, max(0, PRECISION_MAX - whole))


def wider_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The numeric type for values of both; FLOAT with a whole number or a decimal becomes DOUBLE."""
    if left == right:
        return left
    if left in FLOATS or right in FLOATS:
        return DOUBLE
    if left in INTEGERS and right in INTEGERS:
        return max(left, right, key=INTEGERS.index)
    return wider_decimal(as_decimal(left), as_decimal(right))


def wider(left: pa.DataType, right: pa.DataType, *, strings: bool = True) -> pa.DataType | None:
    """The type both are cast to before they are compared or combined in one column; None if they have no common
    type."""
    left, right = plain(left), plain(right)
    if left == right or right == VOID:
        return left
    if left == VOID:
        return right
    if is_number(left) and is_number(right):
        return wider_number(left, right)
    if STRING in (left, right):
        return _beside_string(right if left == STRING else left) if strings else None
    if family(left) == family(right) == "time":
        return TIMESTAMP if TIMESTAMP in (left, right) else TIMESTAMP_NTZ
    return _wider_nested(left, right)


def _wider_nested(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The common type of two lists, or of two structs with the same fields."""
    if is_list(left) and is_list(right):
        item = wider(left.value_type, right.value_type)
        return None if item is None else pa.list_(item)
    if not (pa.types.is_struct(left) and pa.types.is_struct(right)):
        return None
    if [f.name.lower() for f in left] != [f.name.lower() for f in right]:
        return None
    types = [wider(a.type, b.type) for a, b in zip(list(left), list(right), strict=True)]
    return None if None in types else pa.struct([(f.name, t) for f, t in zip(list(left), types, strict=True)])


def _beside_string(other: pa.DataType) -> pa.DataType | None:
    """The type a string is cast to: BIGINT with a whole number, DOUBLE with another number, else the other type."""
    if other in INTEGERS:
        return BIGINT
    if is_number(other):
        return DOUBLE
    return other if family(other) in ("boolean", "time", "binary") else None


def common(types: Sequence[pa.DataType], *, strings: bool = True) -> pa.DataType | None:
    """The common type of several values (CASE, COALESCE, IN); None if there is none."""
    found: pa.DataType | None = VOID
    for type_ in types:
        found = wider(found, type_, strings=strings) if found is not None else None
    return found
