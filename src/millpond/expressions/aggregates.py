"""One aggregate over a table: COUNT, SUM, AVG, MIN and MAX with Spark's types, decimals exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.expressions.calls import read
from millpond.expressions.coercion import BIGINT, DOUBLE, FLOATS, VOID
from millpond.expressions.compile import Compiled, NotCompilable, compile_expression
from millpond.expressions.decimals import EXACT, SPARK, fitted
from millpond.expressions.failures import row_failed
from millpond.expressions.library import signature
from millpond.expressions.names import Names
from millpond.expressions.rules import Operand
from millpond.expressions.terms import Call
from millpond.schema import Schema, type_name

Aggregate = Callable[[pa.Array, pa.DataType], Any]


@dataclass(frozen=True)
class CompiledAggregate:
    """An aggregate ready to be computed over tables; `columns` are those that it reads, `argument` is what it is taken
    of (None for COUNT(*))."""

    expression: exp.Expression
    type: pa.DataType
    columns: tuple[str, ...]
    argument: Compiled | None
    distinct: bool

    def evaluate(self, table: pa.Table, parameters: Sequence[object] = ()) -> pa.Scalar:
        """The aggregate of all rows of a table; TableError MP408 when it does not fit its type."""
        if self.argument is None:
            return pa.scalar(table.num_rows, BIGINT)
        values = _combined(self.argument.evaluate(table, parameters))
        if self.distinct:
            values = _distinct_values(values)
        known = values.drop_null()
        found = AGGREGATES[self.expression.key](known, self.type)
        if found is OVERFLOW:
            raise row_failed(self.expression.sql(dialect="spark"), f"the result does not fit {type_name(self.type)}")
        return found if isinstance(found, pa.Scalar) else pa.scalar(found, self.type)


def compile_aggregate(
    expr: exp.Expression, schema: Schema, parameters: Sequence[object] = (), names: Names | None = None
) -> CompiledAggregate:
    """Compiles one call such as SUM(price * quantity), or raises NotCompilable."""
    if expr.key not in AGGREGATES or any(v for k, v in expr.args.items() if k not in ("this", "big_int")):
        raise NotCompilable(f"'{expr.sql(dialect='spark')}' is evaluated by Spark")
    inner = expr.this
    if isinstance(inner, exp.Star):
        return CompiledAggregate(expr, BIGINT, (), None, False)
    distinct = isinstance(inner, exp.Distinct)
    if distinct and len(inner.expressions) != 1:
        raise NotCompilable("DISTINCT of several columns")
    argument = compile_expression(inner.expressions[0] if distinct else inner, schema, parameters, names)
    type_ = _result_type(expr, argument)
    return CompiledAggregate(expr, type_, argument.columns, argument, distinct)


def _result_type(expr: exp.Expression, argument: Compiled) -> pa.DataType:
    term = read(argument.expression)
    found = signature(Call(expr.key, (term,), expr), [Operand(argument.type, term)])
    if found is None or argument.type == VOID or pa.types.is_nested(argument.type):
        raise NotCompilable(f"'{expr.sql(dialect='spark')}' is evaluated by Spark")
    if expr.key != "count" and not (argument.type == found.takes[0] or _is_number(argument.type)):
        raise NotCompilable(f"'{expr.sql(dialect='spark')}' casts its argument")
    return found.gives


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _combined(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _distinct_values(values: pa.Array) -> pa.Array:
    """Each value once; Spark has one NaN and one zero."""
    if values.type in FLOATS:
        values = pc.add(values, pa.scalar(0.0, values.type))
    return values.unique()


class _Overflow:
    """The result does not fit its type."""


OVERFLOW = _Overflow()


def _count(values: pa.Array, _: pa.DataType) -> Any:
    return len(values)


def _sum(values: pa.Array, type_: pa.DataType) -> Any:
    if not len(values):
        return None
    if type_ == DOUBLE:
        return _double_sum(values)
    if type_ == BIGINT:
        whole = int(_decimal_sum(values.cast(BIGINT).cast(pa.decimal128(19, 0))))
        return whole if -(2**63) <= whole < 2**63 else OVERFLOW
    found = fitted(_decimal_sum(values), type_)
    return OVERFLOW if found is None else found


def _decimal_sum(values: pa.Array) -> Decimal:
    scale = values.type.scale
    unscaled = pc.sum(values.cast(pa.decimal256(76, scale))).as_py()
    return EXACT.create_decimal(unscaled)


def _double_sum(values: pa.Array) -> float:
    """One after another, as Spark adds them; numpy's own sum takes another order."""
    return float(np.cumsum(values.cast(DOUBLE, safe=False).to_numpy(zero_copy_only=False))[-1])


def _avg(values: pa.Array, type_: pa.DataType) -> Any:
    if not len(values):
        return None
    if type_ == DOUBLE:
        return _double_sum(values) / len(values)
    found = fitted(SPARK.divide(_decimal_sum(values), Decimal(len(values))), type_)
    return OVERFLOW if found is None else found


def _extreme(sign: int) -> Aggregate:
    def find(values: pa.Array, _: pa.DataType) -> Any:
        if not len(values):
            return None
        if values.type in FLOATS:
            return _float_extreme(values, sign)
        # Text is compared by bytes of UTF-8, which is what Arrow does too.
        return pc.max(values) if sign > 0 else pc.min(values)

    return find


def _float_extreme(values: pa.Array, sign: int) -> float:
    """NaN is above all numbers."""
    numbers = values.filter(pc.invert(pc.is_nan(values)))
    if len(numbers) == 0 or (sign > 0 and len(numbers) < len(values)):
        return float("nan")
    return float((pc.max(numbers) if sign > 0 else pc.min(numbers)).as_py())


AGGREGATES: dict[str, Aggregate] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "min": _extreme(-1),
    "max": _extreme(1),
}
