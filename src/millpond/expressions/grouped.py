"""One aggregate for each of many groups: the same values as `aggregates` gives for the rows of each group alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.aggregates import CompiledAggregate
from millpond.expressions.coercion import BIGINT, DOUBLE, FLOATS
from millpond.expressions.compile import NotCompilable
from millpond.expressions.decimals import SPARK, fitted
from millpond.expressions.failures import row_failed
from millpond.schema import type_name

# Wide enough for the sum of any column.
WIDE_DIGITS = 76
SAFE_SUM = 2**62


@dataclass(frozen=True)
class Groups:
    """Which group each row is in, as numbers from 0 to `count` - 1."""

    numbers: pa.Array
    count: int


def evaluate_groups(aggregate: CompiledAggregate, rows: pa.Table, groups: Groups) -> pa.Array:
    """One value per group. TableError MP408 when one does not fit its type; NotCompilable for values that only Spark
    orders or adds as Spark does."""
    if aggregate.argument is None:
        return _spread(_counts(groups.numbers), groups, 0)
    values = aggregate.argument.evaluate(rows)
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    known = pc.is_valid(values)
    pairs = pa.table({"g": groups.numbers.filter(known), "v": values.filter(known)})
    if aggregate.distinct:
        pairs = _distinct(pairs)
    found = AGGREGATES[aggregate.expression.key](pairs, aggregate)
    return _spread(found, groups, 0 if aggregate.expression.key == "count" else None)


def _spread(found: pa.Table, groups: Groups, absent: int | None) -> pa.Array:
    """The values in the order of the groups; a group without one has `absent`."""
    places = np.full(groups.count, -1, np.int64)
    places[found["g"].to_numpy()] = np.arange(found.num_rows)
    values = found["v"].combine_chunks().take(pa.array(places, mask=places < 0))
    return values if absent is None else pc.fill_null(values, absent)


def _counts(numbers: pa.Array) -> pa.Table:
    counted = pa.table({"g": numbers}).group_by("g").aggregate([([], "count_all")])
    return counted.select(["g", "count_all"]).rename_columns(["g", "v"])


def _distinct(pairs: pa.Table) -> pa.Table:
    if pairs["v"].type in FLOATS:
        raise NotCompilable("DISTINCT of floats")
    return pairs.group_by(["g", "v"]).aggregate([])


def _count(pairs: pa.Table, _: CompiledAggregate) -> pa.Table:
    return _counts(pairs["g"].combine_chunks())


def _sum(pairs: pa.Table, aggregate: CompiledAggregate) -> pa.Table:
    if aggregate.type == DOUBLE:
        return _double_sums(pairs)
    if aggregate.type == BIGINT and _is_safe(pairs["v"]):
        return _aggregated(pairs, "sum")
    sums = _exact_sums(pairs)
    limits = pa.decimal128(19, 0) if aggregate.type == BIGINT else aggregate.type
    try:
        fitting = sums["v"].cast(limits).cast(aggregate.type)
    except pa.ArrowInvalid as error:
        raise _too_large(aggregate) from error
    return pa.table({"g": sums["g"], "v": fitting})


def _is_safe(values: pa.ChunkedArray) -> bool:
    """Whether no sum of whole numbers can overflow on the way."""
    bounds = pc.min_max(values)
    largest = max(abs(bounds["min"].as_py() or 0), abs(bounds["max"].as_py() or 0))
    return bool(largest * len(values) < SAFE_SUM)


def _too_large(aggregate: CompiledAggregate) -> Exception:
    return row_failed(aggregate.expression.sql(dialect="spark"), f"the result does not fit {type_name(aggregate.type)}")


def _exact_sums(pairs: pa.Table) -> pa.Table:
    values = pairs["v"]
    exact = values if pa.types.is_decimal(values.type) else values.cast(BIGINT).cast(pa.decimal128(19, 0))
    wide = exact.cast(pa.decimal256(WIDE_DIGITS, exact.type.scale))
    return _aggregated(pa.table({"g": pairs["g"], "v": wide}), "sum")


def _double_sums(pairs: pa.Table) -> pa.Table:
    """One after another, in the order of the rows, as Spark adds them."""
    return _aggregated(pa.table({"g": pairs["g"], "v": pairs["v"].cast(DOUBLE, safe=False)}), "sum")


def _aggregated(pairs: pa.Table, how: str) -> pa.Table:
    found = pairs.group_by("g", use_threads=False).aggregate([("v", how)])
    return found.select(["g", f"v_{how}"]).rename_columns(["g", "v"])


def _avg(pairs: pa.Table, aggregate: CompiledAggregate) -> pa.Table:
    counts = _aggregated(pairs, "count")
    if aggregate.type == DOUBLE:
        return pa.table({"g": counts["g"], "v": pc.divide(_double_sums(pairs)["v"], counts["v"].cast(DOUBLE))})
    averages = []
    for total, count in zip(_exact_sums(pairs)["v"].to_pylist(), counts["v"].to_pylist(), strict=True):
        found = fitted(SPARK.divide(total, Decimal(count)), aggregate.type)
        if found is None:
            raise _too_large(aggregate)
        averages.append(found)
    return pa.table({"g": counts["g"], "v": pa.array(averages, aggregate.type)})


def _extreme(which: str) -> Callable[[pa.Table, CompiledAggregate], pa.Table]:
    def found(pairs: pa.Table, _: CompiledAggregate) -> pa.Table:
        if pairs["v"].type in FLOATS and pc.any(pc.is_nan(pairs["v"])).as_py():
            raise NotCompilable("NaN is ordered by Spark")
        return _aggregated(pairs, which)

    return found


AGGREGATES: dict[str, Callable[[pa.Table, CompiledAggregate], pa.Table]] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "min": _extreme("min"),
    "max": _extreme("max"),
}
