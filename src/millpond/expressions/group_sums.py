"""COUNT, SUM, AVG, and those of truth values and bits: what is added up row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.coercion import BIGINT, BOOLEAN, DOUBLE, INTEGERS, STRING, is_number
from millpond.expressions.decimals import SPARK, fitted
from millpond.expressions.group_inputs import Aggregate, Inputs, Overflow, by_group

# Wide enough for the sum of any column.
WIDE_DIGITS, DECIMAL_DIGITS = 76, 38
SAFE_SUM = 2**62
# A double holds every whole number up to this.
DOUBLE_SUM = 2**53


def counts(inputs: Inputs) -> pa.Array:
    """The rows of each group in which no argument is NULL."""
    known = inputs.known()
    return pa.array(np.bincount(known.groups, minlength=inputs.count).astype(np.int64))


def _counts_if(inputs: Inputs) -> pa.Array:
    true = np.asarray(pc.fill_null(inputs.values, False).to_numpy(zero_copy_only=False), dtype=bool)
    return pa.array(np.bincount(inputs.groups[true], minlength=inputs.count).astype(np.int64))


def sums(inputs: Inputs) -> pa.Array:
    """The sums in the type of the result."""
    known = inputs.known()
    if inputs.type == DOUBLE:
        return double_sums(known)
    if inputs.type == BIGINT and _is_safe(known.values):
        small = _small_sums(known)
        if small is not None:
            return small
        return _aggregated(known, known.values.cast(BIGINT), "sum")
    exact = _exact_sums(known)
    limits = pa.decimal128(19, 0) if inputs.type == BIGINT else inputs.type
    try:
        return exact.cast(limits).cast(inputs.type)
    except pa.ArrowInvalid as error:
        raise Overflow from error


def _is_safe(values: pa.Array) -> bool:
    """Whether no sum of whole numbers can overflow on the way."""
    bounds = pc.min_max(values)
    largest = max(abs(bounds["min"].as_py() or 0), abs(bounds["max"].as_py() or 0))
    return bool(largest * len(values) < SAFE_SUM)


def _exact_sums(known: Inputs) -> pa.Array:
    values = known.values
    small = _small_sums(known) if pa.types.is_decimal(values.type) else None
    if small is not None:
        return small
    exact = values if pa.types.is_decimal(values.type) else values.cast(BIGINT).cast(pa.decimal128(19, 0))
    return _aggregated(known, exact.cast(pa.decimal256(WIDE_DIGITS, exact.type.scale)), "sum")


def _small_sums(known: Inputs) -> pa.Array | None:
    """The exact sums of whole numbers or decimals that cannot exceed what a double holds exactly, whatever is added
    first, in a fraction of the time of Arrow. None for others."""
    numbers = _unscaled(known.values) if len(known.values) else None
    if numbers is None:
        return None
    if max(abs(int(numbers.min())), abs(int(numbers.max()))) * len(numbers) >= DOUBLE_SUM:
        return None
    found = np.bincount(known.groups, weights=numbers, minlength=known.count).astype(np.int64)
    none = np.bincount(known.groups, minlength=known.count) == 0
    if not pa.types.is_decimal(known.values.type):
        return pa.array(found, mask=none)
    # The lower and the upper half of each decimal.
    words = np.stack([found, found >> 63], axis=1)
    type_ = pa.decimal128(DECIMAL_DIGITS, known.values.type.scale)
    sums_ = pa.Array.from_buffers(type_, len(found), [None, pa.py_buffer(words)])
    return pc.if_else(pa.array(~none), sums_, pa.scalar(None, type_)) if none.any() else sums_


def _unscaled(values: pa.Array) -> npt.NDArray[np.int64] | None:
    """Whole numbers, or the digits of decimals, without NULLs, as 64 bits; None if they do not fit."""
    if values.type in INTEGERS:
        return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)
    if not pa.types.is_decimal128(values.type):
        return None
    words = np.frombuffer(values.buffers()[1], np.int64).reshape(-1, 2)[values.offset : values.offset + len(values)]
    return words[:, 0] if np.array_equal(words[:, 0] >> 63, words[:, 1]) else None


def double_sums(known: Inputs) -> pa.Array:
    """One after another, in the order of the rows, as Spark adds them."""
    return _aggregated(known, known.values.cast(DOUBLE, safe=False), "sum")


def _aggregated(inputs: Inputs, values: pa.Array, how: str) -> pa.Array:
    """An aggregate of Arrow, by group."""
    pairs = pa.table({"g": inputs.groups, "v": values})
    found = pairs.group_by("g", use_threads=False).aggregate([("v", how)])
    return inputs.spread(found["g"].to_numpy(), found[f"v_{how}"].combine_chunks())


def _averages(inputs: Inputs) -> pa.Array:
    known = inputs.known()
    rows = np.bincount(known.groups, minlength=inputs.count)
    if inputs.type == DOUBLE:
        return pc.divide(double_sums(known), pa.array(rows.astype(np.float64)))
    found = []
    for total, count in zip(_exact_sums(known).to_pylist(), rows.tolist(), strict=True):
        average = None if total is None else fitted(SPARK.divide(total, Decimal(count)), inputs.type)
        if average is None and total is not None:
            raise Overflow
        found.append(average)
    return pa.array(found, inputs.type)


def _folded(operation: Any, neutral: Any) -> Callable[[Inputs], pa.Array]:
    """Truth values or bits of each group taken together; NULL where there are none."""

    def compute(inputs: Inputs) -> pa.Array:
        known = inputs.known()
        rows = by_group(known)
        values = known.values.to_numpy(zero_copy_only=False)[rows.rows]
        some = rows.sizes > 0
        found = np.full(inputs.count, neutral, values.dtype)
        if some.any():
            found[some] = operation.reduceat(values, rows.starts[some])
        return pa.array(found, inputs.type, mask=~some)

    return compute


def _numbers(types: Sequence[pa.DataType], ordered: bool) -> bool:
    return len(types) == 1 and not ordered and (is_number(types[0]) or types[0] == STRING)


def _booleans(types: Sequence[pa.DataType], ordered: bool) -> bool:
    return list(types) == [BOOLEAN] and not ordered


def _wholes(types: Sequence[pa.DataType], ordered: bool) -> bool:
    return len(types) == 1 and not ordered and types[0] in INTEGERS


AGGREGATES: dict[str, Aggregate] = {
    "count": Aggregate(counts, lambda types, ordered: not ordered),
    "count_if": Aggregate(_counts_if, _booleans),
    "sum": Aggregate(sums, _numbers),
    "avg": Aggregate(_averages, _numbers),
    "bool_and": Aggregate(_folded(np.logical_and, True), _booleans),
    "bool_or": Aggregate(_folded(np.logical_or, False), _booleans),
    "bit_and": Aggregate(_folded(np.bitwise_and, 0), _wholes),
    "bit_or": Aggregate(_folded(np.bitwise_or, 0), _wholes),
    "bit_xor": Aggregate(_folded(np.bitwise_xor, 0), _wholes),
}
