"""How a function is declared: how its calls are typed, how it is evaluated, and its line in the docs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from millpond.expressions.kernels import Kernel, Run, SpecialForm, elementwise
from millpond.expressions.rules import Operands, Rule, Signature, fits, types_of


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
        """The function evaluated by a function of whole columns that needs to know no types."""
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
    """A function whose arguments are not looked at: typed here, evaluated by Spark."""
    return Function(lambda operands: Signature(tuple(types_of(operands)), type_), type_)


def named(function: Function, *names: str) -> dict[str, Function]:
    """Several functions of one declaration."""
    return dict.fromkeys(names, function)
