"""Conditions and SET expressions over a table's rows: compiled to Arrow where that agrees with Spark, else by Spark."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.table import Fallback
from millpond.errors import BindError, TableError
from millpond.expressions.compile import Compiled, NotCompilable, compile_expression
from millpond.plan.functions import has_aggregate
from millpond.schema import Column, Schema
from millpond.sql.parser import parse_expression
from millpond.suggest import did_you_mean
from millpond.tables.casting import cast_array

# Texts kept parsed, least recently used out; expressions kept compiled for each table, oldest out.
_PARSED_MAX = 1024
_COMPILED_MAX = 256

Reader = Callable[[Sequence[str]], pa.Table]


@dataclass(frozen=True)
class Condition:
    """A parsed condition, for any table and any parameters."""

    text: str
    expression: exp.Expression

    def __str__(self) -> str:
        return self.text

    @cached_property
    def equalities(self) -> tuple[str, ...]:
        """The columns of a condition of the form `a = ? AND b = ?`, in order; none for any other condition."""
        parts = list(self.expression.flatten()) if isinstance(self.expression, exp.And) else [self.expression]
        columns = [_compared_with_placeholder(part) for part in parts]
        return tuple(c for c in columns if c) if all(columns) else ()


def _compared_with_placeholder(part: object) -> str:
    if not isinstance(part, exp.EQ) or not isinstance(part.expression, exp.Placeholder):
        return ""
    column = part.this
    return column.name.lower() if isinstance(column, exp.Column) and len(column.parts) == 1 else ""


@lru_cache(_PARSED_MAX)
def parsed(text: str) -> Condition:
    """The condition of a text; MP1xx when it cannot be read."""
    return Condition(text, parse_expression(text))


def as_condition(condition: Any) -> Condition | None:
    """A condition from what a caller gave: nothing, text, an expression, or a condition already."""
    if condition is None or isinstance(condition, Condition):
        return condition
    if isinstance(condition, str):
        return parsed(condition)
    if isinstance(condition, exp.Expression):
        return Condition(condition.sql("spark"), condition)
    hint = "Give SQL text such as \"tier = 'GOLD'\", or what table.condition(text) returned."
    raise TableError("MP409", f"A condition cannot be {type(condition).__name__}.", hint=hint)


def _check_of_one_row(expression: exp.Expression) -> None:
    """MP220 and MP224 for what a row of the table alone cannot tell."""
    if has_aggregate(expression):
        message = f"'{expression.sql('spark')}' is evaluated for each row, where an aggregate has no meaning."
        raise BindError("MP220", message, hint="Use table.scalar, or app.query with GROUP BY and HAVING.")
    other = next((table.name for table in expression.find_all(exp.Table)), None)
    if other is not None:
        message = f"A condition on one table cannot read '{other}'."
        raise BindError("MP224", message, hint="Use app.query or app.execute, where subqueries read all tables.")


class Evaluator:
    """Evaluates expressions over a table's rows; `fallback` takes what Arrow cannot do exactly."""

    def __init__(self, schema: Schema, fallback: Fallback | None) -> None:
        self.schema = schema
        self.fallback = fallback
        # Compiled once per parsed expression, which the compiled one holds, so that its identity stays its own.
        self._compiled: OrderedDict[int, Compiled] = OrderedDict()

    def values(self, expression: exp.Expression, read: Reader, parameters: Sequence[Any]) -> pa.Array:
        """One value per row; `read` gives the rows with the columns asked for."""
        try:
            compiled = self._compile(expression, parameters)
            names = compiled.columns or self.schema.names[:1]
            result = compiled.evaluate(read(names), parameters)
        except NotCompilable as error:
            _check_of_one_row(expression)
            result = self.by_spark(expression, read, parameters, error)
        return result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result

    def over(self, expression: exp.Expression, rows: pa.Table) -> pa.Array:
        """One value per row of rows at hand."""
        return self.values(expression, rows.select, ())

    def check(self, expression: exp.Expression, parameters: Sequence[Any]) -> None:
        """Tell what is wrong with an expression that no row is left for: whether it is told must not depend on rows."""
        try:
            self._compile(expression, parameters)
        except NotCompilable:
            _check_of_one_row(expression)
            self._check_columns(expression)

    def by_spark(
        self, expression: exp.Expression, read: Reader, parameters: Sequence[Any], why: NotCompilable
    ) -> pa.Array:
        """What Spark makes of an expression over the rows; MP409 where there is no Spark."""
        if self.fallback is None:
            message = f"'{expression.sql('spark')}' needs Spark: {why}."
            raise TableError("MP409", message, hint="Use it in an app, which has a Spark session.") from why
        self._check_columns(expression)
        return self.fallback(expression, read(self.schema.names), parameters)

    def _check_columns(self, expression: exp.Expression) -> None:
        """MP202 for a name that is no column, before Spark is asked, which would tell it in its own words."""
        own = {name.name for lambda_ in expression.find_all(exp.Lambda) for name in lambda_.expressions}
        for column in expression.find_all(exp.Column):
            if not column.table and column.name not in self.schema and column.name not in own:
                hint = did_you_mean(column.name, self.schema.names) or f"It has: {', '.join(self.schema.names)}."
                raise BindError("MP202", f"There is no column '{column.name}'.", hint=hint)

    def holds(self, expression: exp.Expression, read: Reader, parameters: Sequence[Any]) -> np.ndarray[Any, Any]:
        """For which rows a condition is true; NULL is not."""
        values = self.values(expression, read, parameters)
        if pa.types.is_null(values.type):
            return np.zeros(len(values), dtype=np.bool_)
        if not pa.types.is_boolean(values.type):
            message = f"'{expression.sql('spark')}' is not a condition: it is neither true nor false."
            raise TableError("MP409", message, hint="Compare it with something.")
        return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False))

    def default(self, column: Column, rows: int) -> pa.Array:
        """A column's default, as many times as there are rows; NULL when it has none."""
        if column.default is None or not rows:
            return pa.nulls(rows, column.type)
        # Evaluated for each row: two rows must not share what uuid() gave.
        blank = pa.table([pa.nulls(rows, c.type) for c in self.schema], schema=self.schema.arrow())
        return cast_array(self.values(parsed(column.default).expression, blank.select, ()), column)

    def _compile(self, expression: exp.Expression, parameters: Sequence[Any]) -> Compiled:
        known = self._compiled.get(id(expression))
        if known is None:
            known = compile_expression(expression, self.schema, parameters)
            self._compiled[id(expression)] = known
            if len(self._compiled) > _COMPILED_MAX:
                self._compiled.popitem(last=False)
        return known
