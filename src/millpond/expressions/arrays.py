"""Arrays: building them, reading one element, searching, sorting and combining them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.coercion import BIGINT, BOOLEAN, FLOATS, INT, STRING, VOID, is_list
from millpond.expressions.failures import NotCompilable, RowError
from millpond.expressions.frames import Datum, as_array
from millpond.expressions.kernels import Kernel, Run, Site, elementwise, on_columns
from millpond.expressions.nested_rules import (
    array_rule,
    array_size_rule,
    flatten_rule,
    get_rule,
    holds_rule,
    insert_rule,
    item_of_rule,
    item_rule,
    join_rule,
    list_rule,
    lists_rule,
    repeat_rule,
    sequence_rule,
    size_rule,
    slice_rule,
    sort_rule,
)
from millpond.expressions.signatures import Function, Functions

ITEMS_MAX = 1_000_000
Items = list[Any]


def lengths_of(array: pa.Array) -> Any:
    """The number of elements of each array as numpy, 0 for NULL."""
    return np.asarray(pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False), dtype=np.int64)


def relisted(array: pa.Array, values: pa.Array) -> pa.Array:
    """Arrays of the same lengths, NULL where they were, with other elements: one for each of `array.flatten()`."""
    return listed(lengths_of(array), values, array.is_null())


def listed(lengths: Any, values: pa.Array, nulls: pa.Array) -> pa.Array:
    """Arrays of these lengths cut from one run of elements."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    made = pa.ListArray.from_arrays(pa.array(offsets), values, type=pa.list_(values.type))
    return pc.if_else(nulls, pa.scalar(None, made.type), made) if pc.any(nulls).as_py() else made


def _size(value: Datum) -> Datum:
    if pa.types.is_map(value.type):
        value = value.cast(pa.list_(value.type.field(0).type)) if isinstance(value, pa.Array) else value
    return pc.cast(pc.list_value_length(value), INT)


def _array(site: Site) -> Run:
    if site.gives.value_type == VOID:
        raise NotCompilable("an array of nothing but NULL")

    def make(*columns: pa.Array) -> pa.Array:
        count, length = len(columns), len(columns[0])
        order = np.arange(count * length).reshape(count, length).T.ravel()
        values = pa.concat_arrays(columns).take(pa.array(order))
        return listed(np.full(length, count), values, pa.array(np.zeros(length, dtype=bool)))

    return on_columns(make)


def element(*, from_one: bool, tolerant: bool) -> Run:
    """One element of each array; out of bounds it fails, or is NULL when `tolerant`."""

    def pick(array: pa.Array, place: pa.Array) -> pa.Array:
        wanted = np.asarray(pc.fill_null(place, 1).to_numpy(zero_copy_only=False), dtype=np.int64)
        known = pc.and_(array.is_valid(), place.is_valid()).to_numpy(zero_copy_only=False)
        lengths = lengths_of(array)
        index = np.where(wanted > 0, wanted - 1, lengths + wanted) if from_one else wanted
        outside = (index < 0) | (index >= lengths)
        if from_one and (known & (wanted == 0)).any():
            raise RowError("elements are counted from 1, and 0 is none")
        if not tolerant and (known & outside).any():
            raise RowError(f"the array has no element at {wanted[known & outside][0]}")
        starts = np.cumsum(lengths) - lengths
        return array.flatten().take(pa.array(starts + index, mask=~known | outside))

    return on_columns(pick)


def exact(*types: pa.DataType) -> None:
    """Refuses elements whose equality is not that of Python: NaN, negative zero, and what contains them."""
    for type_ in types:
        inner = type_.value_type if is_list(type_) else type_
        if inner in FLOATS or pa.types.is_nested(inner):
            raise NotCompilable("equality of elements of this type")


def _by_equality(function: Callable[..., Any], nullable: Sequence[int] = ()) -> Kernel:
    def make(site: Site) -> Run:
        exact(*site.takes)
        return elementwise(function, site.gives, nullable)

    return Kernel(make)


def _holds(items: Items, wanted: Any) -> bool | None:
    return True if wanted in items else (None if None in items else False)


def _position(items: Items, wanted: Any) -> int:
    return items.index(wanted) + 1 if wanted in items else 0


def _distinct(items: Items) -> Items:
    return list(dict.fromkeys(items))


def _union(left: Items, right: Items) -> Items:
    return _distinct(left + right)


def _intersect(left: Items, right: Items) -> Items:
    others = set(right)
    return [item for item in _distinct(left) if item in others]


def _except(left: Items, right: Items) -> Items:
    others = set(right)
    return [item for item in _distinct(left) if item not in others]


def _overlap(left: Items, right: Items) -> bool | None:
    if (set(left) - {None}) & (set(right) - {None}):
        return True
    return None if left and right and (None in left or None in right) else False


def _ordered(function: Callable[..., Any]) -> Kernel:
    """A function of the order of elements; Spark's own order of NaN and negative zero is not Python's."""

    def make(site: Site) -> Run:
        if pa.types.is_nested(site.takes[0].value_type):
            raise NotCompilable("the order of nested elements")
        floats = site.takes[0].value_type in FLOATS

        def one(items: Items, *rest: Any) -> Any:
            if floats and any(v is not None and (v != v or (v == 0 and math.copysign(1, v) < 0)) for v in items):
                raise NotCompilable("the order of NaN and negative zero")
            return function(items, *rest)

        if len(site.takes) > 1:
            site.constant(1)
        return elementwise(one, site.gives)

    return Kernel(make)


def _known(items: Items) -> Items:
    return [item for item in items if item is not None]


def _sort_array(items: Items, ascending: bool = True) -> Items:
    """NULLs first, or last when the order is descending."""
    known = sorted(_known(items), reverse=not ascending)
    nulls = [None] * (len(items) - len(known))
    return nulls + known if ascending else known + nulls


def _array_sort(items: Items) -> Items:
    known = sorted(_known(items))
    return known + [None] * (len(items) - len(known))


def _slice(items: Items, start: int, length: int) -> Items:
    if start == 0 or length < 0:
        raise RowError("SLICE starts at 1 or at a negative place, and its length is not negative")
    begin = start - 1 if start > 0 else len(items) + start
    return items[begin : begin + length] if begin >= 0 else []


def _flatten(items: Items) -> Items | None:
    return None if None in items else [item for inner in items for item in inner]


def _join(items: Items, delimiter: str, instead: str | None = None) -> str:
    texts = [instead if item is None else item for item in items]
    return delimiter.join(text for text in texts if text is not None)


def _repeated(item: Any, times: int) -> Items:
    if times > ITEMS_MAX:
        raise NotCompilable("a very long array")
    return [item] * max(times, 0)


def _sequence(first: int, last: int, step: int | None = None) -> Items:
    step = (1 if first <= last else -1) if step is None else step
    if first == last:
        return [first]
    if step == 0 or (last - first) * step < 0:
        raise RowError("the step of SEQUENCE does not lead from its start to its end")
    if abs(last - first) // abs(step) > ITEMS_MAX:
        raise NotCompilable("a very long array")
    return list(range(first, last + (1 if step > 0 else -1), step))


def _insert(items: Items, place: int, item: Any) -> Items:
    if place == 0:
        raise RowError("elements are counted from 1, and 0 is none")
    if abs(place) > ITEMS_MAX:
        raise NotCompilable("a very long array")
    if place > 0:
        gap: Items = [None] * (place - 1 - len(items))
        return [*items[: place - 1], *gap, item, *items[place - 1 :]]
    at = len(items) + place + 1
    return [*items[:at], item, *items[at:]] if at >= 0 else [item, *[None] * -at, *items]


def joined_lists(*columns: Items) -> Items:
    """Arrays one after the other."""
    return [item for items in columns for item in items]


def concat_ws(separator: Datum, *texts: Datum) -> Datum:
    """CONCAT_WS of texts and arrays of texts; Arrow's own loses rows when all texts of a row are NULL."""
    arguments = (separator, *texts)
    lengths = [len(a) for a in arguments if isinstance(a, pa.Array)]
    length = lengths[0] if lengths else 1
    columns = [as_array(a, length, a.type).to_pylist() for a in arguments]
    found = [None if between is None else between.join(_texts(row)) for between, *row in zip(*columns, strict=True)]
    return pa.array(found, STRING) if lengths else pa.scalar(found[0], STRING)


def _texts(row: Sequence[Any]) -> list[str]:
    parts = [item if isinstance(item, list) else [item] for item in row]
    return [text for part in parts for text in part if text is not None]


_LIST = Function(list_rule)
_LISTS = Function(lists_rule())
_SORTED = Function(sort_rule)

FUNCTIONS: Functions = {
    "array": Function(array_rule).by(Kernel(_array, lazy=False), "an array of the arguments"),
    "size": Function(size_rule, INT).by_columns(_size, "the number of elements of an array or map"),
    "array_size": Function(array_size_rule, INT).by_columns(_size, "the number of elements of an array"),
    "get": Function(get_rule).by_columns(
        element(from_one=False, tolerant=True), "the element at a place counted from 0, or NULL"
    ),
    "array_contains": Function(holds_rule, BOOLEAN).by(_by_equality(_holds), "whether a value is in an array"),
    "array_position": Function(item_rule(BIGINT), BIGINT).by(
        _by_equality(_position), "the place of a value counted from 1, or 0"
    ),
    "array_remove": Function(item_rule()).by(
        _by_equality(lambda items, gone: [item for item in items if item is None or item != gone]),
        "the array without a value",
    ),
    "array_append": Function(item_rule()).by(
        Kernel(lambda site: elementwise(lambda items, item: [*items, item], site.gives, (1,))),
        "the array with a value at its end",
    ),
    "array_prepend": Function(item_rule()).by(
        Kernel(lambda site: elementwise(lambda items, item: [item, *items], site.gives, (1,))),
        "the array with a value at its start",
    ),
    "array_insert": Function(insert_rule).by(
        Kernel(lambda site: elementwise(_insert, site.gives, (2,)), fallible=True),
        "the array with a value at a place, counted from 1 or from the end",
    ),
    "array_compact": _LIST.by_rows(_known, "the array without its NULLs"),
    "array_distinct": _LIST.by(_by_equality(_distinct), "each element once"),
    "array_union": _LISTS.by(_by_equality(_union), "the elements of either array, each once"),
    "array_intersect": _LISTS.by(_by_equality(_intersect), "the elements of both arrays, each once"),
    "array_except": _LISTS.by(_by_equality(_except), "the elements of the first array only, each once"),
    "arrays_overlap": Function(lists_rule(BOOLEAN), BOOLEAN).by(
        _by_equality(_overlap), "whether two arrays have an element in common"
    ),
    "array_max": Function(item_of_rule).by(
        _ordered(lambda items: max(_known(items), default=None)), "the largest element"
    ),
    "array_min": Function(item_of_rule).by(
        _ordered(lambda items: min(_known(items), default=None)), "the smallest element"
    ),
    "sort_array": _SORTED.by(_ordered(_sort_array), "the array in order, NULLs first; last when descending"),
    "array_sort": _LIST.by(_ordered(_array_sort), "the array in order, NULLs last"),
    "array_join": Function(join_rule, STRING).by_rows(_join, "the elements as one text with a delimiter"),
    "array_repeat": Function(repeat_rule).by(
        Kernel(lambda site: elementwise(_repeated, site.gives, (0,))), "an array of one value so many times"
    ),
    "slice": Function(slice_rule).by_rows(_slice, "a part of an array, counted from 1", fallible=True),
    "flatten": Function(flatten_rule).by_rows(_flatten, "an array of arrays as one array"),
    "sequence": Function(sequence_rule).by_rows(
        _sequence, "the whole numbers from one to another, by a step", fallible=True
    ),
}
