"""A statement's rows in the types of the table they are for; a value that does not fit is marked, not lost."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from sqlglot import exp

from millpond.errors import TableError
from millpond.expressions.compile import NotCompilable, compile_expression
from millpond.runtime.flows.work import Work
from millpond.runtime.spark.access import Relation
from millpond.runtime.spark.types import from_spark_schema
from millpond.schema import Column, Schema, type_name


def misfit_mark(name: str) -> str:
    """The column that tells where the value of a column did not fit."""
    return f"__bad_{name}"


def fitted(work: Work, rows: Relation, columns: Sequence[Column], others: Sequence[str]) -> pa.Table:
    """Rows whose columns are, by position, those of a table and `others`. A value that cannot be cast is NULL, with
    a mark in a column of its own."""
    names = [*(c.name for c in columns), *others]
    if isinstance(rows, pa.Table):
        found = _by_arrow(rows.rename_columns(names), columns, others)
        if found is not None:
            return found
    return _by_spark(work.in_spark(rows).toDF(*names), columns, others).toArrow()


def _by_arrow(rows: pa.Table, columns: Sequence[Column], others: Sequence[str]) -> pa.Table | None:
    """The same, or None where only Spark can cast."""
    found: dict[str, pa.ChunkedArray] = {}
    schema = Schema.from_arrow(rows.schema)
    try:
        for column in columns:
            values = rows[column.name]
            if values.type != column.type:
                cast = exp.TryCast(
                    this=exp.column(column.name, quoted=True),
                    to=exp.DataType.build(type_name(column.type), dialect="spark"),
                )
                made = compile_expression(cast, schema).evaluate(rows)
                bad = pc.and_(pc.is_valid(values), pc.is_null(made))
                if pc.any(bad).as_py():
                    found[misfit_mark(column.name)] = bad
                values = made
            found[column.name] = values
    except (NotCompilable, TableError):
        return None
    return pa.table({**found, **{name: rows[name] for name in others}})


def _by_spark(frame: DataFrame, columns: Sequence[Column], others: Sequence[str]) -> DataFrame:
    found = from_spark_schema(frame.schema)
    chosen = []
    for column in columns:
        value = f.col(f"`{column.name}`")
        if found[column.name].type == column.type:
            chosen.append(value)
            continue
        cast = value.try_cast(type_name(column.type))
        chosen += [cast.alias(column.name), (value.isNotNull() & cast.isNull()).alias(misfit_mark(column.name))]
    return frame.select(*chosen, *others)
