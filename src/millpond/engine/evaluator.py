"""The evaluator of a transaction's queries: the one place that selects the engine, Arrow or Spark, for each query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame
from sqlglot import exp

from millpond.contracts.evaluator import Engine, Input, Limits
from millpond.engine.spark.evaluate import SparkEvaluator
from millpond.engine.spark.spark_errors import too_far
from millpond.engine.spark.transfer import Views
from millpond.expressions.failures import NotCompilable
from millpond.plan.missing import rewrite_missing
from millpond.plan.model import BATCH
from millpond.plan.routing import Facts, route
from millpond.plan.statement_groups import carry_order
from millpond.relational.answer import ArrowEvaluator
from millpond.relational.compiled import QueryCache
from millpond.sql.conditions import far_column

# The inputs of a query: rows on the driver or in Spark, and tables.
Inputs: TypeAlias = Mapping[str, Input | DataFrame]


class Evaluator:
    """Used by one thread. `cache` holds what was derived from the queries of a flow, from batch to batch."""

    def __init__(self, views: Views, cache: QueryCache, limits: Limits) -> None:
        self.cache = cache
        self._limits = limits
        self._arrow = ArrowEvaluator(cache, limits)
        self._spark = SparkEvaluator(views)

    def on_driver(self, query: exp.Query, inputs: Inputs) -> pa.Table | None:
        """The rows of a query evaluated by Arrow; None if Spark must evaluate it."""
        local = {name: given for name, given in inputs.items() if not isinstance(given, DataFrame)}
        facts = Facts(in_spark=len(local) < len(inputs), limits=self._limits)
        if route(facts).engine is Engine.SPARK:
            return None
        try:
            return self._by_arrow(query, local)
        except NotCompilable:
            return None

    def in_spark(self, query: exp.Query, inputs: Inputs, parameters: Sequence[Any] = ()) -> DataFrame:
        """The query as a Spark DataFrame; `parameters` are the values of its `?`."""
        return self._spark.evaluate(query, inputs, parameters)

    def is_beyond_spark(self, query: exp.Query) -> bool:
        """Whether a subquery refers to a query two or more levels out, which Spark does not support."""
        return self.cache.once("far", query, lambda: far_column(query)) is not None

    def whatever_the_size(self, query: exp.Query, inputs: Inputs) -> pa.Table:
        """The rows of a query that Spark does not support, by Arrow for any size; MP224 if Arrow does not support it
        either."""
        local = {n: given.toArrow() if isinstance(given, DataFrame) else given for n, given in inputs.items()}
        try:
            found = [self._by_arrow(query, {**local, **part}) for part in self._parts(query, local.get(BATCH))]
        except NotCompilable as refusal:
            raise too_far(query) from refusal
        return pa.concat_tables(found)

    def _by_arrow(self, query: exp.Query, inputs: Mapping[str, Input]) -> pa.Table:
        ready = self.cache.once("missing", query, lambda: rewrite_missing(query))
        return self._arrow.evaluate(ready, inputs)

    def _parts(self, query: exp.Query, batch: Input | None) -> list[dict[str, Input]]:
        """A batch in parts of the driver's limit, if the query can be evaluated event by event."""
        if not isinstance(batch, pa.Table) or carry_order(query) is None:
            return [{}]
        size = self._limits.driver_rows
        return [{BATCH: batch.slice(start, size)} for start in range(0, max(batch.num_rows, 1), size)]
