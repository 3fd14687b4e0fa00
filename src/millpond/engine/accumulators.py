"""Accumulators of groups: merges a batch's partial aggregates into the stored ones, and sessions that overlap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import localcontext

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.engine.row_sets import key_codes
from millpond.errors import TableError
from millpond.expressions.group_moments import FINALS, Fields, Floats, made
from millpond.expressions.sort_ranks import ranks
from millpond.plan.aggregate_model import END, START, TOUCHED, AggregatePlan, Final
from millpond.relational.codes import Numbers, whole

# The group of an aggregate without GROUP BY: one row.
ONE = "g"
# The number of a group whose values are stored.
GROUP_ID = "gid"
# The maximal precision of a DECIMAL.
DIGITS_MAX = 38
WHOLE = pa.decimal128(DIGITS_MAX, 0)


def with_one_group(partials: pa.Table, plan: AggregatePlan) -> pa.Table:
    """Give an aggregate without GROUP BY its constant group column."""
    if plan.keys:
        return partials
    return partials.add_column(0, ONE, pa.array([0] * partials.num_rows, pa.int8()))


def key_columns(plan: AggregatePlan) -> tuple[str, ...]:
    """The key of the companion table."""
    return plan.keys or (ONE,)


def merges(plan: AggregatePlan) -> dict[str, str]:
    """How each column of the companion, except its key, is merged."""
    found = {a.name: a.merge for a in plan.accumulators}
    found |= {TOUCHED: "max"} if plan.expiry else {}
    return {**found, GROUP_ID: "first"} if plan.kept else found


def merge(before: pa.Table, partials: pa.Table, plan: AggregatePlan) -> pa.Table:
    """The groups of `partials` with their stored accumulators: `before` has a row for each, with NULLs for a new
    one."""
    columns = {name: partials[name] for name in key_columns(plan)}
    for name, how in merges(plan).items():
        columns[name] = merged(how, before[name], partials[name])
    return pa.table(columns)


def finals(rows: pa.Table, plan: AggregatePlan, types: Mapping[str, pa.DataType]) -> pa.Table:
    """The groups and the user's aggregates, computed from the accumulators."""
    columns = {name: rows[name] for name in key_columns(plan)}
    for final in plan.finals:
        columns[final.name] = _final(final, rows, types[final.name])
    return pa.table(columns)


def merged(how: str, before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    """Merge two columns of accumulators, row by row; NULL: no input yet."""
    return MERGES[how](before, now)


def _first(before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.is_valid(before), before, now)


def _last(before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.is_valid(now), now, before)


def _both(joined: Callable[..., pa.ChunkedArray]) -> Callable[[pa.ChunkedArray, pa.ChunkedArray], pa.ChunkedArray]:
    """Merge where both have a value, else return the one that has."""
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
    """Rank structs and arrays, which Arrow cannot compare; like Spark, by their parts, one after another."""
    return _better(which, before, now, before, now)


def _better(
    which: str, before: pa.ChunkedArray, now: pa.ChunkedArray, old: pa.ChunkedArray, new: pa.ChunkedArray
) -> pa.ChunkedArray:
    """Of two values the one whose order, `old` or `new`, is smaller or larger; NULL: no input yet."""
    places = ranks(pa.concat_arrays([whole(old), whole(new).cast(old.type)]))
    first, second = places[: len(old)], places[len(old) :]
    better = second < first if which == "min" else second > first
    there = pc.is_valid(now).to_numpy(zero_copy_only=False)
    gone = pc.is_null(before).to_numpy(zero_copy_only=False)
    return pc.if_else(pa.array(gone | (there & better)), now, before)


def _chosen(which: str) -> Callable[[pa.ChunkedArray, pa.ChunkedArray], pa.ChunkedArray]:
    """Of two values with their order and their position in the stream, the one whose order is smaller or larger; equal
    ones by their position."""
    return lambda before, now: _better(which, before, now, _ranked(before), _ranked(now))


def _ranked(column: pa.ChunkedArray) -> pa.Array:
    """The columns by which accumulators are compared, without the values themselves."""
    names = ("o", "a", "b")
    parts = [whole(pc.struct_field(column, name)) for name in names]
    return pa.StructArray.from_arrays(parts, names=list(names), mask=whole(pc.is_null(column)))


def _added(before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    """The sum, where NULL is no input; MP408 if it is too large for its type, as in Spark."""
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
    """Decimals with one more digit: Arrow refuses to add two of the maximal precision, however small they are."""
    if not pa.types.is_decimal(column.type) or column.type.precision < DIGITS_MAX:
        return column
    return column.cast(pa.decimal256(DIGITS_MAX + 1, column.type.scale))


def _extreme_float(which: str, before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    """NaN is greater than every number, as in Spark."""
    if which == "min":
        smaller = pc.min_element_wise(before, now, skip_nulls=True)
        return pc.if_else(pc.fill_null(pc.is_nan(before), False), pc.coalesce(now, before), smaller)
    any_nan = pc.or_kleene(pc.fill_null(pc.is_nan(before), False), pc.fill_null(pc.is_nan(now), False))
    return pc.if_else(any_nan, pa.scalar(float("nan"), now.type), pc.max_element_wise(before, now, skip_nulls=True))


# Moments of one value and of pairs, which STDDEV, CORR and similar functions store, are merged by Chan's formula.
def _merge_moments(before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    """n, mean and m2 of both inputs together."""
    a, b = _fields(before), _fields(now)
    n, share = _shares(a["n"], b["n"])
    delta = b["mean"] - a["mean"]
    return _struct(
        now.type, {"n": n, "mean": a["mean"] + delta * share, "m2": a["m2"] + b["m2"] + delta * delta * a["n"] * share}
    )


def _merge_pairs(before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same for pairs of values, with their covariance."""
    a, b = _fields(before), _fields(now)
    n, share = _shares(a["n"], b["n"])
    delta_a, delta_b = b["mean_a"] - a["mean_a"], b["mean_b"] - a["mean_b"]
    weight = a["n"] * share
    return _struct(
        now.type,
        {
            "n": n,
            "mean_a": a["mean_a"] + delta_a * share,
            "mean_b": a["mean_b"] + delta_b * share,
            "m2_a": a["m2_a"] + b["m2_a"] + delta_a * delta_a * weight,
            "m2_b": a["m2_b"] + b["m2_b"] + delta_b * delta_b * weight,
            "c": a["c"] + b["c"] + delta_a * delta_b * weight,
        },
    )


def _fields(values: pa.ChunkedArray) -> Fields:
    """The parts of a struct column; zero for NULL, which is no input."""
    parts = {}
    for field in values.type:
        column = pc.struct_field(values, field.name).cast(pa.float64())
        parts[field.name] = pc.fill_null(column, 0.0).to_numpy()
    return parts


def _shares(before: Floats, now: Floats) -> tuple[Floats, Floats]:
    """The total count, and the share of the new values."""
    n = before + now
    return n, np.divide(now, n, out=np.zeros_like(n), where=n > 0)


def _struct(type_: pa.StructType, fields: Fields) -> pa.ChunkedArray:
    arrays = [pa.array(fields[field.name]).cast(field.type) for field in type_]
    return pa.chunked_array([pa.StructArray.from_arrays(arrays, fields=list(type_))])


def _final_of_moments(how: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The user's value of each group; NULL if there are too few rows, or if all are equal."""
    return pa.chunked_array([made(how, _fields(values))])


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
    "moments": _merge_moments,
    "pairs": _merge_pairs,
}


def _final(final: Final, merged: pa.Table, type_: pa.DataType) -> pa.ChunkedArray:
    first = merged[final.accumulators[0]]
    if final.how == "count":
        return pc.fill_null(first, 0).cast(type_)
    if final.how == "field":
        return pc.struct_field(first, 0)
    if final.how in FINALS:
        return _final_of_moments(final.how, first)
    if final.how == "avg":
        return _average(first, merged[final.accumulators[1]], type_)
    return first.cast(type_)


def _average(total: pa.ChunkedArray, count: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Sum divided by count; decimals exactly, rounded half up to the scale of the type."""
    some = pc.greater(count, 0)
    if not pa.types.is_decimal(type_):
        divided = pc.divide(total.cast(pa.float64()), pc.if_else(some, count, 1).cast(pa.float64()))
        return pc.if_else(some, divided, pa.scalar(None, pa.float64()))
    shift = 10 ** (type_.scale - total.type.scale)
    quick = _quick_average(total.combine_chunks(), count.combine_chunks(), shift)
    if quick is not None:
        return pa.chunked_array([_scaled(quick.cast(WHOLE), type_)])
    with localcontext(prec=80):
        averages = [
            None if value is None or not number else _half_up(int(value.scaleb(total.type.scale)) * shift, number)
            for value, number in zip(total.to_pylist(), count.to_pylist(), strict=True)
        ]
    return pa.chunked_array([_scaled(pa.array(averages, WHOLE), type_)])


def _quick_average(total: pa.Array, count: pa.Array, shift: int) -> pa.Array | None:
    """The unscaled averages, if all numbers on the way fit 64 bits; else None."""
    if not pa.types.is_decimal128(total.type):
        return None
    known = pc.and_(total.is_valid(), pc.greater(count.fill_null(0), 0))
    counts = pc.if_else(known, count, 1).to_numpy(zero_copy_only=False).astype(np.int64)
    words = np.frombuffer(pc.if_else(known, total, pa.scalar(0, total.type)).buffers()[1], np.int64).reshape(-1, 2)
    low = words[: len(total), 0]
    fits = (words[: len(total), 1] == low >> 63).all() and np.abs(low.astype(np.float64)).max(initial=0) < 2**62 / shift
    if not fits:
        return None
    quotient, remainder = np.divmod(np.abs(low) * shift, counts)
    rounded = (quotient + (2 * remainder >= counts)) * np.sign(low)
    return pa.array(rounded, mask=~known.to_numpy(zero_copy_only=False))


def _half_up(numerator: int, count: int) -> int:
    quotient, remainder = divmod(abs(numerator), count)
    rounded = quotient + (2 * remainder >= count)
    return rounded if numerator >= 0 else -rounded


def _scaled(unscaled: pa.Array, type_: pa.DataType) -> pa.Array:
    """The same 128-bit integers under another scale: no arithmetic, nothing can be rounded."""
    return pa.Array.from_buffers(type_, len(unscaled), unscaled.buffers(), offset=unscaled.offset)


@dataclass(frozen=True)
class MergedSessions:
    """`sessions` are those that the batch changed, as they are now; `into` has, for each session of the batch, its row
    there; `replaced` are open sessions that are now part of a changed one, and `grown` their rows there."""

    sessions: pa.Table
    into: pa.Array
    replaced: pa.Table
    grown: pa.Array


def join_sessions(held: pa.Table, found: pa.Table, plan: AggregatePlan) -> MergedSessions:
    """Merge open sessions and those of a batch, both in the companion's columns, where they touch or overlap."""
    both = pa.concat_tables([held.select(found.column_names), found])
    members = _members(both, held.num_rows, plan.groups)
    is_old = members.rows < held.num_rows
    into = np.empty(found.num_rows, np.int64)
    into[members.rows[~is_old] - held.num_rows] = members.ids[~is_old]
    replaced = both.take(pa.array(members.rows[is_old]))
    return MergedSessions(_folded(both, members, plan), pa.array(into), replaced, pa.array(members.ids[is_old]))


@dataclass(frozen=True)
class _Members:
    """Rows of sessions, and the number of the merged session that each is part of; ordered by number, then by row."""

    rows: Numbers
    ids: Numbers

    @property
    def starts(self) -> Numbers:
        """The first row of each merged session."""
        return np.flatnonzero(np.diff(self.ids, prepend=-1))


def _members(both: pa.Table, held: int, groups: tuple[str, ...]) -> _Members:
    """Assign the sessions to merged ones, without open sessions that no new one touches. The first `held` rows are the
    open sessions."""
    codes, _ = key_codes([both[name] for name in groups], both.num_rows)
    starts, ends = (_micros(both, name) for name in (START, END))
    rows = np.lexsort((np.arange(both.num_rows), starts, codes))
    group, start = codes[rows], starts[rows]
    # The latest end so far within a group: ends are ranked, so that a later group is above all of an earlier one.
    values, ranks = np.unique(ends[rows], return_inverse=True)
    latest = np.maximum.accumulate(group * len(values) + ranks) - group * len(values)
    begins = np.ones(len(rows), bool)
    begins[1:] = (group[1:] != group[:-1]) | (start[1:] > values[latest[:-1]])
    ids = np.cumsum(begins) - 1
    newest = np.full(int(begins.sum()), -1)
    np.maximum.at(newest, ids, rows)
    touched = newest[ids] >= held
    rows, ids = rows[touched], ids[touched]
    order = np.lexsort((rows, ids))
    # Numbered again, from 0: the numbers are the rows of the merged sessions.
    return _Members(rows[order], np.unique(ids[order], return_inverse=True)[1].astype(np.int64))


def _micros(rows: pa.Table, name: str) -> Numbers:
    found: Numbers = rows[name].cast(pa.int64()).to_numpy()
    return found


def _folded(both: pa.Table, members: _Members, plan: AggregatePlan) -> pa.Table:
    """One row per merged session: the accumulators of its members merged in order."""
    starts = members.starts
    counts = np.diff(starts, append=len(members.rows))
    first = both.take(pa.array(members.rows[starts]))
    columns = {name: first[name] for name in both.column_names}
    for rank in range(1, int(counts.max(initial=0))):
        has = counts > rank
        nth = members.rows[np.where(has, starts + rank, 0)]
        now = both.take(pa.array(nth, mask=~has))
        for name, how in merges(plan).items():
            columns[name] = merged(how, columns[name], now[name])
    for name, extreme in ((START, np.minimum), (END, np.maximum)):
        type_ = both.schema.field(name).type
        values = _micros(both, name)[members.rows]
        found = extreme.reduceat(values, starts) if len(starts) else values
        columns[name] = pa.chunked_array([pa.array(found, pa.int64()).cast(type_)])
    return pa.table(columns)
