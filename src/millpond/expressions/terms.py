"""The plain parts of an expression: literals, columns, parameters, and calls by one name each."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

UNKNOWN = "?"


@dataclass(frozen=True)
class Interval:
    """An INTERVAL literal; `whole_days` when it names no unit below a day."""

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
    """A function or operator by its name here; `to` is the target of a cast or the field of a struct."""

    name: str
    arguments: tuple[Term, ...]
    source: exp.Expression = field(compare=False, repr=False)
    to: pa.DataType | str | None = None

    def __str__(self) -> str:
        return self.source.sql(dialect="spark")


@dataclass(frozen=True)
class Variable:
    """A parameter of a lambda within its body, in lower case."""

    name: str


@dataclass(frozen=True)
class Lambda:
    """A function written in place, such as x -> x + 1; it is an argument of a call and nothing else."""

    names: tuple[str, ...]
    body: Term


Term = Constant | Reference | Parameter | Call | Variable | Lambda


def unknown(expr: exp.Expression) -> Call:
    """What is not known here: typed and evaluated by nobody but Spark."""
    return Call(UNKNOWN, (), expr)


def lambdas_of(call: Call) -> list[Lambda]:
    """The arguments of a call that are lambdas."""
    return [argument for argument in call.arguments if isinstance(argument, Lambda)]
