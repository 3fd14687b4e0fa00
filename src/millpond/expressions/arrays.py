"""Arrays: building them, reading one element, searching, sorting and combining them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.array_elements import (
    ARRAY_SORT,
    DISTINCT,
    EXCEPT,
    HOLDS,
    INTERSECT,
    LARGEST,
    OVERLAP,
    POSITION,
    REMOVED,
    SMALLEST,
    SORT_ARRAY,
    SORTED_ENTRIES,
    UNION,
    lengths_of,
    listed,
    relisted,
    side_by_side,
)
from millpond.expressions.coercion import BIGINT, BOOLEAN, DATE, INT, INTEGERS, STRING, VOID
from millpond.expressions.failures import NotCompilable, RowError
from millpond.expressions.frames import Datum, as_array, mask_of
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
    zip_rule,
)
from millpond.expressions.signatures import Function, Functions, Kernel, Run, Site, elementwise, on_columns
from millpond.expressions.terms import Interval
from millpond.expressions.times import DAY_US, days_plus_months, numbers

ITEMS_MAX = 1_000_000
Items = list[Any]


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
            raise RowError("array indexes start at 1, not 0")
        if not tolerant and (known & outside).any():
            raise RowError(f"the array index {wanted[known & outside][0]} is out of bounds")
        starts = np.cumsum(lengths) - lengths
        return array.flatten().take(pa.array(starts + index, mask=~known | outside))

    return on_columns(pick)


def _compact(array: pa.Array) -> pa.Array:
    known = array.flatten().is_valid().to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(array)), lengths_of(array))
    return listed(np.bincount(rows[known], minlength=len(array)), array.flatten().drop_null(), array.is_null())


def _slice(items: Items, start: int, length: int) -> Items:
    if start == 0 or length < 0:
        raise RowError("the start of SLICE must not be 0, and its length must not be negative")
    begin = start - 1 if start > 0 else len(items) + start
    return items[begin : begin + length] if begin >= 0 else []


def _flatten(array: pa.Array) -> pa.Array:
    """The elements of the inner arrays; NULL if one of them is."""
    inner = array.flatten()
    rows = np.repeat(np.arange(len(array)), lengths_of(array))
    gone = mask_of(array.is_null())
    gone[rows[mask_of(inner.is_null())]] = True
    lengths = np.where(gone[rows], 0, lengths_of(inner))
    values = inner.flatten()
    if gone[rows].any():
        values = values.filter(pa.array(np.repeat(~gone[rows], lengths_of(inner))))
    return listed(np.bincount(rows, lengths, len(array)).astype(np.int64), values, pa.array(gone))


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
        raise RowError("the step of SEQUENCE does not lead from start to end")
    if abs(last - first) // abs(step) > ITEMS_MAX:
        raise NotCompilable("a very long array")
    return list(range(first, last + (1 if step > 0 else -1), step))


def _sequence_of(site: Site) -> Run:
    """SEQUENCE of whole numbers, or of dates or times by an interval."""
    if site.gives.value_type in INTEGERS:
        return elementwise(_sequence, site.gives)
    step = site.constant(2) if len(site.takes) > 2 else None
    if step is not None and site.gives.value_type == DATE and step.microseconds % DAY_US:
        raise NotCompilable("a SEQUENCE of dates by less than a day")
    if step is not None and step.months and step.microseconds:
        raise NotCompilable("a SEQUENCE by months and days")
    unit = DAY_US if site.gives.value_type == DATE else 1

    def make(first: pa.Array, last: pa.Array, *_: pa.Array) -> pa.Array:
        pairs = zip(numbers(first).tolist(), numbers(last).tolist(), strict=True)
        known = pc.and_(first.is_valid(), last.is_valid()).to_pylist()
        found = [_moments(a, b, step, unit) if there else None for (a, b), there in zip(pairs, known, strict=True)]
        whole = pa.array(found, pa.list_(pa.int32() if unit > 1 else pa.int64()))
        return relisted(whole, whole.flatten().view(site.gives.value_type))

    return on_columns(make)


def _moments(first: int, last: int, step: Interval | None, unit: int) -> Items:
    """Days or microseconds from one to another, by days or by months of the calendar."""
    if step is None or not step.months:
        by = DAY_US // unit if step is None else step.microseconds // unit
        return _sequence(first, last, by if step is not None or first <= last else -by)
    found = [first]
    while len(found) <= ITEMS_MAX:
        days, rest = divmod(first, DAY_US // unit) if unit == 1 else (first, 0)
        moved = int(days_plus_months(np.array([days]), len(found) * step.months)[0])
        following = moved * (DAY_US // unit) + rest if unit == 1 else moved
        if following > last if step.months > 0 else following < last:
            break
        found.append(following)
    if first != last and (last - first) * step.months < 0:
        raise RowError("the step of SEQUENCE does not lead from its start to its end")
    return found


def _zipped(site: Site) -> Run:
    fields = list(site.gives.value_type)

    def make(*columns: pa.Array) -> pa.Array:
        lengths, gone, _, sides = side_by_side(columns)
        return listed(lengths, pa.StructArray.from_arrays(sides, fields=fields), gone)

    return on_columns(make)


def _insert(items: Items, place: int, item: Any) -> Items:
    if place == 0:
        raise RowError("array indexes start at 1, not 0")
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
    """CONCAT_WS of texts and arrays of texts; Arrow's function is wrong for rows in which all texts are NULL."""
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
        element(from_one=False, tolerant=True), "the element at an index starting at 0, or NULL"
    ),
    "array_contains": Function(holds_rule, BOOLEAN).by(HOLDS, "whether a value is in an array"),
    "array_position": Function(item_rule(BIGINT), BIGINT).by(POSITION, "the place of a value counted from 1, or 0"),
    "array_remove": Function(item_rule()).by(
        REMOVED,
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
        "the array with a value inserted at an index, from 1 or from the end",
    ),
    "array_compact": _LIST.by_columns(on_columns(_compact), "the array without its NULLs"),
    "array_distinct": _LIST.by(DISTINCT, "each element once"),
    "array_union": _LISTS.by(UNION, "the elements of either array, each once"),
    "array_intersect": _LISTS.by(INTERSECT, "the elements of both arrays, each once"),
    "array_except": _LISTS.by(EXCEPT, "the elements of the first array only, each once"),
    "arrays_overlap": Function(lists_rule(BOOLEAN), BOOLEAN).by(
        OVERLAP, "whether two arrays have an element in common"
    ),
    "array_max": Function(item_of_rule).by(LARGEST, "the largest element"),
    "array_min": Function(item_of_rule).by(SMALLEST, "the smallest element"),
    "sort_array": _SORTED.by(SORT_ARRAY, "the array in order, NULLs first; last when descending"),
    "array_sort": _LIST.by(ARRAY_SORT, "the array in order, NULLs last"),
    "?sorted_entries": _LIST.by(SORTED_ENTRIES),
    "array_join": Function(join_rule, STRING).by_rows(_join, "the elements as one text with a delimiter"),
    "array_repeat": Function(repeat_rule).by(
        Kernel(lambda site: elementwise(_repeated, site.gives, (0,))), "an array of a repeated value"
    ),
    "slice": Function(slice_rule).by_rows(_slice, "a part of an array, counted from 1", fallible=True),
    "flatten": Function(flatten_rule).by_columns(on_columns(_flatten), "an array of arrays as one array"),
    "arrays_zip": Function(zip_rule).by(Kernel(_zipped), "an array of structs of the elements of several arrays"),
    "sequence": Function(sequence_rule).by(
        Kernel(_sequence_of, fallible=True), "the whole numbers from one to another, by a step"
    ),
}
