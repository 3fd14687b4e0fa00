"""Check: a statement does not write to the source that it reads, which would never end."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from millpond.errors import Place, Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.context import Planned
from millpond.plan.model import StepKind
from millpond.settings import Settings
from millpond.sql.statements import Insert
from millpond.uris import Uri

GLOB = "*?["


def check(subject: Subject) -> Iterator[Problem]:
    for planned in subject.planned:
        sink = subject.sinks.get(planned.target) if planned.kind is StepKind.SINK else None
        if sink is None:
            continue
        for driver in subject.behind(planned.drivers):
            if driver not in subject.sources:
                continue
            source = subject.sources[driver].plan
            if _same(source.spec.uri, sink.spec.uri, subject.settings):
                message = f"This statement reads {source.spec.shown} and writes to it, which would never end."
                yield subject.problem("MP213", message, _place(planned), "Write to another topic or folder.")


def _place(planned: Planned) -> Place:
    statement = planned.statement
    return statement.target.place if isinstance(statement, Insert) else statement.place


def _same(source: Uri, sink: Uri, settings: Settings) -> bool:
    if source.scheme != sink.scheme or source.scheme == "terminal":
        return False
    if source.scheme == "file":
        folder, target = _folder(source.path), posixpath.normpath(sink.path or ".")
        return target in (folder, posixpath.normpath(source.path))
    return _address(source, settings) == _address(sink, settings)


def _folder(path: str) -> str:
    """The folder that a path reads: of a glob or file, or the folder itself."""
    head = path
    while any(c in head for c in GLOB):
        head = posixpath.dirname(head)
    if head == path and "." in posixpath.basename(path):
        head = posixpath.dirname(path)
    return posixpath.normpath(head or ".")


def _address(uri: Uri, settings: Settings) -> tuple[str, str]:
    """Hosts and path; a single name is a topic on the brokers of the settings."""
    if uri.scheme == "kafka" and not uri.path:
        return str(settings.get("kafka.brokers")), uri.hosts
    return uri.hosts, uri.path
