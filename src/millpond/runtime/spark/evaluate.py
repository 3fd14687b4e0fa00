"""An expression over Arrow rows: by Arrow kernels where these agree with Spark, else by Spark itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from sqlglot import exp

from millpond.contracts.table import Fallback
from millpond.expressions.compile import NotCompilable, compile_expression
from millpond.runtime.spark.access import arrow_frame
from millpond.runtime.spark.errors import translate
from millpond.schema import Schema
from millpond.sql.spark import render

ROWS_VIEW = "__mp_rows"
ONE_ROW = pa.table({"__one": pa.array([0], pa.int8())})


def constant(spark: Callable[[], SparkSession], expression: exp.Expression) -> Any:
    """The value of an expression without columns, as Python has it."""
    return evaluate(spark, expression, ONE_ROW)[0].as_py()


def evaluate(spark: Callable[[], SparkSession], expression: exp.Expression, rows: pa.Table) -> pa.ChunkedArray:
    """One value per row; Spark is started only if the expression needs it."""
    found = by_arrow(expression, rows)
    return evaluate_on_spark(spark(), expression, rows) if found is None else found


def by_arrow(expression: exp.Expression, rows: pa.Table) -> pa.ChunkedArray | None:
    """One value per row, or None for an expression that only Spark can evaluate."""
    try:
        found = compile_expression(expression, Schema.from_arrow(rows.schema)).evaluate(rows)
    except NotCompilable:
        return None
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


def evaluate_on_spark(
    session: SparkSession, expression: exp.Expression, rows: pa.Table, parameters: Sequence[Any] = ()
) -> pa.ChunkedArray:
    """One value per row, by Spark; the rows keep their order because nothing in such a query shuffles."""
    arrow_frame(session, rows).createOrReplaceTempView(ROWS_VIEW)
    query = exp.select(exp.alias_(expression.copy(), "v")).from_(exp.to_identifier(ROWS_VIEW))
    try:
        return session.sql(render(query), args=list(parameters)).toArrow()["v"]
    except Exception as error:
        raise translate(error) from error


def spark_fallback(spark: Callable[[], SparkSession]) -> Fallback:
    """What tables call for an expression that the Arrow compiler refuses; starts Spark if need be."""

    def fallback(expression: exp.Expression, rows: pa.Table, parameters: Sequence[Any]) -> pa.Array:
        return evaluate_on_spark(spark(), expression, rows, parameters).combine_chunks()

    return fallback
