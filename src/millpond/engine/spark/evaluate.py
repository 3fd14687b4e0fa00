"""Queries and expressions evaluated by Spark, and expressions by Arrow where the result is the same."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as f
from sqlglot import exp

from millpond.contracts.evaluator import Engine, Input, TableInput
from millpond.contracts.table import Fallback
from millpond.engine.spark.spark_errors import translate
from millpond.engine.spark.transfer import Views, arrow_frame
from millpond.expressions.compile import NotCompilable, compile_expression
from millpond.plan.missing import rewrite_missing
from millpond.schema import Schema
from millpond.sql.conditions import rewrite_correlated
from millpond.sql.rewrites import rewrite_any_all
from millpond.sql.spark import render, rewrite_grouped, rewrite_ordering


def tables_of(query: exp.Expr) -> tuple[str, ...]:
    """The relations that a query reads, in lower case, without the names of its own WITH."""
    return tuple(dict.fromkeys(table.name.lower() for table in _real_tables(query)))


def spark_text(query: exp.Query, views: Mapping[str, str]) -> str:
    """The query as Spark SQL: each relation is replaced by its temporary view, under its own name."""
    ready = query.copy()
    for table in list(_real_tables(ready)):
        view = views[table.name.lower()]
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        table.set("this", exp.to_identifier(view, quoted=True))
    return render(rewrite_correlated(rewrite_any_all(rewrite_grouped(rewrite_ordering(rewrite_missing(ready))))))


def _real_tables(query: exp.Expr) -> list[exp.Table]:
    own = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    return [t for t in query.find_all(exp.Table) if isinstance(t.this, exp.Identifier) and t.name.lower() not in own]


class SparkEvaluator:
    """The reference engine: rows on the driver and tables are passed to Spark as temporary views of one session."""

    def __init__(self, views: Views) -> None:
        self._views = views

    @property
    def engine(self) -> Engine:
        return Engine.SPARK

    def evaluate(
        self, query: exp.Query, inputs: Mapping[str, Input | DataFrame], parameters: Sequence[Any] = ()
    ) -> DataFrame:
        """The rows as a DataFrame, which is evaluated when it is read."""
        names = {name: self._view(name, inputs[name]) for name in tables_of(query)}
        found = self._views.session.sql(spark_text(query, names), args=list(parameters) or None)
        return _with_element_types(found) if _has_empty_collection(query) else found

    def _view(self, name: str, given: Input | DataFrame) -> str:
        if isinstance(given, TableInput):
            return self._views.table(given.table, changed=given.changed)
        return self._views.frame(name, self._views.in_spark(given))


def _has_empty_collection(tree: exp.Expr) -> bool:
    """Whether it contains array() or map(), whose elements have no type."""
    arrays = (not node.expressions for node in tree.find_all(exp.Array))
    maps = (node.name.lower() == "map" and not node.expressions for node in tree.find_all(exp.Anonymous))
    return any(arrays) or any(maps)


def _with_element_types(rows: DataFrame) -> DataFrame:
    """The rows with STRING where elements have no type, which Spark cannot hand over as Arrow."""
    fields = [(field.name, field.dataType, _typed(field.dataType)) for field in rows.schema.fields]
    if all(found == wanted for _, found, wanted in fields):
        return rows
    return rows.toDF(*(f"c{n}" for n in range(len(fields)))).select(
        *(f.col(f"c{n}").cast(wanted).alias(name) for n, (name, _, wanted) in enumerate(fields))
    )


def _typed(type_: types.DataType, *, inside: bool = False) -> types.DataType:
    if isinstance(type_, types.ArrayType):
        return types.ArrayType(_typed(type_.elementType, inside=True), type_.containsNull)
    if isinstance(type_, types.MapType):
        key, value = _typed(type_.keyType, inside=True), _typed(type_.valueType, inside=True)
        return types.MapType(key, value, type_.valueContainsNull)
    if isinstance(type_, types.StructType):
        fields = [
            types.StructField(each.name, _typed(each.dataType, inside=True), each.nullable) for each in type_.fields
        ]
        return types.StructType(fields)
    return types.StringType() if inside and isinstance(type_, types.NullType) else type_


ROWS_VIEW = "__mp_rows"
ONE_ROW = pa.table({"__one": pa.array([0], pa.int8())})


def constant(spark: Callable[[], SparkSession], expression: exp.Expression) -> Any:
    """The value of an expression without columns, as a Python value."""
    return evaluate(spark, expression, ONE_ROW)[0].as_py()


def evaluate(spark: Callable[[], SparkSession], expression: exp.Expression, rows: pa.Table) -> pa.ChunkedArray:
    """One value per row; Spark is started only if the expression needs it."""
    found = by_arrow(expression, rows)
    return evaluate_on_spark(spark(), expression, rows) if found is None else found


def by_arrow(expression: exp.Expression, rows: pa.Table) -> pa.ChunkedArray | None:
    """One value per row, or None if only Spark can evaluate the expression."""
    try:
        found = compile_expression(expression, Schema.from_arrow(rows.schema)).evaluate(rows)
    except NotCompilable:
        return None
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


def evaluate_on_spark(
    session: SparkSession, expression: exp.Expression, rows: pa.Table, parameters: Sequence[Any] = ()
) -> pa.ChunkedArray:
    """One value per row, by Spark; the rows keep their order, because such a query has no shuffle."""
    arrow_frame(session, rows).createOrReplaceTempView(ROWS_VIEW)
    query = exp.select(exp.alias_(expression.copy(), "v")).from_(exp.to_identifier(ROWS_VIEW))
    try:
        found = session.sql(render(query), args=list(parameters))
        return (_with_element_types(found) if _has_empty_collection(expression) else found).toArrow()["v"]
    except Exception as error:
        raise translate(error) from error


def spark_fallback(spark: Callable[[], SparkSession]) -> Fallback:
    """Evaluates an expression for a table that the Arrow compiler does not support; starts Spark if necessary."""

    def fallback(expression: exp.Expression, rows: pa.Table, parameters: Sequence[Any]) -> pa.Array:
        return evaluate_on_spark(spark(), expression, rows, parameters).combine_chunks()

    return fallback


@contextmanager
def cancellable(session: SparkSession) -> Iterator[Callable[[], None]]:
    """Spark jobs that this thread starts inside the block can be cancelled by the yielded function, from any thread and
    at any time."""
    # Spark keeps the names of cancelled groups, for all apps that use the session.
    context, name = session.sparkContext, f"millpond-{uuid.uuid4().hex}"
    context.setJobGroup(name, name, interruptOnCancel=True)
    try:
        # Jobs that start later are cancelled too: planning and code generation take some time before the first one.
        yield lambda: context._jsc.sc().cancelJobGroupAndFutureJobs(name)
    finally:
        context._jsc.clearJobGroup()
