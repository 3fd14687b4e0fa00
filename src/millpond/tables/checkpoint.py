"""Checkpoints: each table as an Arrow file, and a manifest that says which files and which log make up the state."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.errors import StateError
from millpond.tables.disk import append_all, refused, sync_folder
from millpond.tables.faults import reach

FORMAT = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class TableFile:
    """A table in a checkpoint; `file` is None for a table without rows."""

    id: int
    spec: Mapping[str, Any]
    version: int
    file: str | None = None
    size: int = 0
    checksum: int = 0


@dataclass(frozen=True)
class Manifest:
    """Everything recovery starts from: tables and values after commit `sequence`; the log from file `log` on."""

    sequence: int = 0
    log: int = 1
    next_table: int = 1
    tables: tuple[TableFile, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder, an empty one if it has none; MP804 when it is damaged, MP803 when of another format."""
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Manifest()
    except OSError as error:
        raise StateError("MP804", f"{path} cannot be read: {error.strerror}.") from error
    line, _, body = text.partition(b"\n")
    try:
        head = json.loads(line)
        if head["format"] != FORMAT:
            raise StateError("MP803", f"{path} has format {head['format']}, this version reads {FORMAT}.")
        if head["checksum"] != zlib.crc32(body):
            raise ValueError("checksum")
        value = json.loads(body)
    except (ValueError, KeyError, TypeError) as error:
        raise StateError("MP804", f"{path} is damaged.", hint="Restore the file from a copy.") from error
    tables = tuple(TableFile(**t) for t in value.pop("tables"))
    return Manifest(tables=tables, **value)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Switch to a new manifest, all or nothing."""
    value = {**vars(manifest), "tables": [vars(t) for t in manifest.tables]}
    body = json.dumps(value, separators=(",", ":")).encode()
    head = json.dumps({"format": FORMAT, "checksum": zlib.crc32(body)}).encode()
    _replace(folder / MANIFEST, [head, b"\n", body], "checkpoint.manifest")


def write_table(folder: Path, name: str, table: pa.Table, codec: str | None = None) -> tuple[int, int]:
    """A table as an Arrow file; its size and checksum."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)
    data = sink.getvalue()
    _replace(folder / name, [data], "checkpoint.table")
    return data.size, zlib.crc32(data)


def read_table(folder: Path, entry: TableFile) -> pa.Table:
    """The rows of a checkpoint's table, memory-mapped; MP804 when the file is not what was written."""
    assert entry.file is not None
    path = folder / entry.file
    try:
        with pa.memory_map(str(path)) as source:
            data = source.read_buffer()
    except OSError as error:
        raise StateError("MP804", f"{path} cannot be read: {error}.", hint="Restore the file from a copy.") from error
    if data.size != entry.size or zlib.crc32(data) != entry.checksum:
        message = f"{path} is damaged: its {data.size} bytes fail their checksum."
        raise StateError("MP804", message, hint="Nothing was read from it. Restore the file from a copy.")
    return pa.ipc.open_file(data).read_all()


def _replace(path: Path, parts: list[Any], point: str) -> None:
    temporary = path.with_name(f"{path.name}.new")
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            append_all(file, 0, parts)
            reach(f"{point}.written")
            os.fsync(file)
        finally:
            os.close(file)
        reach(f"{point}.synced")
        os.replace(temporary, path)
        reach(f"{point}.renamed")
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise refused("The checkpoint cannot be written", path, error) from error
