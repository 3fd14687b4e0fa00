"""Terms, the simplified form of expressions: literals, columns, parameters, and calls with one name each."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from millpond.sql.dialect import MILLPOND

UNKNOWN = "?"


@dataclass(frozen=True)
class Interval:
    """An INTERVAL literal; `whole_days` if it has no unit below a day."""

    months: int = 0
    microseconds: int = 0
    whole_days: bool = False


@dataclass(frozen=True)
class Constant:
    """A literal value with its Spark type."""

    value: object
    type: pa.DataType


@dataclass(frozen=True)
class Reference:
    """A column by name."""

    column: exp.Column


@dataclass(frozen=True)
class Parameter:
    """A `?`; positions are counted over the whole text."""

    node: exp.Placeholder = field(compare=False)


@dataclass(frozen=True)
class Call:
    """A call of a function or operator by its canonical name; `to` is the target of a cast or the field of a struct."""

    name: str
    arguments: tuple[Term, ...]
    source: exp.Expression = field(compare=False, repr=False)
    to: pa.DataType | str | None = None

    def __str__(self) -> str:
        return self.source.sql(dialect=MILLPOND)


@dataclass(frozen=True)
class Variable:
    """A parameter of a lambda within its body, in lower case."""

    name: str


@dataclass(frozen=True)
class Lambda:
    """A lambda such as x -> x + 1, which can only be an argument of a call."""

    names: tuple[str, ...]
    body: Term


Term = Constant | Reference | Parameter | Call | Variable | Lambda


def unknown(expr: exp.Expression) -> Call:
    """An unknown expression, which only Spark can type and evaluate."""
    return Call(UNKNOWN, (), expr)


def lambdas_of(call: Call) -> list[Lambda]:
    """The arguments of a call that are lambdas."""
    return [argument for argument in call.arguments if isinstance(argument, Lambda)]
