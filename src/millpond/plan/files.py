"""The files that tables keep their rows in: named from the SQL file's folder, and never left out where needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from millpond import registry
from millpond.errors import MillpondError
from millpond.options import FILE, FOLDER, Option
from millpond.plan.findings import Findings
from millpond.plan.model import TablePlan


def with_files(table: TablePlan, base: Path, findings: Findings) -> TablePlan:
    """The table with the paths of its backend's files made whole; MP305 where one is missing."""
    values = dict(table.spec.values)
    for option in _files(table.spec.backend):
        given = values.get(option.name)
        if option.kind is FOLDER and isinstance(given, bool | None):
            continue
        if given:
            values[option.name] = str(base / str(given).removeprefix("file://").removeprefix("file:"))
        else:
            message = f"Table '{table.name}' has the backend {table.spec.backend} and no '{option.name}'."
            hint = f"Name a file: WITH ('backend' = '{table.spec.backend}', '{option.name}' = '{table.name}.db')."
            findings.error("MP305", message, table.place, hint)
    return replace(table, spec=replace(table.spec, values=values))


def _files(backend: str) -> list[Option]:
    try:
        return [o for o in registry.find("backend", backend).options if o.kind in (FILE, FOLDER)]
    except MillpondError:
        # A wrong name has been reported where it stands.
        return []
