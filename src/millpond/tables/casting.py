"""Arrow arrays into a column's exact type, by Spark's rules for assigning to a stored column."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import ConstraintError
from millpond.schema import Column, type_name
from millpond.tables.conversion import INTEGER_BITS, Refused, converter


def cast_array(values: pa.Array | pa.ChunkedArray, column: Column) -> pa.Array:
    """An Arrow array as the column's type; MP404 for a value or a type that does not fit."""
    target = column.type
    if values.type == target:
        return _whole(values)
    array = _plain(values)
    try:
        cast = _cast(array, target)
    except Refused:
        cast = None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        message = f"Column '{column.name}' ({type_name(target)}) cannot take a value: {error}."
        raise ConstraintError("MP404", message, hint="Nothing was changed.") from error
    if cast is None:
        message = f"Column '{column.name}' is {type_name(target)} and cannot take {type_name(array.type)}."
        raise ConstraintError("MP404", message, hint="Cast it first.")
    return cast


def may_round(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a value of the one type may lose something of itself in the other, or find no room there."""
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
    convert = converter(target)
    return pa.array([None if v is None else convert(v) for v in array.to_pylist()], target)
