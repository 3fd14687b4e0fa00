"""What the commands say on standard error: problems for people, or as JSON lines for programs."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Iterable
from typing import TextIO

from millpond.errors import Problem


def print_problems(problems: Iterable[Problem], *, json: bool = False, file: TextIO | None = None) -> None:
    """Each problem once, in order, with its excerpt; to standard error unless told otherwise."""
    out = file or sys.stderr
    for problem in dict.fromkeys(problems):
        print(problem_line(problem) if json else str(problem), file=out)
    out.flush()


def problem_line(problem: Problem) -> str:
    """A problem as one JSON object; `place` is the file:line:column by which people and editors find it."""
    place = str(problem.place) if problem.place else None
    return json_module.dumps({"event": "problem", **problem.as_json(), "place": place}, ensure_ascii=False)


def counted(count: int, noun: str) -> str:
    """`1 table`, `3 tables`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
