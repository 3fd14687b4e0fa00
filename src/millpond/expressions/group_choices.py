"""MIN, MAX, FIRST, MAX_BY, PERCENTILE and their like: one row of each group is chosen, or two with their mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.coercion import DOUBLE, FLOATS, STRING, is_list, is_number
from millpond.expressions.failures import NotCompilable, RowError
from millpond.expressions.group_inputs import Aggregate, Inputs, by_group
from millpond.expressions.sort_ranks import Numbers, ranks


def _chosen(inputs: Inputs, rows: Numbers, groups: Numbers) -> pa.Array:
    """The first argument of one row of each of these groups."""
    return inputs.spread(groups, inputs.values.take(pa.array(rows)))


def _ends(inputs: Inputs, last: bool) -> pa.Array:
    """The first or last row of each group."""
    rows = np.arange(len(inputs.groups))
    places = np.full(inputs.count, -1, np.int64)
    # Of several assignments to one place the last one counts.
    order = rows if last else rows[::-1]
    places[inputs.groups[order]] = order
    some = np.flatnonzero(places >= 0)
    return _chosen(inputs, places[some], some)


def _at_end(last: bool) -> Callable[[Inputs], pa.Array]:
    return lambda inputs: _ends(inputs.known() if inputs.ignores_nulls else inputs, last)


def _extreme(which: str) -> Callable[[Inputs], pa.Array]:
    def compute(inputs: Inputs) -> pa.Array:
        known = inputs.known()
        type_ = known.values.type
        if pa.types.is_nested(type_) or (type_ in FLOATS and pc.any(pc.is_nan(known.values)).as_py()):
            return _by_rank(known, ranks(known.values), which)
        pairs = pa.table({"g": known.groups, "v": known.values})
        found = pairs.group_by("g", use_threads=False).aggregate([("v", which)])
        return inputs.spread(found["g"].to_numpy(), found[f"v_{which}"].combine_chunks())

    return compute


def _by_rank(inputs: Inputs, places: Numbers, which: str) -> pa.Array:
    """The row with the smallest or largest rank of each group; of equal ones the last."""
    rows = np.arange(len(places))
    order = np.lexsort((rows if which == "max" else -rows, places, inputs.groups))
    groups = inputs.groups[order]
    edges = groups[1:] != groups[:-1]
    at = np.append(edges, True) if which == "max" else np.insert(edges, 0, True)
    return _chosen(inputs, order[at], groups[at]) if len(order) else pa.nulls(inputs.count, inputs.type)


def _extreme_by(which: str) -> Callable[[Inputs], pa.Array]:
    def compute(inputs: Inputs) -> pa.Array:
        known = inputs.known([1])
        return _by_rank(known, ranks(known.arguments[1]), which)

    return compute


def _mode(inputs: Inputs) -> pa.Array:
    """The most frequent value; of several equally frequent ones Spark returns any."""
    known = inputs.known()
    places = ranks(known.values)
    pairs, firsts, rows = np.unique(np.stack([known.groups, places]), axis=1, return_index=True, return_counts=True)
    order = np.lexsort((rows, pairs[0]))
    groups, often = pairs[0][order], rows[order]
    last = np.append(groups[1:] != groups[:-1], True) if len(groups) else np.zeros(0, bool)
    before = np.roll(often, 1)
    tied = last & np.insert(groups[1:] == groups[:-1], 0, False) & (before == often) if len(groups) else last
    if tied.any():
        raise NotCompilable("a mode that several values are")
    return _chosen(known, firsts[order][last], groups[last]) if len(groups) else pa.nulls(inputs.count, inputs.type)


def _fractions(inputs: Inputs, place: int) -> list[float]:
    found = inputs.constants[place] if place < len(inputs.constants) else None
    if found is None:
        raise NotCompilable("a percentage that is not a literal")
    fraction = float(found)
    if not 0 <= fraction <= 1:
        raise RowError("a percentage is from 0 to 1")
    return [fraction]


def _percentile(inputs: Inputs) -> pa.Array:
    """PERCENTILE(x, p) and MEDIAN(x)."""
    (fraction,) = _fractions(inputs, 1) if len(inputs.arguments) > 1 else [0.5]
    return _continuous(inputs.known([0]), fraction, descending=False)


def _percentile_cont(inputs: Inputs) -> pa.Array:
    values, descending = inputs.order[0]
    (fraction,) = _fractions(inputs, 0)
    ordered = Inputs(inputs.groups, inputs.count, (values,), DOUBLE).known()
    return _continuous(ordered, fraction, descending=descending)


def _ordered(known: Inputs, descending: bool) -> tuple[Any, Any, Any]:
    """The values of each group in order, where each begins and how many there are."""
    values = known.values.cast(DOUBLE, safe=False).to_numpy(zero_copy_only=False)
    if np.isnan(values).any():
        raise NotCompilable("a percentile among NaN")
    rows = by_group(known)
    order = np.lexsort((-values if descending else values, known.groups))
    return values[order], rows.starts, rows.sizes


def _continuous(known: Inputs, fraction: float, *, descending: bool) -> pa.Array:
    values, starts, sizes = _ordered(known, descending)
    some = sizes > 0
    position = (sizes[some] - 1) * fraction
    low, high = np.floor(position), np.ceil(position)
    first, second = (values[starts[some] + at.astype(np.int64)] for at in (low, high))
    between = (high - position) * first + (position - low) * second
    found = np.zeros(known.count)
    found[some] = np.where((low == high) | (first == second), first, between)
    return pa.array(found, mask=~some)


def _any(types: Sequence[pa.DataType], ordered: bool) -> bool:
    return len(types) == 1 and not ordered


def _two(types: Sequence[pa.DataType], ordered: bool) -> bool:
    return len(types) == 2 and not ordered


def _orderable(types: Sequence[pa.DataType], ordered: bool) -> bool:
    return _any(types, ordered) and not pa.types.is_map(types[0])


def _percentages(types: Sequence[pa.DataType], ordered: bool) -> bool:
    """Numbers, and one percentage; several of them make an array."""
    fits = 1 <= len(types) <= 2 and is_number(types[0])
    return fits and not ordered and not (len(types) == 2 and is_list(types[1]))


def _of_order(types: Sequence[pa.DataType], ordered: bool) -> bool:
    return len(types) == 1 and ordered and not is_list(types[0]) and types[0] != STRING


AGGREGATES: dict[str, Aggregate] = {
    "min": Aggregate(_extreme("min"), _orderable),
    "max": Aggregate(_extreme("max"), _orderable),
    "first": Aggregate(_at_end(last=False), _any),
    "last": Aggregate(_at_end(last=True), _any),
    "any_value": Aggregate(_at_end(last=False), _any),
    "min_by": Aggregate(_extreme_by("min"), _two),
    "max_by": Aggregate(_extreme_by("max"), _two),
    "mode": Aggregate(_mode, _orderable),
    "median": Aggregate(_percentile, _percentages),
    "percentile": Aggregate(_percentile, _percentages),
    "percentile_cont": Aggregate(_percentile_cont, _of_order, of_order=True),
}
