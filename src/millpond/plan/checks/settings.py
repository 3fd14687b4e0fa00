"""Settings whose values only the whole app can judge."""

from __future__ import annotations

from collections.abc import Iterator
from zoneinfo import ZoneInfo

from millpond.errors import Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.model import StepKind
from millpond.sql.statements import SetOption


def check(subject: Subject) -> Iterator[Problem]:
    for statement in subject.statements:
        if isinstance(statement, SetOption) and statement.name.key == "time.zone" and not _is_zone(statement.value):
            message = f"There is no time zone '{statement.value}'."
            yield subject.problem("MP307", message, statement.name.place, "Write UTC or a name such as Europe/Berlin.")
    for planned in subject.planned:
        if planned.kind is StepKind.SINK and planned.drivers and planned.options.get("late.rows") == "update":
            message = "'late.rows' = 'update' is for tables: what a sink has got cannot be changed."
            yield subject.problem("MP302", message, planned.statement.place, "Use dead-letter or drop.")


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return False
    return True
