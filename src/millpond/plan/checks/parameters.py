"""Check: `?` is used only in queries with parameters, not in the statements of an app."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.model import OneShot

MESSAGE = "A parameter ? is not allowed here, because it gets no value."
HINT = "Write the value, or a variable ${NAME} that is set by --set NAME=value."


def check(subject: Subject) -> Iterator[Problem]:
    for planned in subject.planned:
        if planned.bound is not None and planned.drivers:
            for node in planned.bound.query.find_all(exp.Placeholder):
                at = subject.at(node, planned.statement.place)
                yield subject.problem("MP101", MESSAGE, at, HINT)


def check_app(one_shots: Iterable[OneShot]) -> Iterator[Problem]:
    """The same for one-shot statements of an app's file, which unlike those of a query never get values."""
    for shot in one_shots:
        trees = [
            shot.query,
            shot.condition,
            *(value for _, value in shot.assignments),
            *(v for r in shot.rows for v in r),
        ]
        if any(tree.find(exp.Placeholder) for tree in trees if tree is not None):
            yield Problem("MP101", MESSAGE, shot.place, HINT)
