"""The files that tables keep their rows in: named from the SQL file's folder, or left to the backend."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from millpond import registry
from millpond.errors import MillpondError
from millpond.options import FILE, FOLDER, Option
from millpond.plan.model import TablePlan


def with_files(table: TablePlan, base: Path) -> TablePlan:
    """The table with the paths of its backend's files made whole; one that is not given is the backend's to choose."""
    values = dict(table.spec.values)
    for option in _files(table.spec.backend):
        given = values.get(option.name)
        if given and not isinstance(given, bool):
            values[option.name] = str(base / str(given).removeprefix("file://").removeprefix("file:"))
    return replace(table, spec=replace(table.spec, values=values))


def _files(backend: str) -> list[Option]:
    try:
        return [o for o in registry.find("backend", backend).options if o.kind in (FILE, FOLDER)]
    except MillpondError:
        # A wrong name has been reported where it stands.
        return []
