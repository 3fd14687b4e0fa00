"""Spark as the judge of expressions: the value of each over a table, or that it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.errors import TableError
from millpond.expressions.compile import NotCompilable, compile_expression
from millpond.schema import Schema
from millpond.sql.parser import parse_expression

VIEW = "drawn_rows"
# The one code with which an expression may fail on a row.
FAILURES = {"MP408": "fails"}

# Whole subtrees are evaluated twice or dropped by these: what remains is evaluated, and can fail, as it is written.
AS_WRITTEN = {
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}"
        for rule in (
            "ConstantFolding",
            "NullPropagation",
            "BooleanSimplification",
            "SimplifyConditionals",
            "SimplifyBinaryComparison",
            "PushFoldableIntoBranches",
            "ReplaceNullWithFalseInPredicate",
            "NullDownPropagation",
            "OptimizeIn",
        )
    ),
}


@dataclass(frozen=True)
class Outcome:
    """What became of an expression: `values`, or the word for what happened instead."""

    word: str
    values: pa.Array | None = None
    reason: str = ""

    def same(self, other: Outcome) -> bool:
        if self.values is None or other.values is None:
            return self.word == other.word
        if self.values.type != other.values.type:
            return False
        if pa.types.is_floating(self.values.type) or pa.types.is_nested(self.values.type):
            return repr(self.values.to_pylist()) == repr(other.values.to_pylist())
        return bool(self.values.equals(other.values))

    def described(self) -> str:
        if self.values is None:
            return f"{self.word} {self.reason[:200]}"
        return f"{self.values.type} {self.values!s:.2000}"


def ours(text: str, rows: pa.Table) -> Outcome:
    """What Arrow makes of an expression."""
    try:
        compiled = compile_expression(parse_expression(text), Schema.from_arrow(rows.schema))
        found = compiled.evaluate(rows).combine_chunks()
    except NotCompilable as error:
        return Outcome("refused", reason=str(error))
    except TableError as error:
        return Outcome(FAILURES[error.code], reason=error.problems[0].message)
    assert found.type == compiled.type
    assert len(found) == rows.num_rows
    found.validate(full=True)
    return Outcome("value", found)


def spark_alone(spark: Any, text: str) -> Outcome:
    """Whether one expression fails, or is no SQL at all; quicker than its values."""
    try:
        query = spark.sql(f"SELECT {text} AS c FROM {VIEW}")
    except Exception as error:
        return Outcome("invalid", reason=str(error))
    try:
        query.collect()
    except Exception as error:
        return Outcome("fails", reason=str(error))
    return Outcome("value")


def sparks(spark: Any, texts: Sequence[str]) -> list[Outcome]:
    """What Spark makes of expressions over the view; halves are tried apart when one of them fails."""
    try:
        return _together(spark, texts)
    except Exception as error:
        if len(texts) > 1:
            half = len(texts) // 2
            return sparks(spark, texts[:half]) + sparks(spark, texts[half:])
        found = spark_alone(spark, texts[0])
        return [found if found.values is None and found.word != "value" else Outcome("fails", reason=str(error))]


def _together(spark: Any, texts: Sequence[str]) -> list[Outcome]:
    columns = ", ".join(f"{text} AS c{place}" for place, text in enumerate(texts))
    found = spark.sql(f"SELECT {columns} FROM {VIEW}").toArrow()
    return [Outcome("value", _plain(found.column(place).combine_chunks())) for place in range(len(texts))]


def _plain(array: pa.Array) -> pa.Array:
    """Spark's Arrow says "never NULL" where it knows; the type is what counts here."""
    type_ = nullable(array.type)
    return array if type_ == array.type else pa.array(array.to_pylist(), type_)


def nullable(type_: pa.DataType) -> pa.DataType:
    """The type with all of its elements, values and fields open to NULL."""
    if pa.types.is_list(type_):
        return pa.list_(nullable(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(nullable(type_.key_type), nullable(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, nullable(field.type)) for field in type_])
    return type_
