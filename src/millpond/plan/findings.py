"""Findings: the problems of a file, each once, in the order of their places."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from millpond.errors import MillpondError, Place, Problem, Severity
from millpond.sql.parser import place_of
from millpond.sql.text import SourceText

At = exp.Expr | Place | None


class Findings:
    """Collects problems; planning continues after each, so that all mistakes of a file are reported."""

    def __init__(self, source: SourceText) -> None:
        self._source = source
        self._found: dict[tuple[str, Place | None, str], Problem] = {}
        self._reported: dict[object, tuple[str, Place | None, str]] = {}

    def place(self, at: At) -> Place | None:
        """The place of a node of a query, or the place itself."""
        return place_of(at, self._source) if isinstance(at, exp.Expr) else at

    def add(self, problem: Problem) -> None:
        self._found.setdefault(_key(problem), problem)

    def extend(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            self.add(problem)

    def error(self, code: str, message: str, at: At, hint: str = "", once: object = None) -> None:
        self._add_once(Problem(code, message, self.place(at), hint), once)

    def warn(self, code: str, message: str, at: At, hint: str = "") -> None:
        self.add(Problem(code, message, self.place(at), hint, Severity.WARNING))

    def note(self, code: str, message: str, at: At, hint: str = "", once: object = None) -> None:
        self._add_once(Problem(code, message, self.place(at), hint, Severity.NOTE), once)

    def _add_once(self, problem: Problem, once: object) -> None:
        """Add a problem; of several with an equal `once`, only the first in the text is kept."""
        earlier = self._found.get(self._reported[once]) if once in self._reported else None
        if earlier is not None and _position(earlier) <= _position(problem):
            return
        if earlier is not None:
            del self._found[self._reported[once]]
        self.add(problem)
        if once is not None:
            self._reported[once] = _key(problem)

    def catch(self, error: MillpondError, at: At = None) -> None:
        """Add the problems of an error, with the given place if they have none."""
        self.extend(error.at(self.place(at)).problems)

    @property
    def errors(self) -> int:
        """The number of errors so far, by which callers detect whether planning something has failed."""
        return sum(p.severity is Severity.ERROR for p in self._found.values())

    def sorted(self) -> tuple[Problem, ...]:
        """The problems by place; those without a place come first, and equal ones keep their order."""
        return by_place(self._found.values())


def by_place(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Problems in the order of the text; those without a place come first."""
    return tuple(sorted(problems, key=_position))


def _key(problem: Problem) -> tuple[str, Place | None, str]:
    return problem.code, problem.place, problem.message


def _position(problem: Problem) -> tuple[int, int]:
    return (problem.place.line, problem.place.column) if problem.place else (0, 0)
