"""The outbox of a sink: rows on disk that were committed here and are not applied to the server yet, in order.

Rows are staged before our commit. After it they are ready: a rename gives them a number. What is ready is applied in
the order of the numbers, and stays until that has succeeded, however long the server is away.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from millpond.contracts.sink import Mark
from millpond.disk import disk_errors, make_folder, open_private, sync_file, sync_folder

STAGED, READY = ".staged", ".ready"
_NOT_FOR_NAMES = re.compile(r"[^\w.\-]")
_META = b"millpond"


@dataclass(frozen=True)
class Parcel:
    """Rows of one output; `mark` identifies it, `flow` and `statement` are where it came from. `id` is new each time
    that rows are staged, also if they have the same mark."""

    path: Path
    flow: str
    statement: int
    mark: str
    id: str = ""

    def rows(self) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(self.path)) as file, pa.ipc.open_stream(file) as reader:
            yield from reader

    @property
    def schema(self) -> pa.Schema:
        with pa.OSFile(str(self.path)) as file, pa.ipc.open_stream(file) as reader:
            return reader.schema


class Outbox:
    """The outbox of one sink, in a folder of its own. One thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def stage(self, rows: pa.Table, mark: Mark, rows_max: int) -> str:
        """Write rows, durably; returns the name by which they become ready."""
        make_folder(self._folder)
        name = _NOT_FOR_NAMES.sub("_", str(mark))
        path = self._folder / f"{name}{STAGED}"
        about = {"flow": mark.flow, "statement": mark.statement, "mark": str(mark), "id": uuid.uuid4().hex}
        schema = rows.schema.with_metadata({_META: json.dumps(about).encode()})
        with disk_errors(path):
            with os.fdopen(open_private(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
                writer.write_table(rows.cast(schema), max_chunksize=rows_max)
            sync_file(path)
            sync_folder(self._folder)
        return name

    def ready(self, name: str) -> None:
        """What was staged was committed; nothing happens if it is ready already, or applied."""
        staged = self._folder / f"{name}{STAGED}"
        if staged.exists():
            with disk_errors(staged):
                staged.replace(self._folder / f"{self._next():012d}-{name}{READY}")
                sync_folder(self._folder)

    def _next(self) -> int:
        return max((int(path.name.partition("-")[0]) for path in self._folder.glob(f"*{READY}")), default=0) + 1

    def parcels(self) -> list[Parcel]:
        """What is ready, in order."""
        found = []
        for path in sorted(self._folder.glob(f"*{READY}")):
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
                about = json.loads(reader.schema.metadata[_META])
            found.append(Parcel(path, **about))
        return found

    def remove(self, parcel: Parcel, *, durably: bool = False) -> None:
        """It was applied. The next rows that become ready make it durable, too."""
        parcel.path.unlink(missing_ok=True)
        if durably:
            sync_folder(self._folder)

    def discard(self) -> None:
        """Remove what was staged and never committed."""
        for path in self._folder.glob(f"*{STAGED}"):
            path.unlink(missing_ok=True)
