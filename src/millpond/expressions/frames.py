"""Frames: the rows on which an expression is evaluated, and the evaluation on a subset of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.errors import BindError
from millpond.schema import Column, Schema

# Relation name or alias in lower case -> column name in lower case -> the column's name in the schema.
Names = Mapping[str, Mapping[str, str]]


def resolve(reference: exp.Column, schema: Schema, names: Names | None) -> tuple[Column, tuple[str, ...]]:
    """The column, and the struct fields that are read from it."""
    parts = [part.name for part in reference.parts]
    relation = (names or {}).get(parts[0].lower())
    if relation is not None and len(parts) > 1 and parts[1].lower() in relation:
        return schema[relation[parts[1].lower()]], tuple(parts[2:])
    found = schema.get(parts[0])
    if found is not None:
        return found, tuple(parts[1:])
    raise _no_such_column(".".join(parts), parts[-1], schema)


def _no_such_column(written: str, last: str, schema: Schema) -> BindError:
    close = get_close_matches(last.lower(), [n.lower() for n in schema.names], n=1)
    best = schema[close[0]].name if close else ""
    hint = f"Did you mean '{best}'?" if best else f"The columns are {', '.join(schema.names)}."
    return BindError("MP202", f"There is no column '{written}'.", hint=hint)


# A pa.Array, or a pa.Scalar as the value of every row.
Datum: TypeAlias = Any
Mask = npt.NDArray[np.bool_]


class StatementClock:
    """The time of statements that are given none; a test can fix it for the whole process."""

    fixed: datetime | None = None

    def __call__(self) -> datetime:
        return self.fixed or datetime.now(UTC)


statement_clock = StatementClock()


@dataclass(frozen=True)
class Frame:
    """Columns of equal length, lazily filtered from a parent, with the statement's parameters and time."""

    length: int
    column: Callable[[int], pa.Array]
    parameters: Sequence[pa.Scalar]
    now: datetime
    # The values of the parameters of the enclosing lambdas, by their slots.
    variables: Mapping[int, pa.Array] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: pa.RecordBatch, parameters: Sequence[pa.Scalar], now: datetime) -> Frame:
        return cls(batch.num_rows, batch.column, parameters, now)

    def pick(self, mask: Mask) -> Frame:
        """The rows where the mask is true; a column is filtered on first use."""
        chosen = pa.array(mask)
        variables = {slot: values.filter(chosen) for slot, values in self.variables.items()}
        return Frame(int(mask.sum()), Picked(self.column, chosen), self.parameters, self.now, variables)

    def repeat(self, rows: npt.NDArray[np.int64], variables: Mapping[int, pa.Array]) -> Frame:
        """The rows by number, with repetitions, and the variables of a lambda."""
        places = pa.array(rows)
        around = {slot: values.take(places) for slot, values in self.variables.items()}
        column = cache(lambda position: self.column(position).take(places))
        return Frame(len(rows), column, self.parameters, self.now, {**around, **variables})


# The frame for evaluating literals: one row without columns.
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
    """A compiled term: its type, its function, and whether it can fail on a row.

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
    """The arguments of a function that is NULL for NULL: as in Spark, an argument after a NULL is not evaluated."""
    if not any(node.fallible for node in nodes[1:]):
        return [node.run(frame) for node in nodes]
    alive: Mask = np.ones(frame.length, dtype=bool)
    found: list[Datum] = []
    for node in nodes:
        value = run_on(node, frame, alive)
        found.append(value)
        alive = alive & valid_rows(value, frame.length)
    return found
