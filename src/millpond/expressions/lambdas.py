"""Functions with lambdas, such as TRANSFORM(array, x -> x + 1): the body is evaluated on all elements at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import TableError
from millpond.expressions.array_elements import lengths_of, listed, relisted, side_by_side
from millpond.expressions.coercion import BOOLEAN, FLOATS, INT, is_list
from millpond.expressions.failures import NotCompilable
from millpond.expressions.frames import Datum, Frame, Node, as_array, false_rows, mask_of, merge, true_rows, valid_rows
from millpond.expressions.sort_ranks import combined, ranks

Types = Sequence[pa.DataType]
Run = Callable[[Frame], Datum]


@dataclass(frozen=True)
class Body:
    """A compiled lambda: `slots` are the positions of its parameters in a frame."""

    node: Node
    slots: tuple[int, ...]

    def run(self, frame: Frame, rows: Any, values: Sequence[pa.Array]) -> pa.Array:
        """Its value for elements, given the row of each element in the frame, and the parameters' values."""
        if len(rows) == 0:
            return pa.array([], self.node.type)
        inner = frame.repeat(rows, dict(zip(self.slots, values, strict=False)))
        return as_array(self.node.run(inner), inner.length, self.node.type)


@dataclass(frozen=True)
class HigherOrder:
    """A function with lambdas.

    `parameters` returns the types of the parameters of its n-th lambda from the types of the other arguments; `gives`
    returns the type of the result from those and the types of the bodies; `make` evaluates it.
    """

    parameters: Callable[[Types, int], Types | None]
    gives: Callable[[Types, Types], pa.DataType | None]
    make: Callable[[Sequence[Node], Sequence[Body]], Run]
    meaning: str


@dataclass(frozen=True)
class Elements:
    """The elements of a column of arrays, one after the other, each with its row."""

    array: pa.Array
    values: pa.Array
    rows: Any
    places: pa.Array

    @classmethod
    def of(cls, value: Datum, length: int) -> Elements:
        array = as_array(value, length, value.type)
        lengths = lengths_of(array)
        rows = np.repeat(np.arange(len(array)), lengths)
        starts = np.cumsum(lengths) - lengths
        return cls(array, array.flatten(), rows, pa.array((np.arange(len(rows)) - starts[rows]).astype(np.int32)))


def _elements_of(types: Types, _: int) -> Types | None:
    return (types[0].value_type, INT) if len(types) == 1 and is_list(types[0]) else None


def _transform(nodes: Sequence[Node], bodies: Sequence[Body]) -> Run:
    def run(frame: Frame) -> Datum:
        found = Elements.of(nodes[0].run(frame), frame.length)
        return relisted(found.array, bodies[0].run(frame, found.rows, [found.values, found.places]))

    return run


def _filter(nodes: Sequence[Node], bodies: Sequence[Body]) -> Run:
    def run(frame: Frame) -> Datum:
        found = Elements.of(nodes[0].run(frame), frame.length)
        kept = mask_of(bodies[0].run(frame, found.rows, [found.values, found.places]))
        lengths = np.bincount(found.rows[kept], minlength=frame.length)
        return listed(lengths, found.values.filter(pa.array(kept)), found.array.is_null())

    return run


def _quantified(decides: Callable[[Datum, int], Any], decided: bool) -> Callable[..., Run]:
    """EXISTS and FORALL: one element decides; if none does, an element with NULL makes the result NULL."""

    def make(nodes: Sequence[Node], bodies: Sequence[Body]) -> Run:
        def run(frame: Frame) -> Datum:
            found = Elements.of(nodes[0].run(frame), frame.length)
            try:
                answers = bodies[0].run(frame, found.rows, [found.values])
            except TableError as error:
                # Spark may stop before the element that fails.
                raise NotCompilable("a condition that fails on an element") from error
            hit, unknown = np.zeros(frame.length, dtype=bool), np.zeros(frame.length, dtype=bool)
            hit[found.rows[decides(answers, len(answers))]] = True
            unknown[found.rows[~valid_rows(answers, len(answers))]] = True
            gone = mask_of(found.array.is_null())
            return pa.array(np.where(hit, decided, not decided), mask=gone | (~hit & unknown))

        return run

    return make


def _aggregate_parameters(types: Types, which: int) -> Types | None:
    if len(types) != 2 or not is_list(types[0]):
        return None
    return (types[1], types[0].value_type) if which == 0 else (types[1],)


def _aggregate_gives(types: Types, bodies: Types) -> pa.DataType | None:
    # Spark requires the lambda to return exactly the type of the start.
    return bodies[-1] if bodies[0] == types[1] else None


def _aggregate(nodes: Sequence[Node], bodies: Sequence[Body]) -> Run:
    """One step for the first elements of all rows, one for the second elements, and so on."""
    merged, *finish = bodies

    def run(frame: Frame) -> Datum:
        array = as_array(nodes[0].run(frame), frame.length, nodes[0].type)
        sums = as_array(nodes[1].run(frame), frame.length, nodes[1].type)
        lengths, values = lengths_of(array), array.flatten()
        starts = np.cumsum(lengths) - lengths
        for step in range(int(lengths.max(initial=0))):
            left = lengths > step
            rows = np.flatnonzero(left)
            stepped = merged.run(frame, rows, [sums.take(pa.array(rows)), values.take(pa.array(starts[rows] + step))])
            sums = merge([(left, stepped), (~left, sums.filter(pa.array(~left)))], frame.length)
        known = mask_of(array.is_valid())
        rows = np.flatnonzero(known)
        kept = sums.take(pa.array(rows))
        return merge([(known, finish[0].run(frame, rows, [kept]) if finish else kept)], frame.length)

    return run


def _entries(value: Datum, length: int) -> Elements:
    """The entries of maps as structs."""
    array = as_array(value, length, value.type)
    return Elements.of(array.cast(pa.list_(array.type.field(0).type)), length)


def _map_parameters(types: Types, _: int) -> Types | None:
    map_ = len(types) == 1 and pa.types.is_map(types[0])
    return (types[0].key_type, types[0].item_type) if map_ and types[0].key_type not in FLOATS else None


def _mapped(lengths: Any, keys: pa.Array, items: pa.Array, nulls: pa.Array) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    gone = np.append(mask_of(nulls), False)
    return pa.MapArray.from_arrays(pa.array(offsets, mask=gone), keys, items)


def _map_filter(nodes: Sequence[Node], bodies: Sequence[Body]) -> Run:
    def run(frame: Frame) -> Datum:
        found = _entries(nodes[0].run(frame), frame.length)
        keys, items = pc.struct_field(found.values, 0), pc.struct_field(found.values, 1)
        kept = mask_of(bodies[0].run(frame, found.rows, [keys, items]))
        lengths = np.bincount(found.rows[kept], minlength=frame.length)
        chosen = pa.array(kept)
        return _mapped(lengths, keys.filter(chosen), items.filter(chosen), found.array.is_null())

    return run


def _transform_values(nodes: Sequence[Node], bodies: Sequence[Body]) -> Run:
    def run(frame: Frame) -> Datum:
        found = _entries(nodes[0].run(frame), frame.length)
        keys, items = pc.struct_field(found.values, 0), pc.struct_field(found.values, 1)
        made = bodies[0].run(frame, found.rows, [keys, items])
        return _mapped(lengths_of(found.array), keys, made, found.array.is_null())

    return run


def _pairs_of(types: Types, _: int) -> Types | None:
    both = len(types) == 2 and all(is_list(type_) for type_ in types)
    return (types[0].value_type, types[1].value_type) if both else None


def _zip_with(nodes: Sequence[Node], bodies: Sequence[Body]) -> Run:
    """Elements at the same place of two arrays; the shorter one is filled up with NULLs."""

    def run(frame: Frame) -> Datum:
        arrays = [as_array(node.run(frame), frame.length, node.type) for node in nodes]
        lengths, gone, rows, sides = side_by_side(arrays)
        return listed(lengths, bodies[0].run(frame, rows, sides), gone)

    return run


def _transform_keys(nodes: Sequence[Node], bodies: Sequence[Body]) -> Run:
    def run(frame: Frame) -> Datum:
        found = _entries(nodes[0].run(frame), frame.length)
        keys, items = pc.struct_field(found.values, 0), pc.struct_field(found.values, 1)
        made = bodies[0].run(frame, found.rows, [keys, items])
        if made.type in FLOATS or pa.types.is_nested(made.type):
            raise NotCompilable("a map with keys of this type")
        once = combined([found.rows, ranks(made)], len(made))
        if made.null_count or len(np.unique(once)) < len(made):
            # Spark fails, and reports which.
            raise NotCompilable("a key of a map that is NULL or occurs twice")
        return _mapped(lengths_of(found.array), made, items, found.array.is_null())

    return run


def _if_boolean(type_: Callable[[Types], pa.DataType]) -> Callable[[Types, Types], pa.DataType | None]:
    return lambda types, bodies: type_(types) if bodies[0] == BOOLEAN else None


_AGGREGATE = HigherOrder(
    _aggregate_parameters, _aggregate_gives, _aggregate, "one value from all elements, from a start by a lambda"
)

LAMBDAS: Mapping[str, HigherOrder] = {
    "transform": HigherOrder(
        _elements_of,
        lambda _, bodies: pa.list_(bodies[0]),
        _transform,
        "each element by a lambda of the element and its index",
    ),
    "filter": HigherOrder(
        _elements_of, _if_boolean(lambda types: types[0]), _filter, "the elements for which a lambda is true"
    ),
    "exists": HigherOrder(
        _elements_of, _if_boolean(lambda _: BOOLEAN), _quantified(true_rows, True), "whether a lambda is true for any"
    ),
    "forall": HigherOrder(
        _elements_of, _if_boolean(lambda _: BOOLEAN), _quantified(false_rows, False), "whether a lambda is true for all"
    ),
    "aggregate": _AGGREGATE,
    "map_filter": HigherOrder(
        _map_parameters, _if_boolean(lambda types: types[0]), _map_filter, "the entries for which a lambda is true"
    ),
    "zip_with": HigherOrder(
        _pairs_of,
        lambda _, bodies: pa.list_(bodies[0]),
        _zip_with,
        "the elements of two arrays, pair by pair, by a lambda",
    ),
    "transform_keys": HigherOrder(
        _map_parameters,
        lambda types, bodies: pa.map_(bodies[0], types[0].item_type),
        _transform_keys,
        "each key of a map by a lambda of key and value",
    ),
    "transform_values": HigherOrder(
        _map_parameters,
        lambda types, bodies: pa.map_(types[0].key_type, bodies[0]),
        _transform_values,
        "each value of a map by a lambda of key and value",
    ),
}
