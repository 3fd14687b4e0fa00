"""Evaluation by Arrow as tests call it: the rows, or None where Spark has to evaluate the query."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.evaluator import Inputs
from millpond.expressions.failures import NotCompilable
from millpond.relational.answer import ArrowEvaluator
from millpond.relational.compiled import QueryCache


def answered(query: exp.Query, inputs: Inputs, cache: QueryCache | None = None) -> pa.Table | None:
    """Return the rows, or None if Arrow does not support the query."""
    try:
        return ArrowEvaluator(cache).evaluate(query, inputs)
    except NotCompilable:
        return None
