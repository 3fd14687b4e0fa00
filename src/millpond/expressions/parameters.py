"""The values that stand for `?`: their SQL types, and their order in a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from millpond.errors import TableError
from millpond.expressions.coercion import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, VOID
from millpond.expressions.failures import NotCompilable
from millpond.expressions.literals import BIGINT_MAX, INT_MAX, decimal_constant
from millpond.expressions.terms import Constant
from millpond.schema import TIMESTAMP

# A bool is an int and a datetime a date in Python: the narrower class comes first.
_TYPES: tuple[tuple[type, pa.DataType], ...] = (
    (bool, BOOLEAN),
    (str, STRING),
    (float, DOUBLE),
    (bytes, BINARY),
    (datetime, TIMESTAMP),
    (date, DATE),
)

Shape = tuple[tuple[pa.DataType, int], ...]


def constant(value: object) -> Constant:
    """A Python value as a literal; a whole number is an INT when it fits, a time without a zone is UTC."""
    if value is None:
        return Constant(None, VOID)
    if isinstance(value, datetime) and value.tzinfo is None:
        return Constant(value.replace(tzinfo=UTC), TIMESTAMP)
    for class_, type_ in _TYPES:
        if isinstance(value, class_):
            return Constant(value, type_)
    if isinstance(value, int) and abs(value) <= BIGINT_MAX:
        return Constant(value, INT if abs(value) <= INT_MAX else BIGINT)
    if isinstance(value, int | Decimal):
        return _decimal(Decimal(value))
    raise NotCompilable(f"a parameter of type {type(value).__name__}")


def _decimal(value: Decimal) -> Constant:
    try:
        return decimal_constant(value)
    except (ArithmeticError, ValueError, pa.ArrowInvalid) as error:
        raise TableError("MP411", "A parameter is not a number of at most 38 digits.") from error


def scalar(value: Constant) -> pa.Scalar:
    return pa.scalar(value.value, value.type)


def shape(constants: Sequence[Constant]) -> Shape:
    """What an expression compiled for these values depends on: their types, and the digits of whole numbers."""
    return tuple((c.type, len(str(abs(c.value))) if isinstance(c.value, int) else 0) for c in constants)


# Nodes that keep their parts in another order than they are written in.
_WRITTEN_ORDER: dict[type[exp.Expression], tuple[str, ...]] = {
    exp.StrPosition: ("substr", "this", "position"),
    exp.Trim: ("expression", "this"),
}


def in_order(expr: exp.Expression) -> Iterator[exp.Placeholder]:
    """Every `?` of an expression in the order of the text."""
    if isinstance(expr, exp.Placeholder):
        yield expr
        return
    keys = _WRITTEN_ORDER.get(type(expr))
    parts = expr.iter_expressions() if keys is None else filter(None, map(expr.args.get, keys))
    for part in parts:
        yield from in_order(part)


def placeholders(expr: exp.Expression) -> dict[int, int]:
    """The position of each `?` of a text, by the identity of its node."""
    return {id(node): place for place, node in enumerate(in_order(expr))}


def matched(expr: exp.Expression, parameters: Sequence[object]) -> tuple[Constant, ...]:
    """The parameters of an expression as literals; MP411 unless there is one for each `?`."""
    return counted(len(placeholders(expr)), parameters)


def counted(wanted: int, parameters: Sequence[object]) -> tuple[Constant, ...]:
    """The parameters as literals; MP411 unless there are as many as wanted."""
    if wanted != len(parameters):
        raise TableError(
            "MP411",
            f"The condition has {wanted} '?' and {len(parameters)} parameters were given.",
            hint="Give one parameter for each '?', in order.",
        )
    return tuple(constant(value) for value in parameters)
