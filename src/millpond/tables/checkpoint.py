"""Checkpoints: each table as an Arrow file, and a manifest of the files and the log that make up the state."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.disk import Writer, repair_hint, replace_file
from millpond.errors import StateError

FORMAT = 1
MANIFEST = "manifest.json"
_REFUSED = "The checkpoint cannot be written"


@dataclass(frozen=True)
class TableFile:
    """A table in a checkpoint; `file` is None for a table without rows, `updated_at` for one never changed."""

    id: int
    spec: Mapping[str, Any]
    version: int
    file: str | None = None
    size: int = 0
    checksum: int = 0
    updated_at: float | None = None


@dataclass(frozen=True)
class Manifest:
    """The start of a recovery: tables and values after commit `sequence`; the log from file `log` on. The log extended
    at least to record `end` when the folder was last closed: if it is shorter now, commits were lost."""

    sequence: int = 0
    log: int = 1
    next_table: int = 1
    tables: tuple[TableFile, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    end: int = 0


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder, None if it has none; MP804 if it is damaged, MP803 if it has another format."""
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError("MP804", f"{path} cannot be read: {error.strerror}.", hint=repair_hint(folder)) from error
    line, _, body = text.partition(b"\n")
    try:
        head = json.loads(line)
        if head["format"] != FORMAT:
            raise StateError("MP803", f"{path} has format {head['format']}, but this version reads format {FORMAT}.")
        if head["checksum"] != zlib.crc32(body):
            raise ValueError("checksum")
        value = json.loads(body)
    except (ValueError, KeyError, TypeError) as error:
        raise StateError("MP804", f"{path} is damaged.", hint=_lost_hint(folder)) from error
    tables = tuple(TableFile(**t) for t in value.pop("tables"))
    return Manifest(tables=tables, **value)


def _lost_hint(folder: Path) -> str:
    """The hint for a damaged manifest: it can be rebuilt only as long as the first log file exists."""
    if (folder / "log-000001").exists():
        return repair_hint(folder)
    return "Restore the file from a copy, or start again with another --state."


def write_manifest(folder: Path, manifest: Manifest, point: str = "checkpoint.manifest") -> None:
    """Replace the manifest atomically."""
    value = {**vars(manifest), "tables": [vars(t) for t in manifest.tables]}
    body = json.dumps(value, separators=(",", ":")).encode()
    head = json.dumps({"format": FORMAT, "checksum": zlib.crc32(body)}).encode()
    replace_file(folder / MANIFEST, lambda file: file.write(head + b"\n" + body), point, _REFUSED)


def write_table(folder: Path, name: str, table: pa.Table, codec: str | None = None) -> tuple[int, int]:
    """Write a table as an Arrow file; returns its size and checksum."""

    def fill(file: Writer) -> None:
        with pa.ipc.new_file(file, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_table(table)

    written = replace_file(folder / name, fill, "checkpoint.table", _REFUSED)
    return written.size, written.checksum


def read_table(folder: Path, entry: TableFile) -> pa.Table:
    """The rows of a table in a checkpoint, memory-mapped; MP804 if the file is damaged."""
    assert entry.file is not None
    path = folder / entry.file
    try:
        with pa.memory_map(str(path)) as source:
            data = source.read_buffer()
    except OSError as error:
        raise StateError("MP804", f"{path} cannot be read: {error}.", hint=repair_hint(folder)) from error
    if data.size != entry.size or zlib.crc32(data) != entry.checksum:
        message = f"{path} is damaged: the checksum of its {data.size} bytes does not match."
        raise StateError("MP804", message, hint=f"Nothing was read from it. {repair_hint(folder)}")
    return pa.ipc.open_file(data).read_all()
