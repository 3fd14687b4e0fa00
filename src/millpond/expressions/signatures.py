"""Declarations of functions: the type rule of their calls, their evaluation, and their description for the docs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from millpond.expressions.failures import NotCompilable
from millpond.expressions.frames import Datum, Frame, Node, as_array
from millpond.expressions.rules import Operands, Rule, Signature, fits, types_of
from millpond.expressions.terms import Interval


@dataclass(frozen=True)
class Site:
    """The call of a kernel: the types of its arguments and of its result, and the constant arguments."""

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

    `make` gets the site and returns the function of the arguments; it raises NotCompilable if it does not support them.
    `fallible`: a row's value can make it fail. `lazy`: an argument after a NULL one is not evaluated, as in Spark.
    `first`: the argument that Spark evaluates first, when it is not the leftmost one.
    """

    make: Callable[[Site], Run]
    fallible: bool = False
    lazy: bool = True
    first: int = 0


@dataclass(frozen=True)
class SpecialForm:
    """A form that determines itself which arguments are evaluated on which rows."""

    make: Form


def simple(function: Run, *, fallible: bool = False) -> Kernel:
    """A kernel that does not depend on its site."""
    return Kernel(lambda _: function, fallible=fallible)


def on_arrays(function: Callable[[pa.Array], pa.Array]) -> Run:
    """A function of one array, for a scalar too."""

    def run(value: Datum) -> Datum:
        if isinstance(value, pa.Scalar):
            return function(pa.array([value.as_py()], value.type))[0]
        return function(value)

    return run


def python_values(value: Datum, length: int) -> list[Any]:
    """The values as Python values; NotCompilable for a date or time that Python cannot represent."""
    try:
        return [value.as_py()] * length if isinstance(value, pa.Scalar) else value.to_pylist()
    except (ValueError, OverflowError) as error:
        raise NotCompilable("a date or time outside of the years 1 to 9999") from error


def elementwise(function: Callable[..., Any], type_: pa.DataType, nullable: Sequence[int] = ()) -> Run:
    """A Python function applied row by row to Python values. It is not called for a row with a NULL, unless the NULL is
    at one of the `nullable` positions."""

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


@dataclass(frozen=True)
class Function:
    """A function by its rule; `gives` is its result type where that does not depend on the arguments.

    `kernel` evaluates it (without one, Spark does), and `meaning` is its line in docs/functions.md.
    """

    rule: Rule
    gives: pa.DataType | None = None
    kernel: Kernel | SpecialForm | None = None
    meaning: str = ""

    def by(self, kernel: Kernel | SpecialForm, meaning: str = "") -> Function:
        """The function evaluated by a kernel."""
        return replace(self, kernel=kernel, meaning=meaning)

    def by_columns(self, function: Run, meaning: str = "", *, fallible: bool = False, lazy: bool = True) -> Function:
        """The function evaluated by a function of whole columns that does not depend on types."""
        return self.by(Kernel(lambda _: function, fallible=fallible, lazy=lazy), meaning)

    def by_rows(self, function: Callable[..., Any], meaning: str = "", *, fallible: bool = False) -> Function:
        """The function evaluated row by row in Python, NULL for a NULL."""
        return self.by(Kernel(lambda site: elementwise(function, site.gives), fallible=fallible), meaning)


Functions = Mapping[str, Function]


def takes(gives: pa.DataType, *wanted: pa.DataType, optional: int = 0) -> Function:
    """A function of fixed types; the last `optional` arguments may be missing."""

    def rule(operands: Operands) -> Signature | None:
        if not len(wanted) - optional <= len(operands) <= len(wanted):
            return None
        pairs = list(zip(operands, wanted, strict=False))
        return Signature(wanted[: len(operands)], gives) if all(fits(o, t) for o, t in pairs) else None

    return Function(rule, gives)


def returns(type_: pa.DataType) -> Function:
    """A function whose type does not depend on its arguments, evaluated by Spark."""
    return Function(lambda operands: Signature(tuple(types_of(operands)), type_), type_)


def named(function: Function, *names: str) -> dict[str, Function]:
    """Several functions of one declaration."""
    return dict.fromkeys(names, function)
