"""One table in Delta: its files, and in front of them the changes that are merged into the files later.

A merge takes the better part of a second however few its rows, so a commit does not wait for one: it is decided by the
commit log, its rows are kept in an overlay, and a thread merges the overlay into the files in one Delta commit, which
carries the number of our version. After a crash the log has what the files lack."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.remote_table import Mark, RowChange
from millpond.contracts.table import AggregateCall, TableFiles, TableSpec
from millpond.errors import MillpondError, SourceError, StateError, TableError
from millpond.tables.delta.datafusion import VALUES_MAX, of_condition, of_keys
from millpond.tables.delta.files import DeltaFiles
from millpond.tables.delta.overlay import Overlay
from millpond.tables.lookup_keys import Keys, group_numbers, key_columns
from millpond.tables.remote.version_reader import stored_schema

# In the folder of a table; others ignore names that begin with an underscore.
LOCK = "_millpond_lock"
# How long the lock of a process that has just ended may last.
LOCK_S = 10.0
# A commit waits for a merge when this many times 'merge.rows' are not merged.
BEHIND_MAX = 4
# More rows than this are merged before Spark reads the files.
BESIDE_FILES_MAX = 20_000
MERGE_ROWS, MERGE_US, KEPT_US = 100_000, 10_000_000, 7 * 24 * 3_600_000_000


@dataclass(frozen=True)
class _State:
    """What a reader sees: the files of one Delta version, and the changes since."""

    files: Any
    overlay: Overlay
    mark: Mark


class DeltaTable:
    """Commits are made by one thread at a time; any thread reads; one thread merges."""

    is_exact = True

    def __init__(self, spec: TableSpec, owner: str, path: str) -> None:
        self._spec, self._schema = spec, stored_schema(spec.schema)
        self._files = DeltaFiles(path, self._schema, spec.values)
        self.place = f"delta:{path}"
        # Delta stores whole numbers with a transaction.
        self._owner = int(owner[:15], 16)
        self._is_made = False
        self.configure(spec.values)
        self._guard: int | None = None
        self._current: _State | None = None
        self._state_lock = threading.Lock()
        self._merging = threading.Lock()
        self._wake = threading.Condition()
        self._merger: threading.Thread | None = None
        self._due_at: float | None = None
        # Set when another process has taken the table over.
        self._fenced: StateError | None = None
        self._is_closing = False

    def configure(self, values: Mapping[str, Any]) -> None:
        """Apply the options that may change."""
        self._merge_rows = values.get("merge.rows") or MERGE_ROWS
        self._merge_s = (values.get("merge.interval") or MERGE_US) / 1_000_000
        self._kept_us = values.get("vacuum.after") or KEPT_US

    @property
    def path(self) -> str:
        return self._files.path

    @property
    def _state(self) -> _State:
        assert self._current is not None, "used before it is opened"
        return self._current

    # The life of the table

    def open(self, *, known: bool) -> tuple[Mark, int]:
        there = self._files.open()
        if known and not there:
            message = f"The Delta table of '{self._spec.name}' is no longer in {self.path}."
            raise StateError("MP804", message, hint="Restore it, or use another state directory.")
        self._lock_out()
        if there:
            self._files.refresh()
            there = self._take(known=known)
        if not there:
            self._files.create(self._owner)
            self._is_made = True
        mark, _, _ = self._files.held()
        self._current = _State(self._files.snapshot, Overlay(self._schema), mark)
        return mark, self._files.count()

    def _take(self, *, known: bool) -> bool:
        """Make an existing table ours; False if it was what a drop, or a creation that was not finished, has left."""
        mark, owner, made = self._files.held()
        if known:
            if owner != self._owner:
                raise self._taken_over()
            self._is_made = made
            return True
        if owner == self._owner and made:
            self._files.remove()
            self._lock_again()
            return False
        self._require_fit()
        self._is_made = False
        next_row = max(mark.next_row, self._next_row())
        self._files.own(Mark(mark.number, next_row), self._owner, made=False)
        return True

    def _lock_out(self) -> None:
        """Keep other processes out as long as this one runs. On object storage there are no locks: the last process
        owns the table, and the other is rejected when it merges."""
        if not self._files.is_local:
            return
        folder = Path(self.path)
        with self._files.translated():
            folder.mkdir(parents=True, exist_ok=True)
            guard = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._guard = guard
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(guard)
                    message = f"The Delta table {self.path} of '{self._spec.name}' is in use."
                    hint = "Another app, or another process of this one, writes to it: stop that one first."
                    raise StateError("MP801", message, hint=hint) from None
                time.sleep(0.05)

    def _lock_again(self) -> None:
        self._unlock()
        self._lock_out()

    def _unlock(self) -> None:
        if self._guard is not None:
            os.close(self._guard)
            self._guard = None

    def _require_place(self) -> None:
        """MP506 if the folder is not the one that was opened: a write would create it anew, for instance below the
        place where a file system that is away was mounted."""
        if self._guard is None:
            return
        with self._files.translated():
            held, there = os.fstat(self._guard), os.stat(Path(self.path) / LOCK)
            if (held.st_dev, held.st_ino) != (there.st_dev, there.st_ino):
                raise OSError(errno.ENODEV, "it is another folder than before")

    def _taken_over(self) -> StateError:
        message = f"Another app has taken over the Delta table {self.path} of '{self._spec.name}'."
        hint = "Use another 'path', or start with a new state directory to take it back."
        return StateError("MP801", message, hint=hint)

    def _require_fit(self) -> None:
        """MP409 with everything that differs."""
        wrong = self._files.differences()
        if not wrong:
            keys = self._files.read(self._files.snapshot, columns=self._schema.key).combine_chunks()
            columns = tuple(column.combine_chunks() for column in keys.columns)
            if keys.num_rows and group_numbers(Keys(columns)) is not None:
                wrong = [f"several rows have the same key ({', '.join(self._schema.key)})"]
        if wrong:
            message = f"The Delta table {self.path} does not fit '{self._spec.name}': {'; '.join(wrong)}."
            raise TableError("MP409", message, hint="Declare the columns that it has, or write another 'path'.")

    def _next_row(self) -> int:
        """The number after the last row of a table without key."""
        if self._spec.schema.key:
            return 0
        rows = self._files.read(self._files.snapshot, columns=self._schema.key).column(0)
        return max(rows.to_pylist(), default=-1) + 1

    def create_index(self, columns: Sequence[str]) -> None:
        """Nothing to do: Delta has statistics of each file, and no indexes."""

    def last_mark(self) -> Mark:
        return self._state.mark

    def unmerged(self) -> tuple[RowChange, ...]:
        return self._state.overlay.changes

    def drop(self) -> None:
        self._stop()
        with self._merging:
            if self._is_made:
                self._files.remove()
            self._current = None

    def close(self) -> None:
        self._stop()
        # What cannot be merged now is in the log, and is merged after the next start.
        with suppress(MillpondError):
            if self._current is not None:
                self.merge()
        self._unlock()

    def _stop(self) -> None:
        with self._wake:
            self._is_closing = True
            self._wake.notify_all()
        if self._merger is not None:
            self._merger.join()

    # Reading

    def lookup(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> pa.Table:
        state = self._state
        if tuple(columns) != self._schema.key:
            return self._in_front(state, self._files.read(state.files, of_keys(self._schema, columns, keys)))
        wanted = Keys(tuple(keys))
        changed = state.overlay.touches(wanted)
        found = state.overlay.rows_of(wanted)
        if changed.all():
            return found
        rest = [column.filter(pa.array(~changed)) for column in keys]
        condition = of_keys(self._schema, columns, rest)
        if len(rest[0]) > VALUES_MAX:
            # The condition is a range.
            rows = self._files.read_keys(state.files, condition, Keys(tuple(rest)))
        else:
            rows = self._files.read(state.files, condition)
        return pa.concat_tables([found, self._untouched(state, rows)])

    def narrowed(self, condition: exp.Expression, parameters: Sequence[Any]) -> pa.Table | None:
        part = of_condition(self._schema, condition, parameters)
        if part is None:
            return None
        state = self._state
        return self._in_front(state, self._files.read(state.files, part))

    def aggregated(self, calls: Sequence[AggregateCall], condition: exp.Expression | None) -> None:
        """None: rows are aggregated here."""

    def scan(self) -> pa.Table:
        state = self._state
        return self._in_front(state, self._files.read(state.files))

    def files(self) -> TableFiles | None:
        """For Spark; None in S3, which needs jars that are not part of the package."""
        if not self._files.is_local:
            return None
        if len(self._state.overlay) > BESIDE_FILES_MAX:
            with suppress(SourceError):
                self.merge()
        state, key = self._state, self._schema.key
        written, deleted = state.overlay.rows(), state.overlay.deleted()
        hidden = pa.concat_tables([written.select(list(key)), deleted.select(list(key))])
        return TableFiles(tuple(state.files.file_uris()), key, hidden, written)

    def count(self) -> int:
        return int(self.scan().num_rows) if len(self._state.overlay) else self._files.count()

    def _in_front(self, state: _State, rows: pa.Table) -> pa.Table:
        return pa.concat_tables([state.overlay.rows(), self._untouched(state, rows)])

    def _untouched(self, state: _State, rows: pa.Table) -> pa.Table:
        """Rows of the files that were not changed since."""
        if not rows.num_rows or not len(state.overlay):
            return rows
        return rows.filter(pa.array(~state.overlay.touches(key_columns(self._schema, rows))))

    # Writing

    def begin(self) -> DeltaPart:
        if self._fenced is not None:
            raise self._fenced
        self._require_own()
        if len(self._state.overlay) >= BEHIND_MAX * self._merge_rows:
            self.merge()
        return DeltaPart()

    def _require_own(self) -> None:
        """MP801 if another app owns the table now; a lock excludes that where there are locks."""
        if not self._files.is_local:
            with self._merging:
                self._files.refresh()
                self._require_mark()

    def _require_mark(self) -> None:
        mark, owner, _ = self._files.held()
        if owner != self._owner or mark.number != self._merged_number():
            raise self._taken_over()

    def _merged_number(self) -> int:
        changes = self._state.overlay.changes
        return changes[0].mark.number - 1 if changes else self._state.mark.number

    def require_next(self, change: RowChange, number: int | None) -> None:
        if change.mark.number != (self._state.mark.number if number is None else number) + 1:
            raise self._taken_over()

    def add(self, change: RowChange) -> None:
        """Show a decided change to readers; it is merged later."""
        with self._state_lock:
            state = self._state
            self._current = _State(state.files, state.overlay.after(change), change.mark)
            size = len(self._current.overlay)
        with self._wake:
            now = time.monotonic()
            due_at = now if size >= self._merge_rows else now + self._merge_s
            self._due_at = due_at if self._due_at is None else min(self._due_at, due_at)
            if self._merger is None and not self._is_closing:
                self._merger = threading.Thread(target=self._merge_when_due, name="millpond-delta", daemon=True)
                self._merger.start()
            self._wake.notify_all()

    def _merge_when_due(self) -> None:
        while True:
            with self._wake:
                while not self._is_closing and (self._due_at is None or time.monotonic() < self._due_at):
                    self._wake.wait(None if self._due_at is None else max(0.0, self._due_at - time.monotonic()))
                if self._is_closing:
                    return
                self._due_at = None
            try:
                self.merge()
            except MillpondError as error:
                # A commit that has to wait for it reports why it fails.
                self._fenced = error if isinstance(error, StateError) else None
                with self._wake:
                    self._due_at = time.monotonic() + self._merge_s

    def merge(self) -> None:
        """Write the changes so far into the files. MP506 while that is not possible, MP801 if they are not ours."""
        with self._merging:
            overlay = self._state.overlay
            if not overlay.changes:
                return
            self._require_place()
            self._files.refresh()
            self._require_mark()
            mark, rows, deleted = overlay.changes[-1].mark, overlay.rows(), overlay.deleted()
            if overlay.is_new:
                self._files.append(rows, mark, self._owner)
            else:
                self._files.merge(rows, deleted, mark, self._owner)
            self._show(mark)
            # The rows are merged: whatever happens here happens again at the next merge.
            with suppress(SourceError):
                if self._files.tidy(self._kept_us):
                    self._show(mark)

    def _show(self, merged: Mark) -> None:
        """Read the new files from now on, with the changes that came during the merge in front."""
        with self._state_lock:
            state = self._state
            later = [change for change in state.overlay.changes if change.mark.number > merged.number]
            self._current = _State(self._files.snapshot, Overlay.of(self._schema, later), state.mark)


class DeltaPart:
    """The part of a commit in one table: nothing is written before the commit is decided."""

    def __init__(self) -> None:
        self.changes: list[tuple[DeltaTable, RowChange]] = []

    def apply(self, table: DeltaTable, change: RowChange) -> None:
        before = [each.mark.number for held, each in self.changes if held is table]
        table.require_next(change, before[-1] if before else None)
        self.changes.append((table, change))

    def commit(self) -> None:
        for table, change in self.changes:
            table.add(change)

    def abort(self) -> None:
        """Nothing was written."""
