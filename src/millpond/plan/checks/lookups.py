"""Check: a table whose rows are looked up in its source is joined by equality, and never read as a whole by a flow."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.errors import Place, Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.model import Access, AccessKind, TableKind


def check(subject: Subject) -> Iterator[Problem]:
    for flow in subject.flows:
        for step in flow.steps:
            yield from _whole(subject, step.reads, step.place)
    for table in subject.tables.values():
        if table.kind is TableKind.VIEW:
            for name in (a.table for a in table.reads if _is_looked_up(subject, a.table)):
                message = f"'{table.name}' cannot be refreshed: changes of {_shown(subject, name)} are not noticed."
                hint = "Load it with 'load' = 'full', or join it in a statement over a stream."
                yield subject.problem("MP516", message, table.place, hint)


def _whole(subject: Subject, reads: tuple[Access, ...], place: Place) -> Iterator[Problem]:
    for access in reads:
        if access.how is AccessKind.SNAPSHOT and _is_looked_up(subject, access.table):
            message = f"{_shown(subject, access.table)} has 'load' = 'lookup', so it cannot be read as a whole."
            hint = "Compare its columns with those of the stream by =, or load it: 'load' = 'full'."
            yield subject.problem("MP516", message, place, hint)


def _is_looked_up(subject: Subject, name: str) -> bool:
    if name in subject.sources:
        opened = subject.sources[name]
        return opened.plugin.looks_up(opened.plan.spec.values)
    table = subject.tables.get(name.lower())
    return table is not None and table.kind is TableKind.LOOKUP


def _shown(subject: Subject, name: str) -> str:
    return f"'{subject.sources[name].plan.spec.shown}'" if name in subject.sources else f"Table '{name}'"
