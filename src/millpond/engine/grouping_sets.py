"""Rows of grouping sets: a row is counted once in each set, in which its other groups are NULL."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from millpond.engine.spark.transfer import Dataset
from millpond.plan.aggregate_model import SET, AggregatePlan


def in_sets(rows: Dataset, plan: AggregatePlan) -> Dataset:
    """The rows once for each grouping set of the plan, with its number."""
    if not plan.sets:
        return rows
    return _by_arrow(rows, plan) if isinstance(rows, pa.Table) else _by_spark(rows, plan)


def _by_arrow(rows: pa.Table, plan: AggregatePlan) -> pa.Table:
    parts = []
    for number, set_ in enumerate(plan.sets):
        columns = {name: rows[name] for name in rows.column_names}
        columns |= {n: pa.nulls(rows.num_rows, rows[n].type) for n in plan.groups if n not in set_}
        columns[SET] = pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows)
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


def _by_spark(rows: DataFrame, plan: AggregatePlan) -> DataFrame:
    numbers = f.array(*(f.lit(number) for number in range(len(plan.sets))))
    expanded = rows.withColumn(SET, f.explode(numbers))
    for name in (name for name in plan.groups if name != SET):
        inside = [number for number, set_ in enumerate(plan.sets) if name in set_]
        expanded = expanded.withColumn(name, f.when(f.col(SET).isin(inside), f.col(f"`{name}`")))
    return expanded


def identities(groups: pa.Table, plan: AggregatePlan) -> pa.Array:
    """A value for each group that no other group has: the row of a subtotal has NULL like a NULL group."""
    columns = [groups[name] for name in plan.keys]
    plain = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in columns]
    rows = zip(*(column.to_pylist() for column in plain), strict=True)
    return pa.array([repr(row).encode() for row in rows], pa.binary())
