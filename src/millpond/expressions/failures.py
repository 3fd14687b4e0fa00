"""How an expression fails on a row, and how it refuses to be evaluated here at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millpond.errors import TableError


class NotCompilable(Exception):
    """Arrow would not give exactly what Spark gives here: let Spark evaluate it.

    Raised while compiling, or while evaluating when only a value shows it (a year beyond 9999 as text).
    """


class SeveralRows(NotCompilable):
    """A scalar subquery finds several rows: `for_` tells of which row around, such as `user_id = 'u1'`. Spark decides
    whether the statement fails by it."""

    def __init__(self, for_: str = "") -> None:
        super().__init__("a scalar subquery that finds several rows")
        self.for_ = for_


class RowError(Exception):
    """A row made a function fail; compile.py adds which expression it was."""


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """An Arrow function whose complaint is about a row's value."""
    try:
        return function(*arguments)
    except pa.ArrowInvalid as error:
        raise RowError(_reason(str(error))) from error


def _reason(text: str) -> str:
    if "divide by zero" in text:
        return "division by zero"
    return "the result does not fit its type" if "overflow" in text else text


def row_failed(expression: str, reason: str) -> TableError:
    return TableError(
        "MP408",
        f"'{expression}' failed on a row: {reason}.",
        hint="Guard it, for instance CASE WHEN ... THEN ... END, TRY_CAST(...) or NULLIF(divisor, 0).",
    )
