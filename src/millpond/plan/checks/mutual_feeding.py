"""Check: warns about two flows that feed each other's tables, which run in the order of the file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from millpond.errors import Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.flow_plans import reads, writes


def check(subject: Subject) -> Iterator[Problem]:
    for first, second in combinations(subject.flows, 2):
        into_second = writes(first) & (reads(second, subject.tables) - writes(second))
        into_first = writes(second) & (reads(first, subject.tables) - writes(first))
        if into_first and into_second:
            a, b = sorted(into_second)[0], sorted(into_first)[0]
            message = (
                f"The flows of {first.name} and {second.name} feed each other's tables: "
                f"{first.name} -> {a} -> {second.name} -> {b} -> {first.name}."
            )
            place = second.steps[0].place
            yield subject.warning("MP222", message, place, "They run in the order of the file.")
