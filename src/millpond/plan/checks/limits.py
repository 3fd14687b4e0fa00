"""Check: LIMIT and OFFSET are whole numbers, not negative."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.checks.subject import Subject


def check(subject: Subject) -> Iterator[Problem]:
    for tree in subject.trees():
        for node in tree.find_all(exp.Limit, exp.Offset):
            value = node.expression
            if isinstance(value, exp.Neg) or (isinstance(value, exp.Literal) and not value.is_int):
                word = "LIMIT" if isinstance(node, exp.Limit) else "OFFSET"
                yield subject.problem(
                    "MP206", f"{word} must be a whole number, not negative.", value, f"Write {word} 10."
                )
