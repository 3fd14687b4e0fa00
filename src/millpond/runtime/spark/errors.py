"""Spark's exceptions in Millpond's words: a code, one sentence, no stack trace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException
from sqlglot import exp

from millpond.errors import FlowError, MillpondError, Place, SinkError
from millpond.plan.missing import FAILED as MISSING
from millpond.redact import redact
from millpond.runtime.spark.process import is_ending, java_gone
from millpond.sql.correlation import far_column

# Spark's error class -> our code and sentence. Everything else is MP701 with Spark's first sentence.
KNOWN = {
    "SCALAR_SUBQUERY_TOO_MANY_ROWS": ("MP702", "A subquery that stands for one value found more than one row."),
    "DIVIDE_BY_ZERO": ("MP701", "Division by zero."),
    "ARITHMETIC_OVERFLOW": ("MP701", "A number is too large for its type."),
    "NUMERIC_VALUE_OUT_OF_RANGE": ("MP701", "A number is too large for its type."),
    "CAST_INVALID_INPUT": ("MP701", "A value cannot be cast."),
    "CAST_OVERFLOW": ("MP701", "A value is too large for the type it is cast to."),
    "INVALID_ARRAY_INDEX": ("MP701", "An array has no such element."),
    "CANNOT_LOAD_STATE_STORE": ("MP804", "What Spark keeps of a join of two streams is damaged."),
}
HINTS = {
    "MP702": "Make sure that at most one row matches, or use MAX(...), or LIMIT 1 in the subquery.",
    "MP804": "Restore the state directory from a copy, or start over with another --state.",
    "MP701": "Guard it with CASE, NULLIF or try_cast, or set 'on.error' = 'dead-letter'.",
}
# What our own code in Spark's Python workers raised; the text may begin with a code of ours.
_IN_WORKER = re.compile(r"thrown from the Python worker:.*\n[\w.]+: (?:(MP\d{3}) )?([^\n]+)", re.S)
# What no row can be blamed for.
WRONG = "Correct the statement: Spark cannot run it as it is written, whatever the rows are."
# Spark's advice is about its own settings; ours is in the hint.
_ADVICE = re.compile(r"\s(?:Use `try_|If necessary set|To return NULL|To tolerate)")
_PASSED_ON = re.compile(r"Exception thrown in awaitResult|^java\.util\.concurrent\.ExecutionException")
_CAUSES_MAX = 10
_STOPPED = "Cannot call methods on a stopped SparkContext"
_CLASS = re.compile(r"\[([A-Z][A-Z0-9_]+)(?:\.[A-Z0-9_.]+)?\]\s*(.*?)(?:SQLSTATE|==|\n|$)", re.S)


def is_gone(error: BaseException) -> bool:
    """Whether an error came because there is no Spark any more to ask, or will not be in a moment."""
    if isinstance(error, Py4JNetworkError) or is_ending():
        return True
    text = _text(error)
    return text is None or _STOPPED in text


def translate(error: BaseException, place: Place | None = None, several: str = "") -> MillpondError:
    """An error of ours as it is, one of Spark's as ours; anything else is a bug and says so. `several` tells for which
    row a scalar subquery found several, if that is known."""
    ours = _find(error, MillpondError)
    if isinstance(ours, MillpondError):
        return ours.at(place)
    text = None if is_gone(error) else _text(error)
    if text is None:
        return java_gone().at(place)
    if "No space left on device" in text:
        return SinkError("MP805", "The disk is full.", place=place, hint="Make room and start again: nothing is lost.")
    if not isinstance(error, PySparkException | Py4JJavaError):
        return FlowError(
            "MP999", f"{type(error).__name__}: {redact(text)[:300]}", place=place, hint="Please report this."
        )
    in_worker = _IN_WORKER.search(text)
    if in_worker is not None:
        code = in_worker.group(1) or "MP701"
        return FlowError(code, redact(in_worker.group(2))[:500], place=place, hint=HINTS.get(code, ""))
    found = _CLASS.search(text)
    name, told = (found.group(1), " ".join(found.group(2).split())) if found else ("", text.strip().splitlines()[0])
    if told.startswith(MISSING):
        hint = "Add the row, or choose another 'on.missing'."
        return FlowError(MISSING, redact(told.removeprefix(f"{MISSING} ").strip())[:500], place=place, hint=hint)
    code, sentence = KNOWN.get(name, ("MP701", ""))
    told = _ADVICE.split(told)[0].strip()
    message = sentence if sentence and (code == "MP702" or told.startswith(sentence)) else f"{sentence} {told}".strip()
    if code == "MP702" and several:
        message = f"{message} It did for {several}."
    written_wrong = isinstance(error, AnalysisException) and name not in KNOWN
    return FlowError(code, redact(message)[:500], place=place, hint=WRONG if written_wrong else HINTS[code])


@contextmanager
def coded() -> Iterator[None]:
    """What is raised inside is an error of ours, with a code."""
    try:
        yield
    except MillpondError:
        raise
    except Exception as error:
        raise translate(error) from error


def too_far(query: exp.Expr) -> MillpondError:
    """What to say of a subquery that looks further out than Spark can see, where Arrow cannot answer it either: because
    of what else it asks, or because a row makes it fail."""
    column = far_column(query)
    name = f"{column.table}.{column.name}" if column is not None else ""
    message = f"A subquery reads {name} of a query two around it, and cannot be answered as it stands."
    hint = (
        "Pass the column through the query between, or join its tables in one subquery. If it is answered otherwise, a "
        "value fails: more than one row for a scalar subquery, a division by zero, an overflow."
    )
    return FlowError("MP224", message, hint=hint)


def _text(error: BaseException) -> str | None:
    """What an error says; one that only passes another thread's failure on says what that says. The text of some is
    asked from Java: None when that does not answer any more."""
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
    """The first of a kind in the chain of causes; a chain may be a circle."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, kind):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None
