"""Extracts the keys of a condition such as `id = 1` or `id IN (...)`, so that a table can look up rows by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from itertools import product
from math import prod
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.errors import TableError
from millpond.expressions import coercion
from millpond.expressions.coercion import INTEGERS, plain
from millpond.expressions.compile import compile_expression
from millpond.expressions.decimals import fitted
from millpond.expressions.failures import NotCompilable
from millpond.expressions.frames import Names
from millpond.expressions.parameters import in_order
from millpond.schema import Column, Schema, type_name
from millpond.sql.conditions import all_of

KEYS_MAX = 10_000
_NOTHING = Schema(())
_ONE_ROW = pa.table({"one": pa.array([1])})
# Expressions that may differ from one evaluation to the next, or that only Spark can evaluate.
_UNSETTLED = (exp.Column, exp.Query, exp.CurrentDate, exp.CurrentTimestamp, exp.Anonymous)


@dataclass(frozen=True)
class Lookup:
    """The only keys that can satisfy a condition, the remaining condition for their rows, and its parameters."""

    keys: list[tuple[Any, ...]]
    remainder: exp.Expression | None
    parameters: tuple[object, ...]


def key_lookup(
    expr: exp.Expression, key_columns: Sequence[Column], parameters: Sequence[object] = (), names: Names | None = None
) -> Lookup | None:
    """The lookup that finds every row for which the condition is true, or None if all rows must be read.

    Each key column must be compared by = or IN with constant values; a value that no key of the column's type can
    equal, such as 1.5 for an INT, gives no key. The other conjuncts are the remainder, evaluated only for the rows
    found."""
    order = {id(node): place for place, node in enumerate(in_order(expr))}
    given = _Given(tuple(parameters), order, names)
    parts: list[Any] = list(all_of(expr))
    used: dict[int, list[Any]] = {}
    for column in key_columns:
        found = next(((at, v) for at, p in enumerate(parts) if (v := given.values(p, column)) is not None), None)
        if found is None or found[0] in used:
            return None
        used[found[0]] = found[1]
    if prod(len(values) for values in used.values()) > KEYS_MAX:
        return None
    rest = [part for at, part in enumerate(parts) if at not in used]
    remainder = reduce(_both, (part.copy() for part in rest)) if rest else None
    left_over = tuple(value for part in rest for value in given.parameters_of(part))
    return Lookup(list(product(*used.values())), remainder, left_over)


def _both(left: exp.Expression, right: exp.Expression) -> exp.Expression:
    return exp.And(this=left, expression=right)


@dataclass(frozen=True)
class _Given:
    parameters: tuple[object, ...]
    order: dict[int, int]
    names: Names | None

    def parameters_of(self, expr: exp.Expression) -> list[object]:
        return [self.parameters[self.order[id(node)]] for node in in_order(expr)]

    def values(self, part: exp.Expression, column: Column) -> list[Any] | None:
        """The values with which a conjunct compares a column, without duplicates; None for other conjuncts."""
        sides = self._sides(part, column)
        if sides is None:
            return None
        try:
            return self._keys(sides, column)
        except (NotCompilable, TableError):
            return None

    def _sides(self, part: exp.Expression, column: Column) -> list[exp.Expression] | None:
        """The expressions with which the column is compared."""
        if isinstance(part, exp.EQ):
            left, right = _bare(part.this), _bare(part.args["expression"])
            if self._is_column(left, column):
                return [right]
            return [left] if self._is_column(right, column) else None
        if isinstance(part, exp.In) and part.expressions and self._is_column(_bare(part.this), column):
            return [_bare(item) for item in part.expressions]
        return None

    def _is_column(self, expr: exp.Expression, column: Column) -> bool:
        if not isinstance(expr, exp.Column) or not isinstance(expr.this, exp.Identifier):
            return False
        parts = [part.name.lower() for part in expr.parts]
        if len(parts) == 2 and (self.names or {}).get(parts[0], {}).get(parts[1]) == column.name:
            return True
        return parts == [column.name.lower()]

    def _keys(self, sides: Sequence[exp.Expression], column: Column) -> list[Any]:
        """The values of the key's type that equal one of the expressions; NULL, and values that no key can equal, give
        none."""
        if column.type is None or any(side.find(*_UNSETTLED) is not None for side in sides):
            raise NotCompilable("not a constant value")
        key_type = plain(column.type)
        kinds = [compile_expression(side, _NOTHING, self.parameters_of(side)).type for side in sides]
        compared_as = coercion.common([key_type, *kinds])
        if compared_as is None or not _is_faithful(key_type, compared_as):
            raise NotCompilable("the key is cast before it is compared")
        values = (self._value(side, compared_as) for side in sides)
        return list(dict.fromkeys(key for v in values if v is not None for key in _converted(v, key_type)))

    def _value(self, side: exp.Expression, type_: pa.DataType) -> Any:
        target = exp.DataType.build(type_name(type_), dialect="spark")
        parameters = self.parameters_of(side)
        compiled = compile_expression(exp.Cast(this=side.copy(), to=target), _NOTHING, parameters)
        return compiled.evaluate(_ONE_ROW, parameters)[0].as_py()


def _bare(expr: exp.Expression) -> exp.Expression:
    return _bare(expr.this) if isinstance(expr, exp.Paren) else expr


def _is_faithful(key_type: pa.DataType, both: pa.DataType) -> bool:
    """Whether the cast for the comparison keeps different keys different and never fails."""
    if key_type == both:
        # A float key may be NaN or negative zero, whose equality differs from that of their bits.
        return key_type not in coercion.FLOATS
    if key_type in INTEGERS and both in INTEGERS:
        return True
    if not pa.types.is_decimal(both) or not (key_type in INTEGERS or pa.types.is_decimal(key_type)):
        return False
    narrow = coercion.as_decimal(key_type)
    return bool(both.scale >= narrow.scale and both.precision - both.scale >= narrow.precision - narrow.scale)


def _converted(value: Any, key_type: pa.DataType) -> list[Any]:
    if key_type in INTEGERS:
        top = 2 ** (key_type.bit_width - 1)
        return [int(value)] if value == int(value) and -top <= value < top else []
    if pa.types.is_decimal(key_type):
        exact = Decimal(value)
        found = fitted(exact, key_type)
        return [found] if found is not None and found == exact else []
    return [value]
