"""The errors of expressions: on a row, and because Arrow does not support the expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millpond.errors import TableError


class NotCompilable(Exception):
    """Arrow would not return exactly what Spark returns, so Spark must evaluate the expression.

    Raised during compilation, or during evaluation if it depends on a value (such as a year beyond 9999 as text).
    """


class SeveralRows(NotCompilable):
    """A scalar subquery returns several rows for the outer row `for_`, such as `user_id = 'u1'`. Spark determines
    whether that makes the statement fail."""

    def __init__(self, for_: str = "") -> None:
        super().__init__("a scalar subquery that returns several rows")
        self.for_ = for_


class RowError(Exception):
    """A function failed on a row; compile.py adds the expression. `sentence` is Spark's own description of the failure,
    "" if it is not known here."""

    def __init__(self, reason: str, sentence: str = "") -> None:
        super().__init__(reason)
        self.sentence = sentence


def division_by_zero() -> RowError:
    return RowError("division by zero", "Division by zero.")


def remainder_by_zero() -> RowError:
    return RowError("remainder by zero", "Remainder by zero.")


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call an Arrow function, and raise its error as that of a row."""
    try:
        return function(*arguments)
    except pa.ArrowInvalid as error:
        raise _row_error(str(error)) from error


def _row_error(text: str) -> RowError:
    if "divide by zero" in text:
        return division_by_zero()
    return RowError("the result is out of range" if "overflow" in text else text)


class RowFailed(TableError):
    """An expression failed on a row; `sentence` is Spark's own description of the failure, "" if it is not known."""

    sentence = ""


def row_failed(expression: str, reason: str, sentence: str = "") -> RowFailed:
    error = RowFailed(
        "MP408",
        f"'{expression}' failed on a row: {reason}.",
        hint="Handle such values, for example with CASE WHEN ... THEN ... END, TRY_CAST(...) or NULLIF(divisor, 0).",
    )
    error.sentence = sentence
    return error
