"""What an aggregate is computed of: its arguments row by row, and the group of each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.expressions.sort_ranks import Numbers

Mask = npt.NDArray[np.bool_]


class Overflow(Exception):
    """A result does not fit its type."""


@dataclass(frozen=True)
class Inputs:
    """`groups` has the number of each row's group, from 0 to `count` - 1; `order` the keys of WITHIN GROUP, each with
    whether it descends."""

    groups: Numbers
    count: int
    arguments: tuple[pa.Array, ...]
    type: pa.DataType
    constants: tuple[Any, ...] = ()
    ignores_nulls: bool = False
    order: tuple[tuple[pa.Array, bool], ...] = ()

    @property
    def values(self) -> pa.Array:
        """The first argument."""
        return self.arguments[0]

    def take(self, rows: Numbers) -> Inputs:
        """Some rows by number."""
        places = pa.array(rows)
        arguments = tuple(values.take(places) for values in self.arguments)
        order = tuple((values.take(places), descending) for values, descending in self.order)
        return replace(self, groups=self.groups[rows], arguments=arguments, order=order)

    def known(self, which: Sequence[int] | None = None) -> Inputs:
        """The rows in which none of these arguments is NULL; of all arguments unless some are named."""
        wanted = self.arguments if which is None else [self.arguments[n] for n in which]
        if not any(values.null_count for values in wanted):
            return self
        mask = np.ones(len(self.groups), bool)
        for values in wanted:
            mask &= valid(values)
        return self.take(np.flatnonzero(mask))

    def spread(self, groups: Numbers, values: pa.Array) -> pa.Array:
        """The values of some groups in the order of all; NULL for the others."""
        places = np.full(self.count, -1, np.int64)
        places[groups] = np.arange(len(groups))
        return values.take(pa.array(places, mask=places < 0))


def valid(values: pa.Array) -> Mask:
    """Where values are not NULL."""
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False), dtype=bool)


@dataclass(frozen=True)
class Sorted:
    """Rows by group: `rows` are their numbers, those of a group one behind the other in their order; group n has those
    from `starts[n]` on, `sizes[n]` of them."""

    rows: Numbers
    starts: Numbers
    sizes: Numbers


def by_group(inputs: Inputs) -> Sorted:
    """The rows of each group together, each in the order that it had."""
    sizes = np.bincount(inputs.groups, minlength=inputs.count).astype(np.int64)
    return Sorted(np.argsort(inputs.groups, kind="stable"), np.cumsum(sizes) - sizes, sizes)


Accepts = Callable[[Sequence[pa.DataType], bool], bool]


def _one(types: Sequence[pa.DataType], ordered: bool) -> bool:
    return len(types) == 1 and not ordered


@dataclass(frozen=True)
class Aggregate:
    """How an aggregate is computed, and for which types of arguments, with and without WITHIN GROUP, that is as in
    Spark. `of_order`: its value is that of WITHIN GROUP."""

    compute: Callable[[Inputs], pa.Array]
    accepts: Accepts = _one
    of_order: bool = False
