"""The rows an expression is evaluated on, and the picking and putting back of some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# A pa.Array, or a pa.Scalar that stands for every row.
Datum: TypeAlias = Any
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Frame:
    """Columns of equal length, picked lazily from a parent's, with the statement's parameters and time."""

    length: int
    column: Callable[[int], pa.Array]
    parameters: Sequence[pa.Scalar]
    now: datetime
    # The values of the parameters of the lambdas around, by their slots.
    variables: Mapping[int, pa.Array] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: pa.RecordBatch, parameters: Sequence[pa.Scalar], now: datetime) -> Frame:
        return cls(batch.num_rows, batch.column, parameters, now)

    def pick(self, mask: Mask) -> Frame:
        """The rows where the mask is true; a column is filtered when it is first asked for."""
        chosen = pa.array(mask)
        variables = {slot: values.filter(chosen) for slot, values in self.variables.items()}
        return Frame(int(mask.sum()), Picked(self.column, chosen), self.parameters, self.now, variables)

    def repeat(self, rows: npt.NDArray[np.int64], variables: Mapping[int, pa.Array]) -> Frame:
        """The rows by number, each as often as it is named, with the variables of a lambda."""
        places = pa.array(rows)
        around = {slot: values.take(places) for slot, values in self.variables.items()}
        column = cache(lambda position: self.column(position).take(places))
        return Frame(len(rows), column, self.parameters, self.now, {**around, **variables})


# What a literal is evaluated on: one row that nobody looks at.
NO_ROWS = Frame(1, lambda _: pa.nulls(1), (), datetime(1970, 1, 1, tzinfo=UTC))


@dataclass(frozen=True)
class Picked:
    """Columns of a parent under a mask, each filtered once."""

    parent: Callable[[int], pa.Array]
    mask: pa.Array
    found: dict[int, pa.Array] = field(default_factory=dict)

    def __call__(self, position: int) -> pa.Array:
        if position not in self.found:
            self.found[position] = self.parent(position).filter(self.mask)
        return self.found[position]


@dataclass(frozen=True)
class Node:
    """A compiled piece: its type, how to evaluate it, and whether a row can make it fail.

    `constant` is the value of a literal, a pa.Scalar or an Interval; None for everything else.
    """

    type: pa.DataType
    run: Callable[[Frame], Datum]
    fallible: bool = False
    constant: Any = None


def as_array(value: Datum, length: int, type_: pa.DataType) -> pa.Array:
    """A value as one array of the frame's length."""
    if isinstance(value, pa.Scalar):
        return pa.repeat(value, length) if value.is_valid else pa.nulls(length, type_)
    return value


def valid_rows(value: Datum, length: int) -> Mask:
    """Where a value is not NULL."""
    if isinstance(value, pa.Scalar):
        return np.full(length, value.is_valid)
    return mask_of(value.is_valid())


def mask_of(value: pa.Array) -> Mask:
    """An array of booleans as numpy; NULL counts as false."""
    return np.asarray(pc.fill_null(value, False).to_numpy(zero_copy_only=False), dtype=bool)


def true_rows(value: Datum, length: int) -> Mask:
    """Where a condition is true, not false and not NULL."""
    if isinstance(value, pa.Scalar):
        return np.full(length, value.as_py() is True)
    return mask_of(value)


def false_rows(value: Datum, length: int) -> Mask:
    """Where a condition is false, not true and not NULL."""
    if isinstance(value, pa.Scalar):
        return np.full(length, value.as_py() is False)
    return mask_of(pc.invert(value))


def run_on(node: Node, frame: Frame, mask: Mask) -> Datum:
    """The node's value where the mask is true, NULL elsewhere; the other rows are not evaluated."""
    if mask.all():
        return node.run(frame)
    if not mask.any():
        return pa.nulls(frame.length, node.type)
    if not node.fallible:
        return node.run(frame)
    return merge([(mask, values_on(node, frame, mask))], frame.length)


def values_on(node: Node, frame: Frame, mask: Mask) -> pa.Array:
    """The node's values of the masked rows only, as many as the mask has true rows."""
    if not mask.any():
        return pa.array([], node.type)
    picked = frame if mask.all() else frame.pick(mask)
    return as_array(node.run(picked), picked.length, node.type)


def merge(parts: Sequence[tuple[Mask, pa.Array]], length: int) -> pa.Array:
    """One array from values of disjoint sets of rows; rows in no set are NULL."""
    places = np.full(length, -1, dtype=np.int64)
    offset = 0
    for mask, values in parts:
        places[mask] = np.arange(offset, offset + len(values))
        offset += len(values)
    everything = pa.concat_arrays([values for _, values in parts])
    return everything.take(pa.array(places, mask=places < 0))


def run_strict(nodes: Sequence[Node], frame: Frame) -> list[Datum]:
    """The arguments of a function that is NULL for a NULL: as in Spark, one is not evaluated after a NULL before it."""
    if not any(node.fallible for node in nodes[1:]):
        return [node.run(frame) for node in nodes]
    alive: Mask = np.ones(frame.length, dtype=bool)
    found: list[Datum] = []
    for node in nodes:
        value = run_on(node, frame, alive)
        found.append(value)
        alive = alive & valid_rows(value, frame.length)
    return found
