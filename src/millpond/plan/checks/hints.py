"""The hints LOOKUP and SNAPSHOT name tables of their query."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.errors import Problem
from millpond.plan.access import wrong_hints
from millpond.plan.checks.subject import Subject


def check(subject: Subject) -> Iterator[Problem]:
    for _, select in subject.selects():
        for name, word in wrong_hints(select):
            message = f"The hint {word} names '{name.name}', which is no table of this SELECT."
            tables = [i.alias for i in select.scope.items if not i.drivers and not i.alias.startswith("_")]
            hint = f"Its tables are: {', '.join(tables)}." if tables else "It reads no table."
            yield subject.problem("MP226", message, name, hint)
