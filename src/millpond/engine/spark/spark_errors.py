"""Spark's exceptions as Millpond's errors: a code and one sentence, without a stack trace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException
from sqlglot import exp

from millpond.engine.spark.process import is_ending, java_gone
from millpond.errors import FlowError, MillpondError, Place, SinkError
from millpond.plan.missing import FAILED as MISSING
from millpond.redact import redact
from millpond.sql.conditions import far_column

# Spark's error class -> our code and sentence. Everything else is MP701 with Spark's first sentence.
KNOWN = {
    "SCALAR_SUBQUERY_TOO_MANY_ROWS": ("MP702", "A scalar subquery returned more than one row."),
    "DIVIDE_BY_ZERO": ("MP701", "Division by zero."),
    "ARITHMETIC_OVERFLOW": ("MP701", "A number is too large for its type."),
    "NUMERIC_VALUE_OUT_OF_RANGE": ("MP701", "A number is too large for its type."),
    "CAST_INVALID_INPUT": ("MP701", "A value cannot be cast."),
    "CAST_OVERFLOW": ("MP701", "A value is too large for the type it is cast to."),
    "INVALID_ARRAY_INDEX": ("MP701", "An array has no such element."),
    "CANNOT_LOAD_STATE_STORE": ("MP804", "Spark's state of a join of two streams is damaged."),
}
HINTS = {
    "MP702": "Make sure that at most one row matches, or use MAX(...), or LIMIT 1 in the subquery.",
    "MP804": "Restore the state directory from a copy, or start again with another --state.",
    "MP701": "Guard it with CASE, NULLIF or try_cast, or set 'on.error' = 'dead-letter'.",
}
# The maximal length of a message, in characters.
MESSAGE_MAX = 500
# An error of our own code in Spark's Python workers; the text may begin with one of our codes.
_IN_WORKER = re.compile(r"thrown from the Python worker:.*\n[\w.]+: (?:(MP\d{3}) )?([^\n]+)", re.S)
# The hint for errors that are not caused by a row.
WRONG = "Correct the statement: Spark cannot run it, whatever the rows are."
# Spark's advice is about its own settings; ours is in the hint.
_ADVICE = re.compile(r"\s(?:Use `try_|If necessary set|To return NULL|To tolerate)")
_PASSED_ON = re.compile(r"Exception thrown in awaitResult|^java\.util\.concurrent\.ExecutionException")
_CAUSES_MAX = 10
_STOPPED = "Cannot call methods on a stopped SparkContext"
_CLASS = re.compile(r"\[([A-Z][A-Z0-9_]+)(?:\.[A-Z0-9_.]+)?\]\s*(.*?)(?:SQLSTATE|==|\n|$)", re.S)


def is_gone(error: BaseException) -> bool:
    """Whether the cause of an error is that Spark has ended or is ending."""
    if isinstance(error, Py4JNetworkError) or is_ending():
        return True
    text = _text(error)
    return text is None or _STOPPED in text


def translate(error: BaseException, place: Place | None = None, several: str = "") -> MillpondError:
    """An error with a code: ours unchanged, one of Spark's by its class, anything else as a bug (MP999). `several` is
    the row for which a scalar subquery returned several rows, if that is known."""
    ours = _find(error, MillpondError)
    if isinstance(ours, MillpondError):
        return ours.at(place)
    text = None if is_gone(error) else _text(error)
    if text is None:
        return java_gone().at(place)
    if "No space left on device" in text:
        return SinkError(
            "MP805", "The disk is full.", place=place, hint="Free some space and start again; nothing was lost."
        )
    if not isinstance(error, PySparkException | Py4JJavaError):
        return FlowError(
            "MP999", f"{type(error).__name__}: {redact(text)[:300]}", place=place, hint="Please report this."
        )
    in_worker = _IN_WORKER.search(text)
    if in_worker is not None:
        code = in_worker.group(1) or "MP701"
        return FlowError(code, redact(in_worker.group(2))[:500], place=place, hint=HINTS.get(code, ""))
    found = _CLASS.search(text)
    name, detail = (found.group(1), " ".join(found.group(2).split())) if found else ("", text.strip().splitlines()[0])
    if detail.startswith(MISSING):
        hint = "Add the row, or choose another 'on.missing'."
        return FlowError(MISSING, redact(detail.removeprefix(f"{MISSING} ").strip())[:500], place=place, hint=hint)
    code, sentence = KNOWN.get(name, ("MP701", ""))
    detail = _ADVICE.split(detail)[0].strip()
    is_whole = bool(sentence) and (code == "MP702" or detail.startswith(sentence))
    message = sentence if is_whole else f"{sentence} {detail}".strip()
    if code == "MP702" and several:
        message = f"{message} It did for {several}."
    written_wrong = isinstance(error, AnalysisException) and name not in KNOWN
    return FlowError(code, redact(message)[:MESSAGE_MAX], place=place, hint=WRONG if written_wrong else HINTS[code])


@contextmanager
def coded() -> Iterator[None]:
    """Errors raised inside the block are converted to ours, with a code."""
    try:
        yield
    except MillpondError:
        raise
    except Exception as error:
        raise translate(error) from error


def too_far(query: exp.Expr) -> MillpondError:
    """The error of a subquery that reads a column of a query more than one level out, which Spark does not support, if
    Arrow cannot evaluate it either: it uses something else that Arrow does not support, or a row makes it fail."""
    column = far_column(query)
    name = f"{column.table}.{column.name}" if column is not None else ""
    message = f"A subquery reads {name} of a query two levels further out, which is not supported in this form."
    hint = (
        "Pass the column through the query between, or join its tables in one subquery. If it works for other rows, a "
        "value fails: more than one row for a scalar subquery, a division by zero, an overflow."
    )
    return FlowError("MP224", message, hint=hint)


def _text(error: BaseException) -> str | None:
    """The text of an error; for one that only passes on the failure of another thread, the text of that. Some texts are
    fetched from Java: None if Java does not respond."""
    try:
        return _asked_text(error)
    except Exception:
        return None


def _asked_text(error: BaseException) -> str:
    java = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    text = str(error) if java is None or not isinstance(error, Py4JJavaError) else str(java.toString())
    for _ in range(_CAUSES_MAX):
        if java is None or not _PASSED_ON.search(text):
            break
        java = java.getCause()
        text = text if java is None else str(java.toString())
    return text


def _find(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    """The first error of a kind in the chain of causes, which may be a cycle."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, kind):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None
