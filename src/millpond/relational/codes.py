"""Codes: values numbered so that equal values have equal numbers, which makes joins and groups work on integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.casts import as_type
from millpond.expressions.failures import NotCompilable, RowError
from millpond.expressions.sort_ranks import ranks, single_zero_and_nan

Numbers: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = pa.Array | pa.ChunkedArray

# The code of NULL in a join, where it is equal to nothing.
NOTHING = -1
# Beyond this product, codes are renumbered before they are combined, so that int64 cannot overflow.
CODE_MAX = 1 << 31


@dataclass(frozen=True)
class Coded:
    """A dictionary-encoded column: the distinct values, and the position of each row's value among them; NULL for
    NULL."""

    values: pa.Array
    places: pa.Array

    @classmethod
    def of(cls, column: Values) -> Coded:
        column = whole(single_zero_and_nan(column))
        _require_comparable(column)
        encoded = column.dictionary_encode()
        return cls(encoded.dictionary, encoded.indices)

    @property
    def column(self) -> pa.Array:
        """The decoded column."""
        return self.values.take(self.places)


def group_codes(columns: Sequence[Values], length: int) -> tuple[Numbers, Numbers]:
    """Return the group of each row, numbered by first appearance, and the first row of each group. NULLs are equal, as
    in GROUP BY."""
    if not columns:
        return np.zeros(length, np.int64), np.zeros(min(length, 1), np.int64)
    groups = _by_appearance(columns[0]) if len(columns) == 1 else None
    if groups is None:
        codes = _combined([_encoded(column, "encode") for column in columns])
        groups = pa.array(codes).dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    # A group is numbered where it first appears: there the largest number so far grows.
    largest = np.maximum.accumulate(groups) if length else groups
    return groups, np.flatnonzero(np.diff(largest, prepend=-1))


def _by_appearance(column: Values) -> Numbers | None:
    """Return the codes of one column, numbered by first appearance; None for a type that Arrow does not encode."""
    values = whole(column)
    _require_comparable(values)
    if _is_ranked(values.type):
        return None
    indices = pc.dictionary_encode(values, null_encoding="encode").indices
    return np.asarray(indices.to_numpy(zero_copy_only=False), np.int64)


def places_in(wanted: Values, held: Values) -> pa.Array | None:
    """Return the position of each wanted value among the held ones, NULL for none; NULL equals NULL, and held values
    are distinct. None for a type whose values Arrow compares in another way than this."""
    if wanted.type != held.type or _is_ranked(wanted.type):
        return None
    return pc.index_in(whole(wanted), value_set=whole(held)).cast(pa.int64())


def pairs(left: Sequence[Values], right: Sequence[Values]) -> tuple[Numbers, Numbers]:
    """Return the pairs of rows whose columns are all equal, ordered by the left row, then by the right one."""
    count = len(left[0])
    ours, theirs = shared(left, right)
    order = np.argsort(theirs, kind="stable")
    ordered = theirs[order]
    starts = np.searchsorted(ordered, ours, "left")
    counts = np.where(ours == NOTHING, 0, np.searchsorted(ordered, ours, "right") - starts)
    lefts = np.repeat(np.arange(count), counts)
    within = np.arange(len(lefts)) - np.repeat(np.cumsum(counts) - counts, counts)
    return lefts, order[np.repeat(starts, counts) + within]


def shared(left: Sequence[Values], right: Sequence[Values]) -> tuple[Numbers, Numbers]:
    """Return the rows of two sides as codes; NOTHING for a row with a NULL."""
    both = [pa.concat_arrays([whole(a), whole(b)]) for a, b in zip(left, right, strict=True)]
    codes = _combined([_encoded(column, "mask") for column in both])
    return codes[: len(left[0])], codes[len(left[0]) :]


def pairs_of_one(left: Coded, right: Values) -> tuple[Numbers, Numbers]:
    """Return the same pairs for one column. Each distinct value is searched only once if the right side is unique, as a
    primary key is."""
    theirs = whole(right)
    met = pc.index_in(left.values, value_set=theirs, skip_nulls=True)
    count = len(theirs) - theirs.null_count
    # If as many values match as the right side has rows, these are unique, and counting them is not needed.
    if len(met) - met.null_count < count and pc.count_distinct(theirs, mode="only_valid").as_py() < count:
        return pairs([left.column], [theirs])
    places = met.take(left.places)
    rows = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
    return rows, places.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)


def _require_comparable(values: pa.Array) -> None:
    if pa.types.is_map(values.type):
        raise NotCompilable("an equality of maps")


def _is_ranked(type_: pa.DataType) -> bool:
    """Whether Arrow cannot encode values as they are: it cannot encode nested types, and compares floats by their
    bits."""
    return bool(pa.types.is_nested(type_) or pa.types.is_floating(type_) or pa.types.is_null(type_))


def _encoded(values: Values, null_encoding: str) -> tuple[Numbers, int]:
    """Return the codes and an upper bound of their number."""
    values = whole(values)
    _require_comparable(values)
    if _is_ranked(values.type):
        found = ranks(values) + (null_encoding == "encode")
        return found, int(found.max(initial=0)) + 1
    encoded = pc.dictionary_encode(values, null_encoding=null_encoding)
    codes = encoded.indices.fill_null(NOTHING) if encoded.indices.null_count else encoded.indices
    return codes.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


def _combined(parts: list[tuple[Numbers, int]]) -> Numbers:
    codes, size = parts[0]
    for more, count in parts[1:]:
        if size * max(count, 1) > CODE_MAX:
            distinct, codes = np.unique(codes, return_inverse=True)
            size, codes = len(distinct), np.where(distinct[codes] == NOTHING, NOTHING, codes)
        codes = np.where((codes == NOTHING) | (more == NOTHING), NOTHING, codes * max(count, 1) + more)
        size *= max(count, 1)
    return codes


def whole(values: Values) -> pa.Array:
    """Return the values as one contiguous array."""
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def with_values(column: pa.Array, places: Numbers, values: pa.Array) -> pa.Array:
    """A column with new values at some places, each of them at most once."""
    if pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        # replace_with_mask has no kernel for these.
        taken = np.arange(len(column))
        taken[places] = len(column) + np.arange(len(places))
        return pa.concat_arrays([column, values]).take(pa.array(taken))
    mask = np.zeros(len(column), bool)
    mask[places] = True
    # It takes the values in the order of the rows, hence the sort.
    return pc.replace_with_mask(column, pa.array(mask), values.take(pa.array(np.argsort(places))))


def in_type(values: Values, type_: pa.DataType) -> pa.Array:
    """Values cast as CAST does; NotCompilable for one that cannot be, because Spark shall report it."""
    try:
        return as_type(whole(values), type_)
    except RowError as error:
        raise NotCompilable(str(error)) from error
