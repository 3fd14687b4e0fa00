"""Damage in a folder of tables: inspection, which changes nothing, and repair, which keeps a copy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from millpond.disk import append_all, cut, sync_folder
from millpond.errors import StateError
from millpond.tables import checkpoint
from millpond.tables.checkpoint import MANIFEST, Manifest, TableFile
from millpond.tables.commit_log import FIRST, LogEnd, Record, encode, is_new, log_numbers, log_path, records, walk
from millpond.tables.durable import lock_folder


@dataclass(frozen=True)
class Damage:
    """The damage in a folder: its manifest, tables whose checkpoint is lost, and where the log ends."""

    manifest: Manifest
    manifest_lost: bool = False
    tables: tuple[TableFile, ...] = ()
    log: LogEnd | None = None

    @property
    def found(self) -> bool:
        return bool(self.manifest_lost or self.tables or self.log)

    @property
    def stops(self) -> bool:
        """Whether the damage prevents opening the folder."""
        return bool(self.manifest_lost or self.tables or (self.log is not None and not self.log.torn))


def examine(folder: Path) -> Damage:
    """The damage in a folder; MP804 if nothing in it can be trusted."""
    manifest, lost = _manifest(folder)
    if manifest is None:
        return Damage(Manifest())
    tables = tuple(entry for entry in manifest.tables if entry.file and not _is_sound(folder, entry))
    end = next((found for found in walk(folder, manifest) if isinstance(found, LogEnd)), None)
    return Damage(manifest, lost, tables, end)


def values_of(folder: Path) -> dict[str, Any]:
    """The values of the undamaged commits of a folder, without opening it."""
    try:
        manifest, _ = _manifest(folder)
    except StateError:
        return {}
    values = dict(manifest.values) if manifest is not None else {}
    for found in walk(folder, manifest or Manifest()):
        if isinstance(found, Record):
            values.update(found.header.get("puts", {}))
    return values


def described(folder: Path, damage: Damage) -> Iterator[str]:
    """A sentence about each damage, with the name of its file."""
    if damage.manifest_lost:
        yield f"{folder / MANIFEST} is damaged; the commit log has all commits."
    for entry in damage.tables:
        path = folder / str(entry.file)
        what = "is damaged" if path.exists() else "is missing"
        yield f"{path} {what}: it contains the rows of table '{entry.spec['name']}'."
    end = damage.log
    if end is None:
        return
    if not end.path.exists():
        yield f"{end.path} is missing: it contains the commits after commit {end.sequence}."
    elif end.torn:
        yield f"{end.path} ends in an incomplete commit after a crash, at byte {end.offset}; the next start removes it."
    else:
        yield f"{end.path} is damaged at byte {end.offset}, after commit {end.sequence}."


def sound_records(path: Path) -> Iterator[Record]:
    """The records of a log before the first damaged one."""
    return (record for _, record in records(path) if isinstance(record, Record))


def _manifest(folder: Path) -> tuple[Manifest | None, bool]:
    """The manifest, None in a new folder, and whether it is damaged."""
    try:
        found = checkpoint.read_manifest(folder)
    except StateError as error:
        if error.code != "MP804" or log_numbers(folder)[:1] != [FIRST]:
            raise
        # No log file was removed by a checkpoint yet, so that the log alone is complete.
        return Manifest(), True
    return (None if found is None and is_new(folder) else found or Manifest()), False


def _is_sound(folder: Path, entry: TableFile) -> bool:
    try:
        checkpoint.read_table(folder, entry)
    except StateError:
        return False
    return True


LOCK = "lock"


def inspect(folder: Path) -> tuple[bool, list[str]]:
    """Whether a folder can be opened, and sentences about its damage; nothing is changed. MP804 if nothing in it can be
    trusted, MP801 if a process uses it."""
    guard = lock_folder(folder / LOCK)
    try:
        damage = examine(folder)
        return not damage.stops, list(described(folder, damage))
    finally:
        os.close(guard)


def repair(folder: Path) -> list[str]:
    """Repair a folder so that it can be opened; returns sentences about what was done and lost, none if it is not
    damaged. MP804 if nothing in it can be trusted, MP801 if a process uses it."""
    guard = lock_folder(folder / LOCK)
    try:
        damage = examine(folder)
        if not damage.found:
            return []
        copy = _copy(folder)
        done = [f"A copy of the damaged files is in {copy}.", *_cut_log(folder, damage), *_forget(folder, damage)]
        sync_folder(folder)
        return done
    finally:
        os.close(guard)


def _cut_log(folder: Path, damage: Damage) -> Iterator[str]:
    """Truncate the log: a commit depends on those before it, so nothing after the first damaged one can be kept."""
    end = damage.log
    if end is None:
        return
    later = [path for path in _logs(folder, damage) if path.name > end.path.name]
    there = end.path.stat().st_size if end.path.exists() else 0
    lost = there - end.offset + sum(path.stat().st_size for path in later)
    with end.path.open("ab") as file:
        cut(file.fileno(), end.offset)
    for path in later:
        path.unlink()
    yield (
        f"The commit log was cut at byte {end.offset} of {end.path.name}, after commit {end.sequence}: all commits"
        f" after it are lost ({lost} bytes)."
    )


def _forget(folder: Path, damage: Damage) -> Iterator[str]:
    """Start lost tables empty. Their changes since are dropped too: without the earlier rows they would be wrong."""
    if damage.manifest_lost:
        (folder / MANIFEST).unlink()
        yield "The manifest was damaged; the tables were rebuilt from the log, and no rows were lost."
        return
    lost = {entry.id for entry in damage.tables}
    if lost:
        for path in _logs(folder, damage):
            _rewrite(path, [_without(record, lost) for record in sound_records(path)])
    kept = tuple(replace(t, file=None, size=0, checksum=0) if t.id in lost else t for t in damage.manifest.tables)
    end = damage.manifest.end if damage.log is None else min(damage.manifest.end, damage.log.sequence)
    checkpoint.write_manifest(folder, replace(damage.manifest, tables=kept, end=end))
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


def _logs(folder: Path, damage: Damage) -> list[Path]:
    return [log_path(folder, number) for number in log_numbers(folder, damage.manifest.log)]
