"""A `?` stands in queries that are asked with parameters, never in what a stream drives."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.checks.subject import Subject


def check(subject: Subject) -> Iterator[Problem]:
    for planned in subject.planned:
        if planned.bound is not None and planned.drivers:
            for node in planned.bound.query.find_all(exp.Placeholder):
                at = subject.at(node, planned.statement.place)
                hint = "Write the value, or a variable: ${NAME}, given by --set NAME=value."
                yield subject.problem("MP101", "Nobody gives a value for ? here.", at, hint)
