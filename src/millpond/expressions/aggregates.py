"""Aggregates of all rows or of groups of rows, with Spark's types and values; what Spark alone can give is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from millpond.errors import TableError
from millpond.expressions import group_choices, group_lists, group_moments, group_sums
from millpond.expressions.calls import read
from millpond.expressions.casts import as_type
from millpond.expressions.coercion import BIGINT, VOID, is_number
from millpond.expressions.compile import Compiled, NotCompilable, compile_expression
from millpond.expressions.failures import RowError, row_failed
from millpond.expressions.frames import Names
from millpond.expressions.group_inputs import Aggregate, Inputs, Overflow
from millpond.expressions.library import signature
from millpond.expressions.rules import Operand
from millpond.expressions.sort_ranks import Numbers, combined, ranks
from millpond.expressions.terms import Call, Constant
from millpond.schema import Schema, type_name
from millpond.sql.dialect import MILLPOND

AGGREGATES: dict[str, Aggregate] = {
    **group_sums.AGGREGATES,
    **group_choices.AGGREGATES,
    **group_lists.AGGREGATES,
    **group_moments.AGGREGATES,
}


@dataclass(frozen=True)
class Groups:
    """Which group each row is in, as numbers from 0 to `count` - 1."""

    numbers: Numbers
    count: int


@dataclass(frozen=True)
class CompiledAggregate:
    """An aggregate ready to be computed over tables; `columns` are those that it reads, `arguments` what it is taken of
    (nothing for COUNT(*)), in the types `takes`; `constants` are the values of those that are literals. `order` is that
    of WITHIN GROUP."""

    expression: exp.Expression
    name: str
    type: pa.DataType
    columns: tuple[str, ...]
    arguments: tuple[Compiled, ...]
    takes: tuple[pa.DataType, ...]
    constants: tuple[Any, ...]
    distinct: bool = False
    ignores_nulls: bool = False
    order: tuple[tuple[Compiled, bool], ...] = ()

    def evaluate(self, table: pa.Table, parameters: Sequence[object] = ()) -> pa.Scalar:
        """The aggregate of all rows of a table; TableError MP408 when it does not fit its type."""
        return self.of_groups(table, Groups(np.zeros(table.num_rows, np.int64), 1), parameters)[0]

    def of_groups(self, table: pa.Table, groups: Groups, parameters: Sequence[object] = ()) -> pa.Array:
        """One value per group. TableError MP408 when one does not fit its type; NotCompilable for values that only
        Spark orders or adds as Spark does."""
        text = self.expression.sql(dialect=MILLPOND)
        try:
            inputs = self._inputs(table, groups, parameters)
            found = AGGREGATES[self.name].compute(inputs)
        except Overflow as error:
            raise row_failed(text, f"the result does not fit {type_name(self.type)}") from error
        except RowError as error:
            raise row_failed(text, str(error), error.sentence) from error
        return found if found.type == self.type else found.cast(self.type)

    def _inputs(self, table: pa.Table, groups: Groups, parameters: Sequence[object]) -> Inputs:
        values = [_whole(argument.evaluate(table, parameters)) for argument in self.arguments]
        given = tuple(as_type(v, t) for v, t in zip(values, self.takes, strict=True))
        order = tuple((_whole(key.evaluate(table, parameters)), descending) for key, descending in self.order)
        inputs = Inputs(groups.numbers, groups.count, given, self.type, self.constants, self.ignores_nulls, order)
        if not self.distinct:
            return inputs
        known = inputs.known()
        codes = combined([known.groups, *(ranks(v) for v in known.arguments)], len(known.groups))
        _, firsts = np.unique(codes, return_index=True)
        return known.take(np.sort(firsts))


def compile_aggregate(
    expr: exp.Expression, schema: Schema, parameters: Sequence[object] = (), names: Names | None = None
) -> CompiledAggregate:
    """Compiles one call such as SUM(price * quantity), or raises NotCompilable."""
    inner, order, ignores_nulls = _unwrapped(expr)
    call = read(inner)
    refusal = NotCompilable(f"the aggregate {expr.sql(dialect=MILLPOND)}")
    if not isinstance(call, Call) or call.name not in AGGREGATES:
        raise refusal
    written: list[Any] = list(inner.iter_expressions())
    distinct = bool(written) and isinstance(written[0], exp.Distinct)
    written = [*written[0].expressions, *written[1:]] if distinct else written
    if call.name == "count" and len(written) == 1 and isinstance(written[0], exp.Star):
        return CompiledAggregate(expr, "count", BIGINT, (), (), (), ())
    if call.name in ("first", "last") and len(written) == 2 and isinstance(written[1], exp.Boolean):
        ignores_nulls, written = ignores_nulls or bool(written[1].this), written[:1]
    arguments = tuple(compile_expression(argument, schema, parameters, names) for argument in written)
    keys = tuple((compile_expression(o.this, schema, parameters, names), bool(o.args.get("desc"))) for o in order)
    terms = [read(argument) for argument in written]
    takes = _typed(call, terms, arguments, keys, refusal)
    constants = tuple(term.value if isinstance(term, Constant) else None for term in terms)
    columns = dict.fromkeys(column for part in (*arguments, *(k for k, _ in keys)) for column in part.columns)
    own = takes[0] if len(takes[0]) == len(arguments) else takes[0][: len(arguments)]
    return CompiledAggregate(
        expr, call.name, takes[1], tuple(columns), arguments, own, constants, distinct, ignores_nulls, keys
    )


def _unwrapped(expr: exp.Expression) -> tuple[exp.Expression, list[exp.Ordered], bool]:
    """The call alone, the order of WITHIN GROUP, and whether it has IGNORE NULLS."""
    inner: Any = expr
    order: list[exp.Ordered] = []
    ignores_nulls = False
    while isinstance(inner, exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        if isinstance(inner, exp.WithinGroup):
            order = list(inner.expression.expressions)
        ignores_nulls = ignores_nulls or isinstance(inner, exp.IgnoreNulls)
        inner = inner.this
    return inner, order, ignores_nulls


def _typed(
    call: Call,
    terms: Sequence[Any],
    arguments: Sequence[Compiled],
    keys: Sequence[tuple[Compiled, bool]],
    refusal: NotCompilable,
) -> tuple[tuple[pa.DataType, ...], pa.DataType]:
    """What the arguments are cast to, and the type of the result."""
    aggregate = AGGREGATES[call.name]
    types = [argument.type for argument in arguments]
    if VOID in types or not aggregate.accepts(types, bool(keys)):
        raise refusal
    operands = [Operand(t, term) for t, term in zip(types, terms, strict=True)]
    if keys and aggregate.of_order:
        operands = [Operand(keys[0][0].type, call), *operands]
    found = signature(Call(call.name, tuple(terms), call.source), operands)
    if found is None:
        raise refusal
    # Numbers are added up as they are: SUM of INT is exact, and AVG makes doubles of them itself.
    wanted = tuple(t if is_number(t) or aggregate.of_order else w for t, w in zip(types, found.takes, strict=False))
    return wanted, found.gives


def _whole(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


__all__ = ["AGGREGATES", "CompiledAggregate", "Groups", "TableError", "compile_aggregate"]
