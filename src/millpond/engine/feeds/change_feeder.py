"""The changes of a table as a stream: a snapshot, then every transaction, each whole in one batch.

Delivery: exactly once. The snapshot is stored before its first row is passed on, and the server is asked to discard
changes only when they are in feed files."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from millpond.contracts.change_stream import table_columns
from millpond.contracts.changes import (
    POSITION_GONE,
    Altered,
    Capture,
    Changes,
    ChangeSource,
    Committed,
    Following,
    LogLag,
    Snapshot,
    Truncated,
    starts_empty,
)
from millpond.contracts.feeder import Feeder, Polled, Position
from millpond.contracts.source import SourcePlugin, SourceSpec, SourceStatus
from millpond.disk import disk_errors, make_folder, open_private, sync_folder
from millpond.engine.feeds.change_events import ChangeEvents
from millpond.engine.feeds.change_spool import ChangeSpool
from millpond.errors import Problem, Severity, SourceError, StateError
from millpond.faults import reach

# The position: where the server's log is, and how many parts of the stored snapshot were passed on.
AT, SPOOLED = "at", "parts"
# How long to wait for an event while the flow catches up; afterwards polls must not wait.
WAIT_S, LIVE_S = 0.05, 0.001
# How long one poll takes events while the app runs: other flows are polled by the same thread.
POLL_S = 0.5
# How often a position without changes is stored. Only stored positions are acknowledged.
STORED_S = 10.0
SNAPSHOT_ROWS = 50_000

# Parts, and the position after them; None if the flow stops before.
Parts: TypeAlias = Generator[Polled, None, Position | None]


class ChangeFeeder(Feeder):
    """One captured table. Opening it opens the server; `owner` names the objects that are created there."""

    interval_s = 0.02
    may_be_bad = True

    def __init__(self, spec: SourceSpec, plugin: SourcePlugin, owner: str) -> None:
        assert plugin.open_changes is not None
        self._spec, self._plugin = spec, plugin
        columns = None if spec.columns is None else table_columns(spec.columns, spec.values)
        self._capture = Capture(owner, {spec.id: replace(spec, columns=columns)}, keyed=False)
        self._source: ChangeSource | None = plugin.open_changes(self._capture)
        if spec.columns is not None:
            self._events = ChangeEvents(spec, plugin.name)
            self.schema = self._events.schema
        self._following: Following | None = None
        self._spool: ChangeSpool | None = None
        # The position that was passed on last, and how far the log was read: beyond it if there were no changes.
        self._given: Position | None = None
        self._reached: Position = None
        self._stored_at = time.monotonic()
        self._warned: list[Problem] = []
        self._caught_up = False
        self._stopping = threading.Event()
        self._problems: list[Problem] = []

    def poll(self, position: Position | None, *, final: bool = False) -> Iterator[Polled]:
        try:
            yield from self._poll(position)
        except SourceError:
            self.close()
            raise

    def _poll(self, position: Position | None) -> Iterator[Polled]:
        source = self._opened()
        end = None if self._caught_up else source.end()
        if position is None:
            position = yield from self._begin(source)
        elif SPOOLED in position:
            position = yield from self._snapshot_parts(position)
        if position is None:
            return
        if self._following is None or position != self._given:
            following = self._followed(source, position[AT])
            if following is None:
                position = yield from self._snapshot_rows(source)
                if position is None:
                    return
                following = source.follow(position[AT])
            self._following, self._given, self._reached = following, position, position[AT]
        yield from self._changes(source, self._following, end)

    def _opened(self) -> ChangeSource:
        if self._source is None:
            assert self._plugin.open_changes is not None
            self._source = self._plugin.open_changes(self._capture)
        return self._source

    def _begin(self, source: ChangeSource) -> Parts:
        """The existing rows, or none of them; returns the position after them."""
        if starts_empty(self._spec.values):
            position: Position = {AT: source.start()}
            yield self._moved(position)
            return position
        return (yield from self._snapshot_rows(source))

    def _snapshot_rows(self, source: ChangeSource) -> Parts:
        with closing(source.snapshot([self._spec.id], None)) as snapshot:
            parts = self._store(snapshot)
        self._problems.extend(source.problems())
        if parts is None:
            return None
        reach("stream.snapshot")
        position: Position = {AT: snapshot.position}
        if not parts:
            yield self._moved(position)
            return position
        return (yield from self._snapshot_parts({**position, SPOOLED: 0}))

    @property
    def _file(self) -> Path:
        assert self.folder is not None
        return self.folder / "snapshot.arrow"

    def _store(self, snapshot: Snapshot) -> int | None:
        """Store the rows of a snapshot, durably: it is gone after a crash. Returns the number of parts; None if the
        flow stops."""
        form, at_us = snapshot.form(self._spec.id), time.time_ns() // 1000
        rows_max = min(SNAPSHOT_ROWS, self._spec.values.get("max.rows.per.batch") or SNAPSHOT_ROWS)
        parts = 0
        make_folder(self._file.parent)
        with disk_errors(self._file), os.fdopen(open_private(self._file), "wb") as file:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            with pa.ipc.new_file(file, self.schema, options=options) as writer:
                for part in snapshot.read(self._spec.id):
                    rows = form.arrow_records(pa.Table.from_batches([part.rows]), raw=part.raw)
                    assert rows is not None, "the rows of a snapshot are read on the driver"
                    for first in range(0, rows.num_rows, rows_max):
                        writer.write_batch(self._events.of_snapshot(rows.slice(first, rows_max), at_us))
                        parts += 1
                    if self._stopping.is_set():
                        return None
            file.flush()
            os.fsync(file.fileno())
        with disk_errors(self._file):
            sync_folder(self._file.parent)
        return parts

    def _snapshot_parts(self, position: Position) -> Parts:
        """The parts of the stored snapshot that were not passed on yet; returns the position after it."""
        try:
            with pa.memory_map(str(self._file)) as file:
                reader = pa.ipc.open_file(file)
                for part in range(position[SPOOLED], reader.num_record_batches):
                    if self._stopping.is_set():
                        return None
                    is_last = part + 1 == reader.num_record_batches
                    position = {AT: position[AT], **({} if is_last else {SPOOLED: part + 1})}
                    yield Polled(reader.get_batch(part), position)
        except (OSError, pa.ArrowInvalid) as error:
            hint = "Restore the state directory from a copy, or start again with another --state."
            raise StateError("MP804", f"{self._file} cannot be read: {error}", hint=hint) from error
        return {AT: position[AT]}

    def _followed(self, source: ChangeSource, at: Position) -> Following | None:
        """The changes after a position; None if they are gone and a new snapshot is passed on instead."""
        self._drop_spool()
        if self._following is not None:
            self._following.close()
            self._following = None
        try:
            return source.follow(at)
        except SourceError as error:
            if error.code != POSITION_GONE or self._spec.values.get("cdc.lost") == "fail":
                raise
            hint = "Rows that were deleted in between have no event."
            message = f"{error.problems[0].message} The stream continues with the rows of a new snapshot."
            self._problems.append(Problem(POSITION_GONE, message, None, hint, Severity.WARNING))
            return None

    def _changes(self, source: ChangeSource, following: Following, end: Position | None) -> Iterator[Polled]:
        """The transactions that have arrived; while the flow catches up, all that were committed before its start."""
        wait_s, until = WAIT_S if end is not None else LIVE_S, time.monotonic() + POLL_S
        passed_on = False
        while not self._stopping.is_set():
            if end is not None and source.contains(self._reached, end):
                self._caught_up = True
                if self._given is not None and self._reached != self._given[AT]:
                    yield from self._transactions({AT: self._reached})
                return
            event = following.next(wait_s)
            if isinstance(event, Committed):
                self._reached = event.position
                if passed_on or self._spool is not None or time.monotonic() - self._stored_at >= STORED_S:
                    passed_on = True
                    yield from self._transactions({AT: event.position})
            elif event is not None:
                self._take(event)
            elif end is None:
                return
            if end is None and time.monotonic() >= until:
                return

    def _take(self, event: Changes | Truncated | Altered) -> None:
        """Keep changes until their transaction is complete, and warn about what is not an event."""
        if isinstance(event, Altered):
            self._warn(event.problem)
        elif isinstance(event, Truncated):
            message = f"'{self._spec.shown}' was truncated: the rows that this removed have no events."
            self._warn(Problem("MP515", message, None, "Use DELETE where the stream must show it.", Severity.WARNING))
        else:
            if self._spool is None:
                assert self.folder is not None
                self._spool = ChangeSpool(self.folder, self._spec.id)
            self._spool.add(event)

    def _warn(self, problem: Problem) -> None:
        if problem not in self._warned:
            self._warned.append(problem)
            self._problems.append(problem)

    def _transactions(self, position: Position) -> Iterator[Polled]:
        """Complete transactions, in one batch."""
        spool, self._spool = self._spool, None
        self._given, self._stored_at = position, time.monotonic()
        if spool is not None:
            with closing(spool):
                for event in spool.events():
                    if isinstance(event, Changes):
                        yield Polled(self._events.of_changes(event), bytes=event.rows.nbytes, continues=True)
        reach("stream.changes")
        yield self._moved(position)

    def _moved(self, position: Position) -> Polled:
        return Polled(_none(self.schema), position)

    def kept(self, position: Position) -> None:
        if SPOOLED in position:
            return
        if self._file.exists():
            with disk_errors(self._file):
                self._file.unlink()
        if self._following is not None:
            self._following.acknowledge(position[AT])

    def status(self, known: SourceStatus) -> SourceStatus:
        following = self._following
        lag = following.lag() if following is not None else LogLag()
        return replace(known, log_unread=lag.unread, log_kept=lag.kept)

    def problems(self) -> list[Problem]:
        found, self._problems = self._problems, []
        return found

    def _drop_spool(self) -> None:
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        self._drop_spool()
        for opened in (self._following, self._source):
            if opened is not None:
                with suppress(Exception):
                    opened.close()
        self._following = self._source = None


def _none(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
