"""The Delta backend: rows in a Delta Lake table, in a folder or in S3, which other programs may read.

Exactly once: a commit is decided by the commit log and merged into the Delta table later, with its number; changes of
the log whose number the Delta table lacks are merged after a restart. Readers here see a commit at once; others see it
after the merge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.contracts.remote_table import RowChange
from millpond.contracts.table import BackendPlugin, Capabilities, Clock, TableFiles, TableSpec
from millpond.errors import MillpondError, OptionError, SetupError, TableError
from millpond.objects.options import S3_OPTIONS, wrong_bucket
from millpond.options import FILE, POSITIVE, SPAN, Option
from millpond.tables.remote.rows import Connect, RemoteRows
from millpond.tables.remote.version_reader import RemoteVersion
from millpond.uris import parse_uri

# The folder of tables that have no path, in the folder of the store; with --storage a link into that.
FOLDER = "delta"


def path_of(spec: TableSpec, folder: Path | None) -> str:
    """Where the table is. A new one without path gets a folder of its own, because its predecessor may still be read
    when its columns change."""
    path = spec.values.get("path")
    if path:
        return str(path)
    if folder is None:
        message = f"Table '{spec.name}' has the backend delta but no 'path'."
        raise OptionError("MP305", message, hint="Set a folder: WITH ('backend' = 'delta', 'path' = 'history').")
    base, number = (folder / FOLDER).resolve(), 1
    while (path := base / (spec.name.lower() + (f"-{number}" if number > 1 else ""))).exists():
        number += 1
    return str(path)


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


def make(spec: TableSpec, clock: Clock, folder: Path | None) -> Any:
    try:
        from millpond.tables.delta.table import DeltaTable
    except ModuleNotFoundError as error:
        message = f"Delta requires the package '{error.name}', which is not installed."
        raise SetupError("MP309", message, hint="Run: pip install 'millpond[delta]'") from error

    path = path_of(spec, folder)

    def connect(defined: TableSpec, owner: str) -> DeltaTable:
        return DeltaTable(defined, owner, path)

    return DeltaRows(connect, replace(spec, values={**spec.values, "path": path}), clock, folder)


def is_remote(path: str | None) -> bool:
    return bool(path) and "://" in str(path) and not str(path).startswith("file://")


def validate(spec: TableSpec) -> str | None:
    """What is wrong with the options, as a sentence."""
    path = spec.values.get("path")
    if not is_remote(path):
        # Others may have a value that was not given here: a default, or that of the environment.
        own = [option.name for option in S3_OPTIONS if option.environment is None and option.default is None]
        given = next((name for name in own if spec.values.get(name) is not None), None)
        return None if given is None else f"'{given}' has no effect: the 'path' is a folder, not s3://bucket/folder."
    try:
        uri = parse_uri(str(path))
    except MillpondError:
        return "The 'path' is not a folder and not a URI: s3://bucket/folder."
    if uri.scheme not in ("s3", "s3a"):
        return f"Delta tables are in folders and in s3://, not in {uri.scheme}://."
    return wrong_bucket(uri, spec.values)


def notes(spec: TableSpec) -> Iterator[str]:
    """Where the rows are, how they are read, and what others see."""
    where = spec.values.get("path") or "a folder of the storage, or of the state directory"
    seconds = (spec.values.get("merge.interval") or 0) / 1_000_000
    yield f"rows in the Delta table in {where}; other programs see a commit up to {seconds:g} s later"
    yield "keys, and ranges of whole numbers and times, read only the files and row groups that may have them"


PLUGIN = BackendPlugin(
    name="delta",
    options=(
        Option("path", FILE, None, "The folder, or s3://bucket/folder; by default one in the storage.", defines=True),
        Option("merge.interval", SPAN, "10s", "How long a change may wait until it is merged into the Delta table."),
        Option("merge.rows", POSITIVE, "100000", "How many changed rows are merged at once without waiting."),
        Option(
            "vacuum.after",
            SPAN,
            "7d",
            "How long files are kept that the newest version does not need, in whole hours, rounded up.",
        ),
        *S3_OPTIONS,
    ),
    capabilities=Capabilities(outside=True, remote=True, files=True),
    make=make,
    validate=validate,
    notes=notes,
    help="Rows in a Delta Lake table, in a folder or in S3; others may read them.",
)
