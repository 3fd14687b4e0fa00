"""The rows of a table by the name of its backend."""

from __future__ import annotations

import time
from pathlib import Path

from millpond import registry
from millpond.contracts.table import BackendPlugin, TableSpec
from millpond.errors import NotYetError
from millpond.tables.memory import Clock
from millpond.tables.rows import TableRows


def rows_of(spec: TableSpec, clock: Clock = time.time, folder: Path | None = None) -> TableRows:
    """An empty table of a backend, in the folder of its store; MP308 for a wrong name, MP901 for one that
    cannot run yet."""
    plugin: BackendPlugin = registry.find("backend", spec.backend)
    if plugin.make is None:
        message = f"The backend '{spec.backend}' is understood but cannot run yet."
        raise NotYetError("MP901", message, hint="Use 'backend' = 'memory'.")
    rows: TableRows = plugin.make(spec, clock, folder) if plugin.files else plugin.make(spec, clock)
    return rows
