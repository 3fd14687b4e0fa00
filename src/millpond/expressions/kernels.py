"""What a function's implementation is: how it is called, and what it may do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.expressions.failures import NotCompilable
from millpond.expressions.frames import Datum, Frame, Node
from millpond.expressions.terms import Interval


@dataclass(frozen=True)
class Site:
    """Where a kernel is used: the types of its arguments, of its result, and the constant arguments."""

    takes: tuple[pa.DataType, ...]
    gives: pa.DataType
    constants: tuple[Any, ...] = ()

    def constant(self, position: int) -> Any:
        """The value of an argument that must be a literal."""
        found = self.constants[position] if position < len(self.constants) else None
        if found is None:
            raise NotCompilable("an argument is not a literal")
        return found if isinstance(found, Interval) else found.as_py()


Run = Callable[..., Datum]
Form = Callable[[Sequence[Node], Site], Callable[[Frame], Datum]]


@dataclass(frozen=True)
class Kernel:
    """A function over evaluated arguments, NULL for NULL.

    `make` gets the site and returns the function of the arguments; it refuses what it cannot do with NotCompilable.
    `fallible`: a row's value can make it fail. `lazy`: an argument after a NULL one is not evaluated, as in Spark.
    `first`: the argument that Spark evaluates first, when it is not the leftmost one.
    """

    make: Callable[[Site], Run]
    fallible: bool = False
    lazy: bool = True
    first: int = 0


@dataclass(frozen=True)
class SpecialForm:
    """A form that decides itself which arguments are evaluated on which rows."""

    make: Form


def simple(function: Run, *, fallible: bool = False) -> Kernel:
    """A kernel that needs nothing of its site."""
    return Kernel(lambda _: function, fallible=fallible)


def on_arrays(function: Callable[[pa.Array], pa.Array]) -> Run:
    """A function of one array, for a scalar too."""

    def run(value: Datum) -> Datum:
        if isinstance(value, pa.Scalar):
            return function(pa.array([value.as_py()], value.type))[0]
        return function(value)

    return run


def elementwise(function: Callable[..., Any], type_: pa.DataType) -> Run:
    """A Python function applied row by row, not called for a row with a NULL; values are Python's."""

    def run(*arguments: Datum) -> Datum:
        if all(isinstance(a, pa.Scalar) for a in arguments):
            values = [a.as_py() for a in arguments]
            return pa.scalar(None if None in values else function(*values), type_)
        length = next(len(a) for a in arguments if isinstance(a, pa.Array))
        if any(isinstance(a, pa.Scalar) and not a.is_valid for a in arguments):
            return pa.nulls(length, type_)
        columns = [[a.as_py()] * length if isinstance(a, pa.Scalar) else a.to_pylist() for a in arguments]
        rows = zip(*columns, strict=True)
        return pa.array([None if None in row else function(*row) for row in rows], type_)

    return run
