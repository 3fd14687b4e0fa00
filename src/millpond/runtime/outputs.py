"""What a user sees of an aggregate: the SELECT list and HAVING over the merged groups."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.plan.model import AggregatePlan, Final
from millpond.runtime import aggregate
from millpond.runtime.evaluate import evaluate
from millpond.runtime.work import Work
from millpond.schema import Schema

# Spark: SUM adds ten digits to a decimal, AVG four digits and four places.
SUM_DIGITS, AVG_DIGITS, DIGITS_MAX = 10, 4, 38


def outputs(work: Work, plan: AggregatePlan, merged: pa.Table, schema: Schema) -> tuple[pa.Table, pa.Array]:
    """The rows of the user's table for the merged groups, and which of them satisfy HAVING."""
    rows = finals_of(plan, merged)
    spark = work.views.spark
    columns = [evaluate(spark, expression, rows) for _, expression in plan.outputs]
    table = pa.table(columns, names=list(schema.names)).cast(schema.arrow())
    if plan.having is None:
        return table, pa.array([True] * rows.num_rows)
    keep = pc.fill_null(evaluate(spark, plan.having, rows), False)
    return table, keep.combine_chunks() if isinstance(keep, pa.ChunkedArray) else keep


def finals_of(plan: AggregatePlan, merged: pa.Table) -> pa.Table:
    """The groups and the user's aggregates of merged accumulators."""
    types = {final.name: _type(final, merged.schema) for final in plan.finals}
    return aggregate.finals(merged, plan, types)


def _type(final: Final, schema: pa.Schema) -> pa.DataType:
    if final.type is not None:
        return final.type
    if final.how == "count":
        return pa.int64()
    total: pa.DataType = schema.field(final.accumulators[0]).type
    if final.how != "avg":
        return total
    if not pa.types.is_decimal(total):
        return pa.float64()
    digits = total.precision - SUM_DIGITS
    places = min(total.scale + AVG_DIGITS, DIGITS_MAX)
    return pa.decimal128(min(digits + AVG_DIGITS, DIGITS_MAX), places)
