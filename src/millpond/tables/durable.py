"""The folder of a store: its commit log, checkpoints, lock, and recovery."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from millpond import registry
from millpond.contracts.table import Clock, TableSpec
from millpond.disk import make_folder, refused
from millpond.errors import NotYetError, Problem, Severity, StateError
from millpond.faults import reach
from millpond.tables import checkpoint
from millpond.tables.backend import TableRows
from millpond.tables.checkpoint import Manifest, TableFile
from millpond.tables.commit_log import (
    CONTINUED,
    Log,
    Record,
    is_new,
    log_numbers,
    log_path,
    new_log,
    read_logs,
    size_of,
)
from millpond.tables.draft import Base
from millpond.tables.log_records import NEXT_ROW, Blob, changes_of, redo_by_key, replayed, spec_from_json
from millpond.tables.spill_files import SPILL, remove_abandoned


def rows_of(spec: TableSpec, clock: Clock = time.time, folder: Path | None = None) -> TableRows:
    """An empty table of a backend, in the folder of its store; MP308 if there is no such backend, MP901 if it is not
    supported yet."""
    plugin = registry.find("backend", spec.backend)
    if plugin.make is None:
        message = f"The backend '{spec.backend}' is not supported in this version."
        raise NotYetError("MP901", message, hint="Use 'backend' = 'memory'.")
    return plugin.make(spec, clock, folder)


# A checkpoint is due if the log has at least this size and is larger than the checkpoint would be.
_LOG_BYTES_MIN = 64 * 1024 * 1024


@dataclass
class Recovered:
    """The recovered state of a folder, with which a store starts."""

    tables: dict[int, TableRows] = field(default_factory=dict)
    updated_at: dict[int, float] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    next_table: int = 1
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True)
class TableState:
    """A table in a checkpoint; only a `durable` one has its rows there."""

    id: int
    spec: Mapping[str, Any]
    version: Base
    durable: bool
    codec: str | None = None
    updated_at: float | None = None


class Folder:
    """The folder of a store, locked by one process at a time."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        try:
            make_folder(path)
            self._guard = lock_folder(path / "lock")
        except OSError as error:
            raise refused("The folder of the tables cannot be used", path, error) from error
        self.checkpointing = threading.Lock()
        self._log: Log | None = None
        self._log_number = 1
        self._manifest = Manifest()
        self._older_bytes = 0
        # The size of a table's rows in a log file, by the numbers of both.
        self._shares: dict[tuple[int, int], int] = {}
        self._background: threading.Thread | None = None

    def recover(self) -> Recovered:
        """The state as of the last commit: the checkpoint, and the log after it."""
        remove_abandoned(self.path / SPILL)
        found = checkpoint.read_manifest(self.path)
        new = found is None and is_new(self.path)
        self._manifest = manifest = found or Manifest()
        state = Recovered(values=dict(manifest.values), next_table=manifest.next_table)
        for entry in manifest.tables:
            state.tables[entry.id] = self._load(entry)
            if entry.updated_at is not None:
                state.updated_at[entry.id] = entry.updated_at
        sequence = manifest.sequence
        if not new:
            for record in read_logs(self.path, manifest, state.problems):
                self._replay(state, record)
                self._count(manifest.log, record.header, record.blobs)
                sequence = record.sequence
        self._open_log(sequence)
        if found is None:
            # After the log, so that the log file of a manifest always exists.
            checkpoint.write_manifest(self.path, manifest, "folder.manifest")
            state.problems += [] if new else [_made_again(self.path)]
        self._remove_strays()
        return state

    def _open_log(self, sequence: int) -> None:
        numbers = log_numbers(self.path, self._manifest.log)
        self._log_number = numbers[-1] if numbers else self._manifest.log
        self._older_bytes = sum(log_path(self.path, n).stat().st_size for n in numbers[:-1])
        path = log_path(self.path, self._log_number)
        self._log = Log(path, sequence) if path.exists() else new_log(path, sequence)

    def append(self, header: Mapping[str, Any], blobs: Sequence[Any]) -> None:
        if self._log is None:
            raise StateError("MP807", f"The tables in {self.path} are closed.", hint="Open the store again.")
        self._log.append(header, blobs)
        self._count(self._log_number, header, blobs)

    def rotate(self) -> None:
        """Continue in a new log file; called while no commit is in progress."""
        assert self._log is not None
        fresh = new_log(log_path(self.path, self._log_number + 1), self._log.sequence + 1)
        try:
            self._log.append({CONTINUED: self._log_number + 1}, ())
        except StateError:
            fresh.close()
            raise
        self._older_bytes += self._log.nbytes
        self._log.close()
        self._log, self._log_number = fresh, self._log_number + 1
        self._rotated_at = (fresh.sequence, self._log_number)

    def write_checkpoint(self, states: Sequence[TableState], values: Mapping[str, Any], next_table: int) -> None:
        """Write the state as of the last `rotate`, then remove the logs before it."""
        reach("checkpoint.begin")
        sequence, log = self._rotated_at
        old = {t.id: t for t in self._manifest.tables}
        tables = tuple(
            replace(self._write_table(state, old.get(state.id), sequence), updated_at=state.updated_at)
            for state in states
        )
        manifest = Manifest(sequence, log, next_table, tables, values, end=sequence)
        checkpoint.write_manifest(self.path, manifest)
        self._manifest = manifest
        self._older_bytes = 0
        self._shares = {where: size for where, size in self._shares.copy().items() if where[0] >= log}
        self._remove_strays()

    def wants_checkpoint(self) -> bool:
        """Whether the log has become large compared to the tables; called after every commit."""
        assert self._log is not None
        size = self._log.nbytes + self._older_bytes
        return size > max(_LOG_BYTES_MIN, 2 * sum(t.size for t in self._manifest.tables))

    def in_background(self, work: Callable[[], None], report: Callable[[BaseException], None]) -> None:
        """Run `work` in a background thread, unless one is running. An error of the disk is not reported here, because
        the next commit has it again and reports it."""
        if self._background is not None and self._background.is_alive():
            return
        self._background = threading.Thread(
            target=_reported, args=(work, report), name="millpond-checkpoint", daemon=True
        )
        self._background.start()

    def bytes_of(self, table: int) -> int:
        """The size of a table in its checkpoint and in the log since."""
        in_checkpoint = next((t.size for t in self._manifest.tables if t.id == table), 0)
        return in_checkpoint + sum(size for where, size in self._shares.copy().items() if where[1] == table)

    def close(self) -> None:
        if self._background is not None:
            self._background.join()
        if self._log is not None:
            # Nothing is lost if this fails; only a later truncation of the log would not be detected.
            _quietly(self._note_end)
            self._log.close()
            self._log = None
        os.close(self._guard)

    def _note_end(self) -> None:
        """Record the end of the log in the manifest, so that a later truncation of the log is detected."""
        assert self._log is not None
        if self._log.sequence > self._manifest.end:
            self._manifest = replace(self._manifest, end=self._log.sequence)
            checkpoint.write_manifest(self.path, self._manifest)

    def _count(self, number: int, header: Mapping[str, Any], blobs: Sequence[Any]) -> None:
        for i, entry in enumerate(header.get("changes", ())):
            where = (number, entry["table"])
            self._shares[where] = self._shares.get(where, 0) + size_of(blobs[2 * i]) + size_of(blobs[2 * i + 1])

    def _load(self, entry: TableFile) -> TableRows:
        rows = rows_of(spec_from_json(dict(entry.spec)), self._clock, self.path)
        empty = rows.spec.schema.arrow().empty_table()
        rows.load(empty if entry.file is None else checkpoint.read_table(self.path, entry), entry.version)
        return rows

    def _replay(self, state: Recovered, record: Record) -> None:
        header = record.header
        if made := header.get("create"):
            state.tables[made["id"]] = rows_of(spec_from_json(made["spec"]), self._clock, self.path)
            state.next_table = made["id"] + 1
        for step in header.get("reshape", ()):
            made = step["create"]
            state.tables[made["id"]] = rows_of(spec_from_json(made["spec"]), self._clock, self.path)
            state.next_table = made["id"] + 1
            _drop(state.tables.pop(step["drop"]), step)
        if made := header.get("define"):
            state.tables[made["id"]].define(spec_from_json(made["spec"]))
        if "drop" in header:
            _drop(state.tables.pop(header["drop"]), header)
        for entry, gone, added in changes_of(record):
            rows = state.tables[entry["table"]]
            state.updated_at[entry["table"]] = header["at"]
            if NEXT_ROW in entry:
                redo_by_key(rows, entry, gone, added)
                continue
            if rows.has(entry.get("version", 0)):
                continue
            _redo(rows, gone, added)
        for key, value in header.get("puts", {}).items():
            if value is None:
                state.values.pop(key, None)
            else:
                state.values[key] = value

    def _write_table(self, state: TableState, old: TableFile | None, sequence: int) -> TableFile:
        version = state.version
        if not state.durable:
            return TableFile(state.id, state.spec, 0)
        if old is not None and old.version == version.number:
            return TableFile(state.id, state.spec, old.version, old.file, old.size, old.checksum)
        if not version.live:
            return TableFile(state.id, state.spec, version.number)
        name = f"table-{state.id:06d}-{sequence:012d}.arrow"
        rows = version.all(range(len(version.schema)))
        size, checksum = checkpoint.write_table(self.path, name, rows, state.codec)
        return TableFile(state.id, state.spec, version.number, name, size, checksum)

    def _remove_strays(self) -> None:
        """Remove files that the manifest does not refer to: older logs, old tables, incomplete files."""
        named = {t.file for t in self._manifest.tables}
        logs = {log_path(self.path, n).name for n in log_numbers(self.path, self._manifest.log)}
        for path in [*self.path.glob("log-*"), *self.path.glob("table-*"), *self.path.glob("*.new")]:
            if path.name not in named and path.name not in logs:
                path.unlink(missing_ok=True)
                reach("checkpoint.old.removed")


def _drop(rows: TableRows, entry: Mapping[str, Any]) -> None:
    """Drop a table again, unless it was: then its file may have a later one of the same name."""
    if not rows.has(entry.get("version", 0) + 1):
        rows.drop()
    rows.close()


def _redo(rows: TableRows, gone: Blob, added: Blob) -> None:
    change = rows.prepare(replayed(rows.current, gone, added))
    rows.stage(change)
    rows.apply(change)
    rows.compact()


def _made_again(folder: Path) -> Problem:
    message = f"{folder / checkpoint.MANIFEST} was missing; it was rebuilt from the commit log, which has all commits."
    return Problem("MP812", message, hint="Nothing was lost.", severity=Severity.WARNING)


def lock_folder(path: Path) -> int:
    guard = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(guard)
        message = f"The tables in {path.parent} are in use by another process."
        raise StateError("MP801", message, hint="Stop that process first, or use another state directory.") from None
    return guard


def _reported(work: Callable[[], None], report: Callable[[BaseException], None]) -> None:
    try:
        _quietly(work)
    except BaseException as error:
        report(error)


def _quietly(work: Callable[[], None]) -> None:
    try:
        work()
    except StateError:
        return
