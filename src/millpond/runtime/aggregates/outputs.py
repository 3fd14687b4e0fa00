"""What a user sees of an aggregate: the SELECT list and HAVING over the merged groups."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.plan.aggregate_model import AggregatePlan, Final
from millpond.runtime.aggregates import aggregate, kept
from millpond.runtime.aggregates.aggregate import GROUP_ID
from millpond.runtime.flows.work import Work
from millpond.runtime.spark.evaluate import by_arrow
from millpond.schema import Schema

# Spark: SUM adds ten digits to a decimal, AVG four digits and four places.
SUM_DIGITS, AVG_DIGITS, DIGITS_MAX = 10, 4, 38
MERGED = "__merged__"
TRUE = exp.true()


def outputs(work: Work, plan: AggregatePlan, merged: pa.Table, schema: Schema) -> tuple[pa.Table, pa.Array]:
    """The rows of the user's table for the merged groups, and which of them satisfy HAVING."""
    rows = finals_of(work, plan, merged)
    expressions = [expression for _, expression in plan.outputs]
    *columns, keep = _values(work, [*expressions, plan.having or TRUE], rows)
    table = pa.table(columns, names=list(schema.names)).cast(schema.arrow())
    return table, pc.fill_null(keep, False).combine_chunks()


def emitted(work: Work, plan: AggregatePlan, merged: pa.Table) -> pa.Table:
    """The rows that go on from the merged groups: those that satisfy HAVING, by ORDER BY and LIMIT."""
    rows = finals_of(work, plan, merged)
    if plan.order or plan.limit is not None:
        query = work.memory.once("ordered groups", plan.rows, lambda: _ordered(plan))
        return work.rows(query, given={MERGED: rows})
    expressions = [expression for _, expression in plan.outputs]
    *columns, keep = _values(work, [*expressions, plan.having or TRUE], rows)
    table = pa.table(columns, names=[name for name, _ in plan.outputs])
    return table.filter(pc.fill_null(keep, False))


def keys(work: Work, plan: AggregatePlan, groups: pa.Table, columns: Sequence[str], schema: Schema) -> pa.Table | None:
    """The keys of groups in the table that the outputs fill, by position, under `columns`; None where its key is not
    made of groups alone."""
    key = {name.lower() for name in schema.key}
    chosen = {schema[c].name: e for c, (_, e) in zip(columns, plan.outputs, strict=True) if c.lower() in key}
    read = {column.name for e in chosen.values() for column in e.find_all(exp.Column)}
    if not key or len(chosen) < len(key) or not read <= set(plan.keys):
        return None
    found = pa.table(_values(work, list(chosen.values()), groups), names=list(chosen))
    return found.select(list(schema.key)).cast(pa.schema([schema.arrow().field(name) for name in schema.key]))


def finals_of(work: Work, plan: AggregatePlan, merged: pa.Table) -> pa.Table:
    """The groups and the user's aggregates of merged accumulators and kept values."""
    types = {final.name: _type(final, merged.schema) for final in plan.finals}
    rows = aggregate.finals(merged, plan, types)
    if plan.kept is None:
        return rows
    values = kept.finals(work, plan.kept, merged[GROUP_ID])
    for name in values.column_names:
        rows = rows.append_column(name, values[name])
    return rows


def _values(work: Work, expressions: list[exp.Expression], rows: pa.Table) -> list[pa.ChunkedArray]:
    """One column per expression: by Arrow where that agrees with Spark, the others by one Spark query. Where there is
    a subquery Spark does all of them, because its joins may change the order of the rows."""
    if any(e.find(exp.Query) for e in expressions):
        return _on_spark(work, expressions, rows)
    found = [by_arrow(e, rows) for e in expressions]
    others = iter(_on_spark(work, [e for e, f in zip(expressions, found, strict=True) if f is None], rows))
    return [next(others) if f is None else f for f in found]


def _on_spark(work: Work, expressions: list[exp.Expression], rows: pa.Table) -> list[pa.ChunkedArray]:
    if not expressions:
        return []
    # The expressions are those of the plan, the same in every batch.
    kind = " ".join(["outputs", *(str(id(e)) for e in expressions)])
    query = work.memory.once(kind, expressions[0], lambda: _of_merged(expressions))
    return list(work.rows(query, given={MERGED: rows}).columns)


def _of_merged(expressions: list[exp.Expression]) -> exp.Select:
    named = [exp.alias_(e.copy(), f"c{n}", quoted=True) for n, e in enumerate(expressions)]
    return exp.Select(expressions=named).from_(_merged_table(), copy=False)


def _ordered(plan: AggregatePlan) -> exp.Select:
    named = [exp.alias_(e.copy(), name, quoted=True) for name, e in plan.outputs]
    query = exp.Select(expressions=named).from_(_merged_table(), copy=False)
    if plan.having is not None:
        query = query.where(plan.having.copy(), copy=False)
    if plan.order:
        query.set("order", exp.Order(expressions=[e.copy() for e in plan.order]))
    query.set("limit", plan.limit.copy() if plan.limit is not None else None)
    return query


def _merged_table() -> exp.Table:
    return exp.Table(this=exp.Identifier(this=MERGED, quoted=True))


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
