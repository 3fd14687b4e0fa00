"""The rows of a table in Delta, for the store: changes wait in the log until they are merged."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.contracts.remote_table import RowChange
from millpond.contracts.table import Clock, TableFiles, TableSpec
from millpond.errors import MillpondError, TableError
from millpond.tables.remote.reader import RemoteVersion
from millpond.tables.remote.rows import Connect, RemoteRows


class DeltaRows(RemoteRows):
    """A change is final by the log record; the log must keep it until the Delta table has it. A table in a folder is
    opened with what the log has, so that its rows can be moved elsewhere."""

    def __init__(self, connect: Connect, spec: TableSpec, clock: Clock, folder: Path | None) -> None:
        self._path = str(spec.values["path"])
        self._may_open = spec.recovered and "://" not in self._path
        super().__init__(connect, spec, clock, folder)

    @property
    def current(self) -> RemoteVersion:
        if self._may_open and self._remote is None:
            self._may_open = False
            # A table that cannot be opened is an error when the file defines it.
            with suppress(MillpondError):
                self._open()
        return self._current

    def define(self, spec: TableSpec) -> None:
        path = spec.values.get("path")
        if not spec.recovered and path and str(path) != self._path:
            message = f"The 'path' of table '{spec.name}' cannot be changed: its rows are in {self._path}."
            raise TableError("MP409", message, hint="Keep its 'path', or drop the table first.")
        super().define(spec)
        if self._remote is not None:
            table: Any = self._remote
            table.configure(spec.values)

    def files(self, version: RemoteVersion) -> TableFiles | None:
        """The files of the Delta table; in front of them what is not merged yet, as it was at the version."""
        self.settle()
        table: Any = self.remote
        found: TableFiles | None = table.files()
        if found is None:
            return None
        later, names = self.history.after(version.number), list(found.key)
        changed = [part.select(names) for change in later for part in (change.removed, change.added)]
        rows = self.history.undone(found.rows, version.number)
        return replace(found, hidden=pa.concat_tables([found.hidden, *changed]), rows=rows)

    @property
    def pending(self) -> tuple[RowChange, ...]:
        if self._remote is None:
            return super().pending
        table: Any = self._remote
        return (*super().pending, *table.unmerged())
