"""Values as numbers: equal values have equal codes, so that joining and grouping are work on integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.failures import NotCompilable

Numbers: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = pa.Array | pa.ChunkedArray

# The code of a NULL in a join, where it equals nothing.
NOTHING = -1
# Products of codes beyond this are renumbered first.
CODE_MAX = 1 << 31


@dataclass(frozen=True)
class Coded:
    """A column by its different values: each of them once, and the place among them of every row's; NULL has none."""

    values: pa.Array
    places: pa.Array

    @classmethod
    def of(cls, column: Values) -> Coded:
        column = whole(column)
        _require_comparable(column)
        encoded = column.dictionary_encode()
        return cls(encoded.dictionary, encoded.indices)

    @property
    def column(self) -> pa.Array:
        """The column as it was."""
        return self.values.take(self.places)


def group_codes(columns: Sequence[Values], length: int) -> tuple[Numbers, Numbers]:
    """The group of each row, numbered by first appearance, and the first row of each group; NULL is a value here."""
    if not columns:
        return np.zeros(length, np.int64), np.zeros(min(length, 1), np.int64)
    codes = _combined([_encoded(column, "encode") for column in columns])
    renumbered = pa.array(codes).dictionary_encode()
    groups = renumbered.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    _, firsts = np.unique(groups, return_index=True)
    return groups, firsts.astype(np.int64)


def pairs(left: Sequence[Values], right: Sequence[Values]) -> tuple[Numbers, Numbers]:
    """The pairs of rows whose columns are all equal, in the order of the left rows, then of the right ones."""
    count = len(left[0])
    both = [pa.concat_arrays([whole(a), whole(b)]) for a, b in zip(left, right, strict=True)]
    codes = _combined([_encoded(column, "mask") for column in both])
    ours, theirs = codes[:count], codes[count:]
    order = np.argsort(theirs, kind="stable")
    ordered = theirs[order]
    starts = np.searchsorted(ordered, ours, "left")
    counts = np.where(ours == NOTHING, 0, np.searchsorted(ordered, ours, "right") - starts)
    lefts = np.repeat(np.arange(count), counts)
    within = np.arange(len(lefts)) - np.repeat(np.cumsum(counts) - counts, counts)
    return lefts, order[np.repeat(starts, counts) + within]


def pairs_of_one(left: Coded, right: Values) -> tuple[Numbers, Numbers]:
    """The same of one column, its different values looked for once each, where none is on the right twice, as in a
    primary key."""
    theirs = whole(right)
    met = pc.index_in(left.values, value_set=theirs, skip_nulls=True)
    count = len(theirs) - theirs.null_count
    # As many values as there are rows on the right have met one each: counting them is not needed.
    if len(met) - met.null_count < count and pc.count_distinct(theirs, mode="only_valid").as_py() < count:
        return pairs([left.column], [theirs])
    places = met.take(left.places)
    rows = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
    return rows, places.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)


def _require_comparable(values: pa.Array) -> None:
    if pa.types.is_floating(values.type) or pa.types.is_nested(values.type) or pa.types.is_null(values.type):
        raise NotCompilable(f"{values.type} is compared by Spark")


def _encoded(values: Values, null_encoding: str) -> tuple[Numbers, int]:
    """Codes, and how many different ones there may be."""
    values = whole(values)
    _require_comparable(values)
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
    """The values in one piece."""
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
