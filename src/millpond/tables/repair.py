"""Repair of a damaged folder of tables: what is sound stays, what is not is cut off and told, and a copy is kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from millpond.errors import StateError
from millpond.tables import checkpoint
from millpond.tables.checkpoint import MANIFEST, Manifest, TableFile
from millpond.tables.disk import append_all, cut, sync_folder
from millpond.tables.durable import lock_folder
from millpond.tables.log import Record, decode, encode

LOCK = "lock"


@dataclass(frozen=True)
class Damage:
    """What is wrong in a folder: tables whose checkpoint is lost, and the log's file and offset where it ends."""

    manifest: Manifest
    manifest_lost: bool = False
    tables: tuple[TableFile, ...] = ()
    log: tuple[Path, int] | None = None

    @property
    def found(self) -> bool:
        return bool(self.manifest_lost or self.tables or self.log)


def repair(folder: Path) -> list[str]:
    """Make a folder one that can be opened; what was done and what was lost, or nothing when it is sound. MP804 when
    nothing in it can be trusted, MP801 when a process has it."""
    guard = lock_folder(folder / LOCK)
    try:
        damage = _examine(folder)
        if not damage.found:
            return []
        copy = _copy(folder)
        told = [f"A copy of the damaged files is in {copy}.", *_cut_log(folder, damage), *_forget(folder, damage)]
        sync_folder(folder)
        return told
    finally:
        os.close(guard)


def _examine(folder: Path) -> Damage:
    try:
        manifest, lost = checkpoint.read_manifest(folder), False
    except StateError as error:
        logs = _logs(folder, 1)
        if error.code != "MP804" or not logs or logs[0].name != "log-000001":
            raise
        # No checkpoint has let go of a log yet, so that the log alone tells everything.
        manifest, lost = Manifest(), True
    tables = tuple(entry for entry in manifest.tables if entry.file and not _is_sound(folder, entry))
    return Damage(manifest, lost, tables, _first_damage(folder, manifest))


def _is_sound(folder: Path, entry: TableFile) -> bool:
    try:
        checkpoint.read_table(folder, entry)
    except StateError:
        return False
    return True


def _first_damage(folder: Path, manifest: Manifest) -> tuple[Path, int] | None:
    sequence = manifest.sequence
    for path in _logs(folder, manifest.log):
        size = path.stat().st_size
        end = 0
        for record, next_ in _sound_records(path):
            if record.sequence > sequence + 1:
                return path, end
            sequence, end = max(sequence, record.sequence), next_
        if end < size:
            return path, end
    return None


def _sound_records(path: Path) -> Iterator[tuple[Record, int]]:
    """The records of a log up to the first that is damaged, each with the offset of its end."""
    data, offset = memoryview(path.read_bytes()), 0
    while offset < len(data):
        found = decode(data, offset)
        if isinstance(found, str):
            return
        record, offset = found
        yield record, offset


def _cut_log(folder: Path, damage: Damage) -> Iterator[str]:
    """A commit builds on those before it, so nothing after the first damaged one can be kept."""
    if damage.log is None:
        return
    path, offset = damage.log
    later = [log for log in _logs(folder, damage.manifest.log) if log.name > path.name]
    lost = path.stat().st_size - offset + sum(log.stat().st_size for log in later)
    with path.open("r+b") as file:
        cut(file.fileno(), offset)
    for log in later:
        log.unlink()
    yield f"The commit log ends at byte {offset} of {path.name} now: {lost} bytes of commits after it are lost."


def _forget(folder: Path, damage: Damage) -> Iterator[str]:
    """Start lost tables empty. Their changes since go too: without the rows before them they would mislead."""
    if damage.manifest_lost:
        (folder / MANIFEST).unlink()
        yield "The manifest was damaged; the tables are made again from the log, and nothing of them is lost."
    if not damage.tables:
        return
    lost = {entry.id for entry in damage.tables}
    for path in _logs(folder, damage.manifest.log):
        _rewrite(path, [_without(record, lost) for record, _ in _sound_records(path)])
    kept = tuple(replace(t, file=None, size=0, checksum=0) if t.id in lost else t for t in damage.manifest.tables)
    checkpoint.write_manifest(folder, replace(damage.manifest, tables=kept))
    for entry in damage.tables:
        yield f"The rows of table '{entry.spec['name']}' are lost: {entry.file} is damaged. The table is empty now."


def _without(record: Record, lost: set[int]) -> Record:
    entries = record.header.get("changes", ())
    kept = [i for i, entry in enumerate(entries) if entry["table"] not in lost]
    if len(kept) == len(entries):
        return record
    blobs = tuple(record.blobs[2 * i + half] for i in kept for half in (0, 1))
    return Record(record.sequence, {**record.header, "changes": [entries[i] for i in kept]}, blobs)


def _rewrite(path: Path, records: list[Record]) -> None:
    temporary = path.with_name(f"{path.name}.new")
    parts = [part for record in records for part in encode(record.sequence, record.header, record.blobs)]
    with temporary.open("wb") as file:
        append_all(file.fileno(), 0, parts)
        os.fsync(file.fileno())
    temporary.replace(path)


def _copy(folder: Path) -> Path:
    number = 1
    while (copy := folder.with_name(f"{folder.name}-damaged-{number}")).exists():
        number += 1
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(LOCK))
    return copy


def _logs(folder: Path, first: int) -> list[Path]:
    named = [path for path in folder.glob("log-*") if path.name[4:].isdigit()]
    return sorted(path for path in named if int(path.name[4:]) >= first)
