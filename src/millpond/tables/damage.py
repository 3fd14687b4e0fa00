"""What is wrong in a folder of tables, found without changing anything in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.errors import StateError
from millpond.tables import checkpoint
from millpond.tables.checkpoint import MANIFEST, Manifest, TableFile
from millpond.tables.log import Record, records
from millpond.tables.logs import FIRST, LogEnd, is_new, log_numbers, walk


@dataclass(frozen=True)
class Damage:
    """What is wrong in a folder: its manifest, tables whose checkpoint is lost, and where the log ends."""

    manifest: Manifest
    manifest_lost: bool = False
    tables: tuple[TableFile, ...] = ()
    log: LogEnd | None = None

    @property
    def found(self) -> bool:
        return bool(self.manifest_lost or self.tables or self.log)

    @property
    def stops(self) -> bool:
        """Whether the folder cannot be opened as it is."""
        return bool(self.manifest_lost or self.tables or (self.log is not None and not self.log.torn))


def examine(folder: Path) -> Damage:
    """What is wrong in a folder; MP804 when nothing in it can be trusted."""
    manifest, lost = _manifest(folder)
    if manifest is None:
        return Damage(Manifest())
    tables = tuple(entry for entry in manifest.tables if entry.file and not _is_sound(folder, entry))
    end = next((found for found in walk(folder, manifest) if isinstance(found, LogEnd)), None)
    return Damage(manifest, lost, tables, end)


def values_of(folder: Path) -> dict[str, Any]:
    """The values that the sound commits of a folder have put, without opening it."""
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
    """Each damage in a sentence that names its file."""
    if damage.manifest_lost:
        yield f"{folder / MANIFEST} is damaged; the commit log has all commits."
    for entry in damage.tables:
        path = folder / str(entry.file)
        what = "is damaged" if path.exists() else "is missing"
        yield f"{path} {what}: it has the rows of table '{entry.spec['name']}'."
    end = damage.log
    if end is None:
        return
    if not end.path.exists():
        yield f"{end.path} is missing: what was committed after commit {end.sequence} is in it."
    elif end.torn:
        yield f"{end.path} ends in a commit that a crash cut short at byte {end.offset}; the next start removes it."
    else:
        yield f"{end.path} is damaged at byte {end.offset}, after commit {end.sequence}."


def sound_records(path: Path) -> Iterator[Record]:
    """The records of a log up to the first that is damaged."""
    return (record for _, record in records(path) if isinstance(record, Record))


def _manifest(folder: Path) -> tuple[Manifest | None, bool]:
    """The manifest, None in a new folder, and whether it is damaged."""
    try:
        found = checkpoint.read_manifest(folder)
    except StateError as error:
        if error.code != "MP804" or log_numbers(folder)[:1] != [FIRST]:
            raise
        # No checkpoint has let go of a log yet, so that the log alone tells everything.
        return Manifest(), True
    return (None if found is None and is_new(folder) else found or Manifest()), False


def _is_sound(folder: Path, entry: TableFile) -> bool:
    try:
        checkpoint.read_table(folder, entry)
    except StateError:
        return False
    return True
