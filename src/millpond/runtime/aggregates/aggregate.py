"""A batch's partial aggregates merged, group by group, into the running ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import localcontext
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import TableError
from millpond.plan.aggregate_model import TOUCHED, AggregatePlan, Final
from millpond.runtime.aggregates import moments

# The group of an aggregate without GROUP BY: one row.
ONE = "g"
# The number of a group, where its values are kept.
GROUP_ID = "gid"
# Of a DECIMAL.
DIGITS_MAX = 38


def with_one_group(partials: pa.Table, plan: AggregatePlan) -> pa.Table:
    """Give an aggregate without GROUP BY its constant group column."""
    if plan.keys:
        return partials
    return partials.add_column(0, ONE, pa.array([0] * partials.num_rows, pa.int8()))


def key_columns(plan: AggregatePlan) -> tuple[str, ...]:
    """The key of the companion table."""
    return plan.keys or (ONE,)


def merges(plan: AggregatePlan) -> dict[str, str]:
    """How each column of the companion that is no key is merged."""
    found = {a.name: a.merge for a in plan.accumulators}
    found |= {TOUCHED: "max"} if plan.expiry else {}
    return {**found, GROUP_ID: "first"} if plan.kept else found


def merge(before: pa.Table, partials: pa.Table, plan: AggregatePlan) -> pa.Table:
    """The groups of `partials` with what was held of them: `before` has a row for each, of NULLs for a new one."""
    columns = {name: partials[name] for name in key_columns(plan)}
    for name, how in merges(plan).items():
        columns[name] = merged(how, before[name], partials[name])
    return pa.table(columns)


def finals(rows: pa.Table, plan: AggregatePlan, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Groups and the user's aggregates, got from the accumulators."""
    columns = {name: rows[name] for name in key_columns(plan)}
    for final in plan.finals:
        columns[final.name] = _final(final, rows, types[final.name])
    return pa.table(columns)


def positions(wanted: pa.Table, held: pa.Table) -> pa.Array:
    """For each wanted group the row of `held` that has it, or NULL; NULL equals NULL in a group."""
    names = wanted.column_names
    left = pl.from_arrow(wanted)
    right = pl.from_arrow(held.select(names))
    assert isinstance(left, pl.DataFrame)
    assert isinstance(right, pl.DataFrame)
    found = left.with_row_index("__l").join(right.with_row_index("__r"), on=names, how="left", nulls_equal=True)
    return found.sort("__l")["__r"].to_arrow().cast(pa.int64())


def merged(how: str, before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    """Two columns of accumulators as one, row by row; NULL is no input yet."""
    return MERGES[how](before, now)


def _first(before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.is_valid(before), before, now)


def _last(before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.is_valid(now), now, before)


def _both(joined: Callable[..., pa.ChunkedArray]) -> Callable[[pa.ChunkedArray, pa.ChunkedArray], pa.ChunkedArray]:
    """Joined where both are there, else the one that is."""
    return lambda before, now: pc.coalesce(joined(before, now), now, before)


def _extreme(which: str) -> Callable[[pa.ChunkedArray, pa.ChunkedArray], pa.ChunkedArray]:
    def found(before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_floating(now.type):
            return _extreme_float(which, before, now)
        if pa.types.is_nested(now.type):
            return _extreme_nested(which, before, now)
        better = pc.less(now, before) if which == "min" else pc.greater(now, before)
        take_now = pc.or_kleene(pc.is_null(before), pc.fill_null(better, False))
        return pc.if_else(take_now, now, before)

    return found


def _extreme_nested(which: str, before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    """Arrow has no order for structs and arrays; Spark goes by their parts, one after another."""
    choose = min if which == "min" else max
    pairs = zip(before.to_pylist(), now.to_pylist(), strict=True)
    found = [choose((v for v in pair if v is not None), key=_order, default=None) for pair in pairs]
    return pa.chunked_array([pa.array(found, now.type)])


def _order(value: Any) -> tuple[Any, ...]:
    """A value as Spark orders it: NULL first, NaN last, text by its bytes, parts in their order."""
    if value is None:
        return (0,)
    if isinstance(value, dict):
        return (1, *map(_order, value.values()))
    if isinstance(value, list):
        return (1, *map(_order, value))
    if isinstance(value, float):
        return (2, 0.0) if math.isnan(value) else (1, value)
    return (1, value.encode()) if isinstance(value, str) else (1, value)


def _chosen(which: str) -> Callable[[pa.ChunkedArray, pa.ChunkedArray], pa.ChunkedArray]:
    """Of two values with what they are chosen by and their place in the stream, the one whose order is smaller or
    larger; equal ones by their place."""

    def found(before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
        take_now = [
            b is None or (n is not None and (_rank(n) < _rank(b) if which == "min" else _rank(n) > _rank(b)))
            for b, n in zip(_ranked(before), _ranked(now), strict=True)
        ]
        return pc.if_else(pa.array(take_now, pa.bool_()), now, before)

    return found


def _ranked(column: pa.ChunkedArray) -> list[dict[str, Any] | None]:
    """What accumulators are compared by, without the values themselves."""
    parts = [pc.struct_field(column, name).to_pylist() for name in ("o", "a", "b")]
    valid = pc.is_valid(column).to_pylist()
    return [{"o": o, "a": a, "b": b} if is_valid else None for is_valid, o, a, b in zip(valid, *parts, strict=True)]


def _rank(found: dict[str, Any]) -> tuple[Any, ...]:
    return (_order(found["o"]), found["a"], found["b"])


def _added(before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    """Their sum, where NULL is nothing; too large a sum is an error, as in Spark."""
    wide = [_with_room(before), _with_room(now)]
    try:
        total = pc.add_checked(*wide)
        if total.type != now.type:
            total = total.cast(now.type)
    except pa.ArrowInvalid as error:
        hint = "Cast the argument of SUM to a wider type."
        raise TableError("MP408", "A sum is too large for its type.", hint=hint) from error
    return pc.coalesce(total, now, before)


def _with_room(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decimals in a type with room for one digit more: Arrow refuses to add two of the widest, however small."""
    if not pa.types.is_decimal(column.type) or column.type.precision < DIGITS_MAX:
        return column
    return column.cast(pa.decimal256(DIGITS_MAX + 1, column.type.scale))


def _extreme_float(which: str, before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    """NaN is larger than every number, as in Spark."""
    if which == "min":
        smaller = pc.min_element_wise(before, now, skip_nulls=True)
        return pc.if_else(pc.fill_null(pc.is_nan(before), False), pc.coalesce(now, before), smaller)
    any_nan = pc.or_kleene(pc.fill_null(pc.is_nan(before), False), pc.fill_null(pc.is_nan(now), False))
    return pc.if_else(any_nan, pa.scalar(float("nan"), now.type), pc.max_element_wise(before, now, skip_nulls=True))


MERGES: dict[str, Callable[[pa.ChunkedArray, pa.ChunkedArray], pa.ChunkedArray]] = {
    "sum": _added,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "and": _both(pc.and_),
    "or": _both(pc.or_),
    "bit_and": _both(pc.bit_wise_and),
    "bit_or": _both(pc.bit_wise_or),
    "bit_xor": _both(pc.bit_wise_xor),
    "min_by": _chosen("min"),
    "max_by": _chosen("max"),
    "first": _first,
    "last": _last,
    "moments": moments.merge_moments,
    "pairs": moments.merge_pairs,
}


def _final(final: Final, merged: pa.Table, type_: pa.DataType) -> pa.ChunkedArray:
    first = merged[final.accumulators[0]]
    if final.how == "count":
        return pc.fill_null(first, 0).cast(type_)
    if final.how == "field":
        return pc.struct_field(first, 0)
    if final.how in moments.FINALS:
        return moments.final(final.how, first)
    if final.how == "avg":
        return _average(first, merged[final.accumulators[1]], type_)
    return first.cast(type_)


def _average(total: pa.ChunkedArray, count: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Sum by count; of decimals exactly, rounded half up to the type's scale."""
    some = pc.greater(count, 0)
    if not pa.types.is_decimal(type_):
        divided = pc.divide(total.cast(pa.float64()), pc.if_else(some, count, 1).cast(pa.float64()))
        return pc.if_else(some, divided, pa.scalar(None, pa.float64()))
    shift = 10 ** (type_.scale - total.type.scale)
    with localcontext(prec=80):
        averages = [
            None if value is None or not number else _half_up(int(value.scaleb(total.type.scale)) * shift, number)
            for value, number in zip(total.to_pylist(), count.to_pylist(), strict=True)
        ]
    return pa.chunked_array([_decimals(averages, type_)])


def _half_up(numerator: int, count: int) -> int:
    quotient, remainder = divmod(abs(numerator), count)
    rounded = quotient + (2 * remainder >= count)
    return rounded if numerator >= 0 else -rounded


def _decimals(unscaled: list[int | None], type_: pa.DataType) -> pa.Array:
    whole = pa.array(unscaled, pa.decimal128(38, 0))
    buffers = whole.buffers()
    # The same 128-bit integers under another scale: no arithmetic, nothing can be rounded.
    return pa.Array.from_buffers(type_, len(whole), buffers)
