"""What a function's implementation is: how it is called, and what it may do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.expressions.failures import NotCompilable
from millpond.expressions.frames import Datum, Frame, Node, as_array
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


def python_values(value: Datum, length: int) -> list[Any]:
    """The values as Python's; NotCompilable for a date or time that Python has not."""
    try:
        return [value.as_py()] * length if isinstance(value, pa.Scalar) else value.to_pylist()
    except (ValueError, OverflowError) as error:
        raise NotCompilable("a date or time outside of the years 1 to 9999") from error


def elementwise(function: Callable[..., Any], type_: pa.DataType, nullable: Sequence[int] = ()) -> Run:
    """A Python function applied row by row; values are Python's. For a row with a NULL it is not called, unless the
    NULL is at one of the `nullable` places."""

    def with_nulls(row: tuple[Any, ...]) -> Any:
        missing = any(value is None and place not in nullable for place, value in enumerate(row))
        return None if missing else function(*row)

    def run(*arguments: Datum) -> Datum:
        length = next((len(a) for a in arguments if isinstance(a, pa.Array)), 1)
        single = all(isinstance(a, pa.Scalar) for a in arguments)
        gone = (isinstance(a, pa.Scalar) and not a.is_valid for i, a in enumerate(arguments) if i not in nullable)
        if any(gone):
            return pa.scalar(None, type_) if single else pa.nulls(length, type_)
        rows = zip(*(python_values(a, length) for a in arguments), strict=True)
        found = [with_nulls(r) for r in rows] if nullable else [None if None in r else function(*r) for r in rows]
        return pa.scalar(found[0], type_) if single else pa.array(found, type_)

    return run


def on_columns(function: Callable[..., pa.Array]) -> Run:
    """A function of arrays, for scalars too."""

    def run(*arguments: Datum) -> Datum:
        length = next((len(a) for a in arguments if isinstance(a, pa.Array)), 1)
        found = function(*[as_array(a, length, a.type) for a in arguments])
        return found[0] if all(isinstance(a, pa.Scalar) for a in arguments) else found

    return run
