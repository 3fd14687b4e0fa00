"""Check: hints exist, and LOOKUP and SNAPSHOT refer to tables of their query."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.errors import Problem, did_you_mean
from millpond.plan.checks.subject import Subject
from millpond.plan.table_access import HINTS, SPARK_HINTS, empty_hints, wrong_hints


def check(subject: Subject) -> Iterator[Problem]:
    for _, select in subject.selects():
        for call in empty_hints(select):
            word = call.name.upper()
            if word.lower() in HINTS:
                yield subject.problem(
                    "MP226", f"The hint {word} requires a table.", call, f"Write /*+ {word}(alias) */."
                )
                continue
            known = [*map(str.upper, HINTS), *SPARK_HINTS]
            hint = did_you_mean(word, known) or "Use LOOKUP(alias) or SNAPSHOT(alias)."
            yield subject.problem("MP226", f"There is no hint {word}.", call, hint)
        for name, word in wrong_hints(select):
            message = f"The hint {word} refers to '{name.name}', which is not a table of this SELECT."
            tables = [i.alias for i in select.scope.items if not i.drivers and not i.alias.startswith("_")]
            hint = f"Its tables are: {', '.join(tables)}." if tables else "It reads no table."
            yield subject.problem("MP226", message, name, hint)
