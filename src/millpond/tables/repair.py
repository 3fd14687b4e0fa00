"""Repair of a damaged folder of tables: what is sound stays, what is not is cut off and told, and a copy is kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from millpond.disk import append_all, cut, sync_folder
from millpond.tables import checkpoint
from millpond.tables.checkpoint import MANIFEST
from millpond.tables.damage import Damage, described, examine, sound_records
from millpond.tables.durable import lock_folder
from millpond.tables.log import Record, encode
from millpond.tables.logs import log_numbers, log_path

LOCK = "lock"


def inspect(folder: Path) -> tuple[bool, list[str]]:
    """Whether a folder can be opened as it is, and what is wrong in it; nothing is changed. MP804 when nothing in it
    can be trusted, MP801 when a process has it."""
    guard = lock_folder(folder / LOCK)
    try:
        damage = examine(folder)
        return not damage.stops, list(described(folder, damage))
    finally:
        os.close(guard)


def repair(folder: Path) -> list[str]:
    """Make a folder one that can be opened; what was done and what was lost, or nothing when it is sound. MP804 when
    nothing in it can be trusted, MP801 when a process has it."""
    guard = lock_folder(folder / LOCK)
    try:
        damage = examine(folder)
        if not damage.found:
            return []
        copy = _copy(folder)
        told = [f"A copy of the damaged files is in {copy}.", *_cut_log(folder, damage), *_forget(folder, damage)]
        sync_folder(folder)
        return told
    finally:
        os.close(guard)


def _cut_log(folder: Path, damage: Damage) -> Iterator[str]:
    """A commit builds on those before it, so nothing after the first damaged one can be kept."""
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
        f"The commit log ends at byte {end.offset} of {end.path.name} now, after commit {end.sequence}: all commits"
        f" after it are lost, {lost} bytes of which were there."
    )


def _forget(folder: Path, damage: Damage) -> Iterator[str]:
    """Start lost tables empty. Their changes since go too: without the rows before them they would mislead."""
    if damage.manifest_lost:
        (folder / MANIFEST).unlink()
        yield "The manifest was damaged; the tables are made again from the log, and nothing of them is lost."
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
