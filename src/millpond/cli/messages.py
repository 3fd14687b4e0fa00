"""What the commands say on standard error: problems for people, or as JSON lines for programs."""

from __future__ import annotations

import json as json_module
import sys
import traceback
from collections.abc import Collection, Iterable
from typing import TextIO

from millpond.errors import MillpondError, Problem
from millpond.redact import redact


def print_problems(problems: Iterable[Problem], *, json: bool = False, file: TextIO | None = None) -> None:
    """Each problem once, in order, with its excerpt; to standard error unless told otherwise."""
    out = file or sys.stderr
    for problem in dict.fromkeys(problems):
        print(problem_line(problem) if json else str(problem), file=out)
    out.flush()


def print_errors(errors: Iterable[BaseException], *, json: bool, debug: bool, told: Collection[Problem] = ()) -> None:
    """Each problem of the errors once, to standard error, but not those in `told`; with `debug` also where they were
    raised."""
    found = list(errors)
    problems = (problem for error in found for problem in problems_of(error))
    print_problems((problem for problem in problems if problem not in told), json=json)
    if debug:
        for error in found:
            print(redact("".join(traceback.format_exception(error))), file=sys.stderr)


def problems_of(error: BaseException) -> tuple[Problem, ...]:
    """What an error says: our own have said it, any other is a bug of ours."""
    if isinstance(error, MillpondError):
        return error.problems
    text = redact(" ".join(str(error).split()))
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    hint = "Run it again with --debug to see where."
    return (Problem("MP999", f"This is a bug in Millpond: {said}", hint=hint),)


def problem_line(problem: Problem) -> str:
    """A problem as one JSON object; `place` is the file:line:column by which people and editors find it."""
    place = str(problem.place) if problem.place else None
    return json_module.dumps({"event": "problem", **problem.as_json(), "place": place}, ensure_ascii=False)


def counted(count: int, noun: str) -> str:
    """`1 table`, `3 tables`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
