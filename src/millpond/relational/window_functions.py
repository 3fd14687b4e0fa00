"""Window functions: rankings, LAG and LEAD, values and aggregates of the frame of each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.expressions.aggregates import CompiledAggregate, Groups
from millpond.expressions.coercion import BIGINT, DOUBLE, common
from millpond.expressions.decimals import SPARK, fitted
from millpond.expressions.failures import NotCompilable
from millpond.expressions.sort_ranks import NULL_RANK, ranks
from millpond.relational.codes import Numbers, Values, in_type
from millpond.relational.evaluation import Evaluation
from millpond.relational.inputs import Rows
from millpond.relational.joins import as_mask
from millpond.relational.window_frames import Frame, Key, Ordered, frame_of, ordered
from millpond.sql.function_calls import function_name

# Sums of doubles are added value by value in Spark's order, because rounding depends on it; beyond this, Spark does.
ADDITIONS_MAX = 20_000_000
ROWS_TOGETHER_MAX = 1_000_000


@dataclass(frozen=True)
class Call:
    """A window function as written: `arguments` are expressions."""

    node: exp.Expr
    name: str
    arguments: tuple[exp.Expr, ...]
    ignores_nulls: bool
    where: exp.Expr | None


def value(evaluation: Evaluation, window: exp.Window, rows: Rows) -> Values:
    """Evaluate a window function for every row."""
    if len(rows) > ROWS_TOGETHER_MAX or window.args.get("alias") is not None or window.args.get("first"):
        raise NotCompilable("a window over too many rows, or of a form that only Spark supports")
    call = _read(window.this)
    partition = [evaluation.value(e, rows) for e in window.args.get("partition_by") or ()]
    order = window.args.get("order")
    keys = [_key(evaluation, o, rows) for o in (order.expressions if order is not None else ())]
    in_order = ordered(partition, keys, len(rows))
    spec = window.args.get("spec")
    if call.name in RANKINGS:
        if not keys or call.ignores_nulls:
            raise NotCompilable(f"'{call.name}' without ORDER BY")
        found = RANKINGS[call.name](in_order, _literals(call))
    elif call.name in ("LAG", "LEAD"):
        found = _neighbour(evaluation, call, in_order, rows)
    else:
        found = _framed(evaluation, call, (in_order, frame_of(spec, in_order)), rows)
    return in_order.unordered(found)


def _read(node: exp.Expr) -> Call:
    inner, ignores_nulls, where = node, False, None
    while isinstance(inner, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
        ignores_nulls = ignores_nulls or isinstance(inner, exp.IgnoreNulls)
        where = inner.expression.this if isinstance(inner, exp.Filter) else where
        inner = inner.this
    name = function_name(inner) or ""
    arguments = tuple(inner.iter_expressions())
    if name in ENDS and len(arguments) == 2 and isinstance(arguments[1], exp.Boolean):
        ignores_nulls, arguments = bool(arguments[1].this), arguments[:1]
    return Call(inner, name, arguments, ignores_nulls, where)


def _key(evaluation: Evaluation, key: exp.Expr, rows: Rows) -> Key:
    if not isinstance(key, exp.Ordered):
        raise NotCompilable("a form of ORDER BY that only Spark supports")
    return Key(evaluation.value(key.this, rows), bool(key.args.get("desc")), bool(key.args.get("nulls_first")))


def _literals(call: Call) -> list[int]:
    found = []
    for argument in call.arguments:
        if not isinstance(argument, exp.Literal) or argument.is_string or not argument.name.isdecimal():
            raise NotCompilable("an argument of a window function that is not an integer literal")
        found.append(int(argument.name))
    return found


# --- rankings


def _row_number(rows: Ordered, _: Sequence[int]) -> pa.Array:
    return pa.array((rows.places - rows.starts + 1).astype(np.int32))


def _rank(rows: Ordered, _: Sequence[int]) -> pa.Array:
    return pa.array((rows.first_peers - rows.starts + 1).astype(np.int32))


def _dense_rank(rows: Ordered, _: Sequence[int]) -> pa.Array:
    begins = np.cumsum(rows.first_peers == rows.places)
    return pa.array((begins - begins[rows.starts] + 1).astype(np.int32) if len(begins) else begins.astype(np.int32))


def _percent_rank(rows: Ordered, _: Sequence[int]) -> pa.Array:
    others = rows.ends - rows.starts - 1
    above = (rows.first_peers - rows.starts).astype(np.float64)
    return pa.array(np.divide(above, others, out=np.zeros(len(above)), where=others > 0))


def _cume_dist(rows: Ordered, _: Sequence[int]) -> pa.Array:
    return pa.array((rows.last_peers - rows.starts).astype(np.float64) / (rows.ends - rows.starts))


def _ntile(rows: Ordered, arguments: Sequence[int]) -> pa.Array:
    buckets = arguments[0] if arguments else 1
    if buckets <= 0:
        raise NotCompilable("NTILE of 0 buckets")
    count, place = rows.ends - rows.starts, rows.places - rows.starts
    size, larger = count // buckets, count % buckets
    in_larger = larger * (size + 1)
    later = larger + np.divide(place - in_larger, np.maximum(size, 1)).astype(np.int64)
    return pa.array((np.where(place < in_larger, place // (size + 1), later) + 1).astype(np.int32))


RANKINGS: dict[str, Callable[[Ordered, Sequence[int]], pa.Array]] = {
    "ROW_NUMBER": _row_number,
    "RANK": _rank,
    "DENSE_RANK": _dense_rank,
    "PERCENT_RANK": _percent_rank,
    "CUME_DIST": _cume_dist,
    "NTILE": _ntile,
}


# --- neighbours and ends


def _neighbour(evaluation: Evaluation, call: Call, rows: Ordered, source: Rows) -> pa.Array:
    """Evaluate LAG or LEAD; with IGNORE NULLS only rows with a value are counted."""
    values = rows.values(evaluation.value(call.arguments[0], source))
    distance = _offset(call.arguments[1]) if len(call.arguments) > 1 else 1
    distance = distance if call.name == "LEAD" else -distance
    at = _skipping(rows, values, distance) if call.ignores_nulls else rows.places + distance
    outside = (at < rows.starts) | (at >= rows.ends)
    if len(call.arguments) < 3:
        return values.take(pa.array(at, mask=outside))
    default = rows.values(evaluation.value(call.arguments[2], source))
    type_ = common([values.type, default.type])
    if type_ != values.type:
        raise NotCompilable("a default of another type than the value")
    default = in_type(default, type_)
    return pc.if_else(pa.array(outside), default, values.take(pa.array(at, mask=outside)))


def _offset(written: exp.Expr) -> int:
    sign = -1 if isinstance(written, exp.Neg) else 1
    literal = written.this if isinstance(written, exp.Neg) else written
    if not isinstance(literal, exp.Literal) or literal.is_string or not literal.name.isdecimal():
        raise NotCompilable("an offset that is not an integer literal")
    return sign * int(literal.name)


def _skipping(rows: Ordered, values: pa.Array, distance: int) -> Numbers:
    """Return the position of the n-th non-NULL value before or after each row, or one outside of its partition."""
    known = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    if distance == 0:
        return rows.places
    if distance > 0:
        nth = np.searchsorted(known, rows.places, "right") + distance - 1
    else:
        nth = np.searchsorted(known, rows.places, "left") + distance
    inside = (nth >= 0) & (nth < len(known))
    return np.where(inside, known[np.clip(nth, 0, max(len(known) - 1, 0))] if len(known) else 0, -1)


ENDS = ("FIRST", "FIRST_VALUE", "ANY_VALUE", "LAST", "LAST_VALUE", "NTH_VALUE")


def _end(call: Call, frame: Frame, values: pa.Array) -> pa.Array:
    """Evaluate FIRST_VALUE, LAST_VALUE or NTH_VALUE of each frame."""
    nth = 1
    if call.name == "NTH_VALUE":
        nth = _offset(call.arguments[1])
        if nth <= 0:
            raise NotCompilable("NTH_VALUE of a position below 1")
    last = call.name in ("LAST", "LAST_VALUE")
    if not call.ignores_nulls:
        return end_of(values, frame, last=last, nth=nth)
    known = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    first, behind = np.searchsorted(known, frame.low, "left"), np.searchsorted(known, frame.high, "left")
    chosen = behind - 1 if last else first + nth - 1
    missing = (chosen < first) | (chosen >= behind)
    at = known[np.where(missing, 0, chosen)] if len(known) else np.zeros(len(chosen), np.int64)
    return values.take(pa.array(at, mask=missing))


def end_of(values: pa.Array, frame: Frame, *, last: bool, nth: int = 1) -> pa.Array:
    """Return the n-th or the last value of each frame, NULL if there is none."""
    at = frame.high - 1 if last else frame.low + nth - 1
    return values.take(pa.array(at, mask=(at < frame.low) | (at >= frame.high)))


# --- aggregates


def _framed(evaluation: Evaluation, call: Call, over: tuple[Ordered, Frame], source: Rows) -> pa.Array:
    rows, frame = over
    if call.name in ENDS:
        if call.where is not None:
            raise NotCompilable("FIRST_VALUE, LAST_VALUE or NTH_VALUE with FILTER")
        return _end(call, frame, rows.values(evaluation.value(call.arguments[0], source)))
    aggregate = evaluation.cache.aggregate(call.node, source)
    if aggregate.distinct or aggregate.order:
        raise NotCompilable("an aggregate over a window with DISTINCT or ORDER BY")
    counted = None if call.where is None else as_mask(evaluation.value(call.where, source))[rows.rows]
    if frame.whole or aggregate.name not in FRAMED:
        return _of_partitions(aggregate, rows, frame, source, counted)
    if not aggregate.arguments:
        inside = np.ones(len(rows.rows), bool) if counted is None else counted
        return _differences(inside.astype(np.int64), frame)
    values = [rows.values(argument.evaluate(source.table)) for argument in aggregate.arguments]
    if counted is not None:
        mask = pa.array(counted)
        values = [pc.if_else(mask, v, pa.scalar(None, v.type)) for v in values]
    return FRAMED[aggregate.name](values, frame, aggregate.type, rows)


def _of_partitions(aggregate: CompiledAggregate, rows: Ordered, frame: Frame, source: Rows, counted: Any) -> pa.Array:
    """Evaluate an aggregate whose frames are whole partitions: one value for each."""
    if not frame.whole:
        raise NotCompilable(f"'{aggregate.name}' over a part of its partition")
    numbers = np.cumsum(rows.starts == rows.places) - 1
    taken = source.table.take(pa.array(rows.rows))
    count = int(numbers[-1]) + 1 if len(numbers) else 0
    if counted is not None:
        taken, inside = taken.filter(pa.array(counted)), numbers[counted]
    else:
        inside = numbers
    return aggregate.of_groups(taken, Groups(inside, count)).take(pa.array(numbers))


def _differences(values: npt.NDArray[np.int64], frame: Frame) -> pa.Array:
    """Return the sums of integers over frames, as differences of running sums."""
    running = np.concatenate([[0], np.cumsum(values)])
    return pa.array(running[frame.high] - running[frame.low])


def _valid(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False), dtype=bool)


def _counts(values: Sequence[pa.Array], frame: Frame, _: pa.DataType, __: Ordered | None = None) -> pa.Array:
    inside = np.ones(len(values[0]), np.int64)
    for column in values:
        inside &= _valid(column)
    return _differences(inside, frame)


def _exact(values: pa.Array, frame: Frame) -> Numbers | list[int]:
    """Return the sums of integers or decimals over frames, as unscaled integers: differences of running sums, which are
    exact. Python's integers cannot overflow; they are used where 64 bits may not be sufficient."""
    numbers = unscaled(values)
    if numbers is not None and float(np.abs(numbers.astype(np.float64)).sum()) < 2.0**62:
        running = np.concatenate([[0], np.cumsum(numbers)])
        return np.asarray(running[frame.high] - running[frame.low], np.int64)
    if pa.types.is_decimal(values.type):
        raw = pc.fill_null(values, Decimal(0)).to_pylist()
        large = [int(v.scaleb(values.type.scale, SPARK)) for v in raw]
    else:
        large = pc.fill_null(values.cast(BIGINT), 0).to_pylist()
    sums = [0]
    for number in large:
        sums.append(sums[-1] + number)
    return [sums[high] - sums[low] for low, high in zip(frame.low.tolist(), frame.high.tolist(), strict=True)]


def unscaled(values: pa.Array) -> Numbers | None:
    """Return integers or decimals as integers without their scale, 0 for NULL; None if 64 bits are not sufficient."""
    if not pa.types.is_decimal(values.type):
        return np.asarray(pc.fill_null(values.cast(BIGINT), 0).to_numpy(zero_copy_only=False), np.int64)
    buffer = values.buffers()[1]
    if buffer is None or not len(values):
        return np.zeros(len(values), np.int64)
    words = np.frombuffer(buffer, np.int64).reshape(-1, 2)[values.offset : values.offset + len(values)]
    known = _valid(values)
    low = np.where(known, words[:, 0], 0)
    return low if bool((np.where(known, words[:, 1], 0) == low >> 63).all()) else None


def decimals_of(numbers: Numbers, type_: pa.DataType, nulls: npt.NDArray[np.bool_]) -> pa.Array:
    """Return decimals from integers without their scale."""
    words = np.stack([numbers, numbers >> 63], axis=1).astype(np.int64)
    validity = pa.array(~nulls).buffers()[1]
    return pa.Array.from_buffers(type_, len(numbers), [validity, pa.py_buffer(words.tobytes())])


def _sums(values: Sequence[pa.Array], frame: Frame, type_: pa.DataType, rows: Ordered | None = None) -> pa.Array:
    some = _counts(values[:1], frame, BIGINT).to_numpy() > 0
    if type_ == DOUBLE:
        return pa.array(_double_sums(values[0], frame, rows), mask=~some)
    exact = _exact(values[0], frame)
    limit = 2**63 if type_ == BIGINT else 10**type_.precision
    if isinstance(exact, list):
        if any(not -limit <= one < limit for one in exact):
            raise NotCompilable("a sum over a frame that is out of range")
        if type_ == BIGINT:
            return pa.array(exact, BIGINT, mask=~some)
        return pa.array([Decimal(one).scaleb(-type_.scale, SPARK) for one in exact], type_, mask=~some)
    if type_ == BIGINT:
        return pa.array(exact, BIGINT, mask=~some)
    if len(exact) and max(abs(int(exact.max())), abs(int(exact.min()))) >= limit:
        raise NotCompilable("a sum over a frame that is out of range")
    return decimals_of(exact, type_, ~some)


def _double_sums(values: pa.Array, frame: Frame, rows: Ordered | None) -> npt.NDArray[np.float64]:
    """Add from the first row of each frame to its last, as Spark does: the order changes the rounding."""
    numbers = values.cast(DOUBLE, safe=False)
    known = np.asarray(pc.fill_null(numbers, 0.0).to_numpy(zero_copy_only=False), dtype=np.float64)
    valid = _valid(values)
    if frame.growing and rows is not None:
        return _running(known, valid, frame, rows)
    widths = frame.high - frame.low
    if int(widths.sum()) > ADDITIONS_MAX:
        raise NotCompilable("long frames over doubles")
    total = np.zeros(len(widths))
    known = np.where(valid, known, 0.0)
    # The frames that are longer than the step, longest first, become fewer with each one.
    longest = np.argsort(-widths, kind="stable")
    ends = np.searchsorted(-widths[longest], -np.arange(1, int(widths.max(initial=0)) + 1), "right")
    for step, count in enumerate(ends.tolist()):
        inside = longest[:count]
        total[inside] += known[frame.low[inside] + step]
    return total


def _running(
    known: npt.NDArray[np.float64], valid: npt.NDArray[np.bool_], frame: Frame, rows: Ordered
) -> npt.NDArray[np.float64]:
    """Return the running sums of each partition; NULLs are skipped."""
    sums = np.empty(len(known))
    for start in np.unique(rows.starts):
        end = int(rows.ends[start])
        sums[start:end] = np.cumsum(np.where(valid[start:end], known[start:end], 0.0))
    empty = frame.high == frame.low
    return np.where(empty, 0.0, sums[np.maximum(frame.high - 1, 0)]) + 0.0


def _averages(values: Sequence[pa.Array], frame: Frame, type_: pa.DataType, rows: Ordered | None = None) -> pa.Array:
    counts = _counts(values[:1], frame, BIGINT).to_numpy()
    some = counts > 0
    if type_ == DOUBLE:
        sums = _double_sums(values[0], frame, rows)
        return pa.array(np.divide(sums, counts, out=np.zeros(len(sums)), where=some), mask=~some)
    found = decimal_averages(_exact(values[0], frame), counts, values[0].type.scale, type_)
    if found is None:
        raise NotCompilable("an average over a frame that is out of range")
    return found


def decimal_averages(sums: Numbers | list[int], counts: Numbers, scale: int, type_: pa.DataType) -> pa.Array | None:
    """Return sums without their scale divided by counts, rounded half up; None if a result does not fit the type."""
    none, shift = counts == 0, 10 ** (type_.scale - scale)
    if not isinstance(sums, list) and len(sums) and max(abs(int(sums.max())), abs(int(sums.min()))) * shift < 2**61:
        whole, by = np.abs(sums) * shift, np.where(none, 1, counts)
        return decimals_of(np.sign(sums) * ((2 * whole + by) // (2 * by)), type_, none)
    found = []
    for total, count in zip(sums if isinstance(sums, list) else sums.tolist(), counts.tolist(), strict=True):
        divided = SPARK.divide(Decimal(total).scaleb(-scale, SPARK), Decimal(count)) if count else None
        average = None if divided is None else fitted(divided, type_)
        if average is None and count:
            return None
        found.append(average)
    return pa.array(found, type_)


def _extreme(sign: int) -> Callable[..., pa.Array]:
    """Return MIN or MAX over frames: the best of each run of 1, 2, 4, ... rows is computed once for all frames."""

    def compute(values: Sequence[pa.Array], frame: Frame, _: pa.DataType, __: Ordered | None = None) -> pa.Array:
        places = ranks(values[0])
        scores = np.where(places == NULL_RANK, np.iinfo(np.int64).min, places * sign)
        best = _best(scores, frame)
        none = best == np.iinfo(np.int64).min
        known = np.flatnonzero(places != NULL_RANK)
        rows = np.zeros(int(places.max(initial=0)) + 1, np.int64)
        rows[places[known]] = known
        chosen = rows[np.where(none, 0, best * sign)]
        return values[0].take(pa.array(chosen, mask=none))

    return compute


def _best(scores: Numbers, frame: Frame) -> Numbers:
    """Return the largest score of each frame."""
    widths = frame.high - frame.low
    found = np.full(len(widths), np.iinfo(np.int64).min)
    level, step = scores, 1
    while step <= int(widths.max(initial=0)):
        # Two overlapping runs of this length cover every frame that is at most twice as long.
        here = (widths >= step) & (widths < 2 * step)
        left, right = frame.low[here], frame.high[here] - step
        found[here] = np.maximum(level[left], level[right])
        level = np.maximum(level[:-step], level[step:]) if len(level) > step else level[:0]
        step *= 2
    return found


FRAMED: dict[str, Callable[..., pa.Array]] = {
    "count": _counts,
    "sum": _sums,
    "avg": _averages,
    "min": _extreme(-1),
    "max": _extreme(1),
}
