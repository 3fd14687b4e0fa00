"""Arrays by the equality and order of their elements: searched, sorted, and taken together as sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.coercion import FLOATS, is_list
from millpond.expressions.failures import NotCompilable
from millpond.expressions.frames import Datum
from millpond.expressions.signatures import Kernel, Run, Site, on_columns
from millpond.expressions.sort_ranks import NULL_RANK, Numbers, ranks


def lengths_of(array: pa.Array) -> Any:
    """The number of elements of each array as numpy, 0 for NULL."""
    return np.asarray(pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False), dtype=np.int64)


def listed(lengths: Any, values: pa.Array, nulls: pa.Array) -> pa.Array:
    """Arrays of these lengths cut from one run of elements."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    made = pa.ListArray.from_arrays(pa.array(offsets), values, type=pa.list_(values.type))
    return pc.if_else(nulls, pa.scalar(None, made.type), made) if pc.any(nulls).as_py() else made


def relisted(array: pa.Array, values: pa.Array) -> pa.Array:
    """Arrays of the same lengths, NULL where they were, with other elements: one for each of `array.flatten()`."""
    return listed(lengths_of(array), values, array.is_null())


def elements_at(array: pa.Array, rows: Numbers, places: Numbers) -> pa.Array:
    """The elements at these places, from 0, of the arrays of these rows; NULL behind the end."""
    sizes = lengths_of(array)
    starts = np.cumsum(sizes) - sizes
    missing = places >= sizes[rows]
    return array.flatten().take(pa.array(np.where(missing, 0, starts[rows] + places), mask=missing))


def side_by_side(arrays: Sequence[pa.Array]) -> tuple[Numbers, pa.Array, Numbers, list[pa.Array]]:
    """Arrays row by row, the shorter ones filled up with NULLs: the lengths, which rows are NULL because one of theirs
    is, the row of each element, and the elements of each."""
    gone = reduce(pc.or_, [array.is_null() for array in arrays])
    longest = reduce(np.maximum, [lengths_of(array) for array in arrays])
    lengths = np.where(gone.to_numpy(zero_copy_only=False), 0, longest)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return lengths, gone, rows, [elements_at(array, rows, places) for array in arrays]


@dataclass(frozen=True)
class Items:
    """The elements of arrays one behind the other: the row of each, and its rank among all; `gone` are the arrays that
    are NULL."""

    values: pa.Array
    rows: Numbers
    ranks: Numbers
    count: int
    gone: pa.Array

    def chosen(self, places: Numbers) -> pa.Array:
        """Arrays of some of the elements, by their places, which are in the order of rows."""
        lengths = np.bincount(self.rows[places], minlength=self.count)
        return listed(lengths, self.values.take(pa.array(places)), self.gone)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.ranks != NULL_RANK, bool)

    def any(self, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which arrays have an element where a mask is true."""
        found: npt.NDArray[np.bool_] = np.bincount(self.rows[mask], minlength=self.count) > 0
        return found


def _items(*arrays: pa.Array) -> list[Items]:
    """The elements of columns of arrays; ranks are those among the elements of all of them."""
    flat = [array.flatten() for array in arrays]
    places = ranks(pa.concat_arrays(flat))
    found, start = [], 0
    for array, values in zip(arrays, flat, strict=True):
        rows = np.repeat(np.arange(len(array)), lengths_of(array))
        found.append(Items(values, rows, places[start : start + len(values)], len(array), array.is_null()))
        start += len(values)
    return found


def _with_item(array: pa.Array, item: pa.Array) -> tuple[Items, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """The elements, which of them equal the item of their row, and where the answer is NULL because the item is."""
    (items,) = _items(array)
    both = ranks(pa.concat_arrays([items.values, item]))
    own, wanted = both[: len(items.values)], both[len(items.values) :]
    equal = (own == wanted[items.rows]) & (own != NULL_RANK)
    return items, equal, (wanted == NULL_RANK) | np.asarray(items.gone.to_numpy(zero_copy_only=False), bool)


def _holds(array: pa.Array, item: pa.Array) -> pa.Array:
    items, equal, unknown = _with_item(array, item)
    hit = items.any(equal)
    return pa.array(hit, mask=unknown | (~hit & items.any(~items.known)))


def _position(array: pa.Array, item: pa.Array) -> pa.Array:
    items, equal, unknown = _with_item(array, item)
    starts = np.searchsorted(items.rows, np.arange(items.count), "left")
    found = np.zeros(items.count, np.int64)
    # Of several assignments to one place the last one counts: from the end it is the first element.
    at = np.flatnonzero(equal)[::-1]
    found[items.rows[at]] = at - starts[items.rows[at]] + 1
    return pa.array(found, mask=unknown)


def _removed(array: pa.Array, item: pa.Array) -> pa.Array:
    items, equal, unknown = _with_item(array, item)
    found = items.chosen(np.flatnonzero(~equal))
    return pc.if_else(pa.array(unknown), pa.scalar(None, found.type), found)


def _firsts(rows: Numbers, places: Numbers) -> Numbers:
    """The first of equal elements of each row."""
    pairs = rows * (int(places.max(initial=0)) + 2) + places + 1
    return np.sort(np.unique(pairs, return_index=True)[1])


def _distinct(array: pa.Array) -> pa.Array:
    (items,) = _items(array)
    return items.chosen(_firsts(items.rows, items.ranks))


def _union(left: pa.Array, right: pa.Array) -> pa.Array:
    one, two = _items(left, right)
    rows, places = np.concatenate([one.rows, two.rows]), np.concatenate([one.ranks, two.ranks])
    order = np.argsort(rows, kind="stable")
    values = pa.concat_arrays([one.values, two.values])
    both = Items(values.take(pa.array(order)), rows[order], places[order], one.count, pc.or_(one.gone, two.gone))
    kept = both.chosen(_firsts(both.rows, both.ranks))
    return _without(kept, both.gone)


def _without(lists: pa.Array, gone: pa.Array) -> pa.Array:
    return pc.if_else(gone, pa.scalar(None, lists.type), lists) if pc.any(gone).as_py() else lists


def _difference(*, common: bool) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """ARRAY_INTERSECT and ARRAY_EXCEPT."""

    def find(left: pa.Array, right: pa.Array) -> pa.Array:
        one, two = _items(left, right)
        size = int(max(one.ranks.max(initial=0), two.ranks.max(initial=0))) + 2
        firsts = _firsts(one.rows, one.ranks)
        inside = np.isin((one.rows * size + one.ranks)[firsts], two.rows * size + two.ranks)
        return _without(one.chosen(firsts[inside == common]), pc.or_(one.gone, two.gone))

    return find


def _overlap(left: pa.Array, right: pa.Array) -> pa.Array:
    one, two = _items(left, right)
    size = int(max(one.ranks.max(initial=0), two.ranks.max(initial=0))) + 2
    shared = one.known & np.isin(one.rows * size + one.ranks, (two.rows * size + two.ranks)[two.known])
    hit = one.any(shared)
    some = (lengths_of(left) > 0) & (lengths_of(right) > 0)
    unknown = some & (one.any(~one.known) | two.any(~two.known))
    gone = np.asarray(pc.or_(one.gone, two.gone).to_numpy(zero_copy_only=False), bool)
    return pa.array(hit, mask=gone | (~hit & unknown))


def _extreme(*, largest: bool) -> Callable[[pa.Array], pa.Array]:
    def find(array: pa.Array) -> pa.Array:
        (items,) = _items(array)
        known = np.flatnonzero(items.known)
        order = known[np.lexsort((items.ranks[known], items.rows[known]))]
        rows = items.rows[order]
        edges = rows[1:] != rows[:-1]
        at = np.append(edges, True) if largest else np.insert(edges, 0, True)
        places = np.full(items.count, -1, np.int64)
        if len(order):
            places[rows[at]] = order[at]
        return items.values.take(pa.array(places, mask=places < 0))

    return find


def _sorted(array: pa.Array, *, descending: bool, nulls_last: bool) -> pa.Array:
    (items,) = _items(array)
    keys = -items.ranks if descending else items.ranks
    top = np.iinfo(np.int64).max
    keys = np.where(items.known, keys, top if nulls_last else -top)
    return items.chosen(np.lexsort((keys, items.rows)))


def _sort_array(site: Site) -> Run:
    """NULLs first, or last when the order is descending."""
    ascending = site.constant(1) if len(site.takes) > 1 else True
    run = on_columns(lambda array, *_: _sorted(array, descending=not ascending, nulls_last=not ascending))
    return _ordered(site, run)


def _array_sort(site: Site) -> Run:
    return _ordered(site, on_columns(lambda array: _sorted(array, descending=False, nulls_last=True)))


def _sorted_entries(array: pa.Array) -> pa.Array:
    """The entries of maps in the order of their keys."""
    values = array.flatten()
    rows = np.repeat(np.arange(len(array)), lengths_of(array))
    places = ranks(pc.struct_field(values, 0)) if len(values) else rows
    return relisted(array, values.take(pa.array(np.lexsort((places, rows)))))


def _by_key(site: Site) -> Run:
    if site.takes[0].value_type.field(0).type in FLOATS:
        raise NotCompilable("the order of floats")
    return on_columns(_sorted_entries)


def _ordered(site: Site, run: Run) -> Run:
    """A function of the order of elements; where Spark puts a negative zero beside a positive one is not settled."""
    inner = site.takes[0].value_type
    _require_order(inner)
    if inner not in FLOATS:
        return run

    def checked(array: Datum, *rest: Datum) -> Datum:
        values = np.asarray(pc.fill_null(pc.list_flatten(array), 0.0).to_numpy(zero_copy_only=False))
        if (np.signbit(values) & (values == 0)).any():
            raise NotCompilable("the order of a negative zero")
        return run(array, *rest)

    return on_columns(checked)


def _require_order(type_: pa.DataType) -> None:
    if pa.types.is_map(type_):
        raise NotCompilable("maps have no order")
    for place in range(type_.num_fields):
        inner = type_.field(place).type
        _require_order(inner)
        if inner in FLOATS:
            raise NotCompilable("the order of floats inside of elements")


def by_order(function: Callable[[pa.Array], pa.Array]) -> Kernel:
    """A kernel of one array of which the order of elements decides."""
    return Kernel(lambda site: _ordered(site, on_columns(function)))


def by_equality(function: Callable[..., pa.Array]) -> Kernel:
    """A kernel of arrays and items, of which the equality of elements decides: not of floats, of which Spark keeps NaN
    and zeros apart in ways of its own."""

    def make(site: Site) -> Run:
        for type_ in site.takes:
            inner = type_.value_type if is_list(type_) else type_
            if inner in FLOATS:
                raise NotCompilable("equality of floats in arrays")
            _require_order(inner)
        return on_columns(function)

    return Kernel(make)


HOLDS, POSITION, REMOVED = by_equality(_holds), by_equality(_position), by_equality(_removed)
DISTINCT, UNION, OVERLAP = by_equality(_distinct), by_equality(_union), by_equality(_overlap)
INTERSECT, EXCEPT = by_equality(_difference(common=True)), by_equality(_difference(common=False))
LARGEST, SMALLEST = by_order(_extreme(largest=True)), by_order(_extreme(largest=False))
SORT_ARRAY, ARRAY_SORT, SORTED_ENTRIES = Kernel(_sort_array), Kernel(_array_sort), Kernel(_by_key)
