"""Check: settings whose validity depends on the statements of the app."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

from millpond.errors import Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.model import StepKind
from millpond.plan.over_streams import has_over
from millpond.settings import is_local
from millpond.sql.statements import SetOption


def check(subject: Subject) -> Iterator[Problem]:
    yield from _storage(subject)
    for statement in subject.statements:
        if isinstance(statement, SetOption) and statement.name.key == "time.zone" and not _is_zone(statement.value):
            message = f"There is no time zone '{statement.value}'."
            yield subject.problem("MP307", message, statement.name.place, "Write UTC or a name such as Europe/Berlin.")
    for planned in subject.planned:
        updates = planned.kind is StepKind.SINK and planned.drivers and planned.options.get("late.rows") == "update"
        if updates and not (planned.bound is not None and has_over(planned.bound.query)):
            message = "'late.rows' = 'update' is only for tables: rows in a sink cannot be updated."
            yield subject.problem("MP302", message, planned.statement.place, "Use dead-letter or drop.")


def _storage(subject: Subject) -> Iterator[Problem]:
    """A cluster requires a shared folder. A folder is the only storage so far."""
    master, storage = subject.settings["master"], subject.settings["storage"]
    places = {s.name.key: s.name.place for s in subject.statements if isinstance(s, SetOption)}
    if storage is None and not is_local(master):
        message = f"The master '{master}' is a cluster: its executors need a folder that they share with the driver."
        hint = "Name it with --storage /shared/folder."
        yield Problem("MP905", message, places.get("master"), hint)
    elif storage is not None and "://" in storage:
        message = f"The storage '{storage}' is not a folder: other storage is not supported in this version."
        yield Problem("MP901", message, places.get("storage"), "Mount it, and name the folder: --storage /mnt/folder.")
    elif storage is not None and not Path(storage).is_absolute():
        message = f"The storage '{storage}' is a relative path, which is another folder for each executor."
        yield Problem("MP905", message, places.get("storage"), "Write an absolute path.")


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return False
    return True
