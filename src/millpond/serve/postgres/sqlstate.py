"""Errors as PostgreSQL's clients expect them: SQLSTATE, message, hint and position."""

from __future__ import annotations

from collections.abc import Mapping

from millpond.errors import MillpondError

READ_ONLY = "25006"
# The state of each code that has one of its own, and of the others by the first digit of their codes.
STATES = {
    "MP201": "42P01",
    "MP202": "42703",
    "MP203": "42702",
    "MP225": "23502",
    "MP401": "23502",
    "MP402": "23505",
    "MP405": "40001",
    "MP310": "42601",
    "MP710": "57P01",
    "MP714": "57014",
    "MP715": "42501",
    "MP901": "0A000",
}
CLASSES = {"1": "42601", "2": "42000", "3": "22023", "4": "23000", "5": "58000", "6": "58000", "7": "22000"}
INTERNAL = "XX000"


class ClientError(Exception):
    """An error of the session itself, or one of the app with all that is sent of it."""

    def __init__(self, state: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.fields: Mapping[str, str] = {"S": "ERROR", "V": "ERROR", "C": state, "M": message, "H": hint}

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> ClientError:
        made = cls(fields["C"], fields["M"])
        made.fields = fields
        return made


def state_of(code: str) -> str:
    return STATES.get(code) or CLASSES.get(code[2:3], INTERNAL)


def error_fields(error: Exception, sql: str, start: int) -> Mapping[str, str]:
    """The fields of an error; `start` is where its statement begins in the text that the client sent."""
    if isinstance(error, ClientError):
        return error.fields
    assert isinstance(error, MillpondError)
    problem = error.problems[0]
    position = ""
    if problem.place is not None and sql and problem.place.line >= 1:
        lines = sql[start:].splitlines(keepends=True)
        before = sum(len(line) for line in lines[: problem.place.line - 1])
        position = str(start + before + problem.place.column)
    return {
        "S": "ERROR",
        "V": "ERROR",
        "C": state_of(problem.code),
        "M": f"{problem.message} ({problem.code})",
        "H": problem.hint or "",
        "P": position,
    }
