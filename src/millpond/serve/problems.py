"""Errors over HTTP: as JSON with a status, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from millpond.errors import (
    ConflictError,
    ConstraintError,
    InputError,
    MillpondError,
    Place,
    Problem,
    RunError,
    Severity,
)
from millpond.redact import redact

# The status of errors with these codes; that of others follows from their class.
STATUS = {
    "MP411": 400,
    "MP703": 503,
    "MP710": 503,
    "MP713": 409,
    "MP714": 504,
}
BUG_HINT = "See the terminal of the app; run it with --debug."


class RequestError(RunError):
    """A request that is rejected before anything is done: MP715, or a more specific code."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        hint: str = "",
        code: str = "MP715",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code, message, hint=hint)
        self.status = status
        self.headers = dict(headers or {})


def status_of(error: MillpondError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, RequestError):
        return error.status
    if error.code in STATUS:
        return STATUS[error.code]
    if isinstance(error, InputError):
        return 400
    return 409 if isinstance(error, ConflictError | ConstraintError) else 500


def coded(error: Exception) -> MillpondError:
    """One of our errors unchanged; any other is a bug, whose text is shown without secrets."""
    if isinstance(error, MillpondError):
        return error
    return RunError("MP999", redact(f"{type(error).__name__}: {error}"), hint=BUG_HINT)


def error_json(error: MillpondError) -> dict[str, Any]:
    """The JSON of an error: each problem as `--json` prints it, with its excerpt and caret."""
    problems = [{**problem.as_json(), **_excerpt(problem.place)} for problem in error.problems]
    return {"exit_code": error.exit_code, "problems": problems}


def _excerpt(place: Place | None) -> dict[str, Any]:
    found = asdict(place) if place is not None else {}
    return {"length": found.get("length"), "excerpt": found.get("excerpt")}


def error_of(answer: Mapping[str, Any]) -> MillpondError:
    """The error that was received."""
    kind = InputError if answer["exit_code"] == InputError.exit_code else RunError
    return kind.of(_problem(found) for found in answer["problems"])


def _problem(found: Mapping[str, Any]) -> Problem:
    place = None
    if found["file"] is not None:
        place = Place(found["file"], found["line"], found["column"], found["length"], found["excerpt"])
    return Problem(found["code"], found["message"], place, found["hint"] or "", Severity(found["severity"]))
