"""The rows of a table on a server, for the store: how a draft becomes a change by key, and what is left to do there.

A change is applied in a transaction of the server, becomes final by the store's log record, and is then committed on
the server together with its mark. If the connection is lost in between, the change is pending: the next use of a table
applies it first, if the mark shows that it is missing. Recovery does the same with the changes in the log."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.contracts.remote_table import Mark, RemotePart, RemoteTable, RowChange
from millpond.contracts.table import Change, Clock, TableFiles, TableSpec
from millpond.disk import write_private
from millpond.errors import StateError
from millpond.tables.backend import Urgency
from millpond.tables.draft import Draft
from millpond.tables.index import Ids
from millpond.tables.lookup_keys import among, key_columns
from millpond.tables.memory import conflict
from millpond.tables.remote.remote_changes import RemoteHistory
from millpond.tables.remote.replicas import CommitTimes, Replicas
from millpond.tables.remote.row_cache import RemoteCache
from millpond.tables.remote.version_reader import RemoteReader, RemoteVersion, stored_schema

OWNER_FILE = "owner"
Connect = Callable[[TableSpec, str], RemoteTable]


@dataclass(frozen=True)
class RemotePrepared:
    """A change that has passed every check here."""

    change: RowChange
    undo: Change
    live: int

    @property
    def number(self) -> int:
        return self.change.mark.number


class RemoteRows:
    """The rows of one table; `connect` makes the table of a server from its definition and the name of the owner."""

    def __init__(self, connect: Connect, spec: TableSpec, clock: Clock, folder: Path | None = None) -> None:
        self.spec, self.stored = spec, stored_schema(spec.schema)
        self.history = RemoteHistory(spec.schema, self.stored)
        self.commits = self.compactions = 0
        self.bytes_disk = 0
        self._connect, self._owner = connect, owner_of(folder)
        # Recovered without its options, which are not in the log: it is opened when it is defined.
        self._is_known = spec.recovered
        self._remote: RemoteTable | None = None
        self._current = RemoteVersion(0, 0)
        self._next_row = 0
        self._pending: list[RowChange] = []
        self._settling = threading.Lock()
        self.cache: RemoteCache | None = None
        self._times = CommitTimes()
        self._replicas: Replicas | None = None
        if not self._is_known:
            self._open()

    @property
    def current(self) -> RemoteVersion:
        return self._current

    @property
    def remote(self) -> RemoteTable:
        assert self._remote is not None, "used before its options are known"
        return self._remote

    @property
    def pending(self) -> tuple[RowChange, ...]:
        """Changes in the log that the server may lack."""
        return tuple(self._pending)

    def _open(self) -> None:
        remote = self._connect(self.spec, self._owner)
        try:
            mark, live = remote.open(known=self._is_known)
            self._remote = remote
            for names in self.spec.indexes:
                remote.create_index(names)
            if self._pending:
                self.settle()
                mark, live = remote.last_mark(), remote.count()
        except BaseException:
            remote.close()
            self._remote = None
            raise
        self._next_row = mark.next_row
        self._times.start(mark.number)
        if self.spec.values.get("read.url"):
            replicated: Any = remote
            self._replicas = replicated.replicas(self._times.behind_s)
        self._publish(RemoteVersion(mark.number, live))

    def _publish(self, version: RemoteVersion) -> None:
        self._current = version
        self.history.published(version)

    def define(self, spec: TableSpec) -> None:
        before, self.spec = self.spec, spec
        if spec.values.get("cache.max_size") is None and spec.values.get("cache.ttl") is None:
            self.cache = None
        if self._remote is None:
            if not spec.recovered:
                self._open()
            return
        for names in spec.indexes:
            if names not in before.indexes:
                self._remote.create_index(names)

    def load(self, table: pa.Table, number: int) -> None:
        """Nothing to do: the server has the rows."""

    def view(self, version: RemoteVersion) -> RemoteReader:
        return RemoteReader(self, version)

    def look(self, version: RemoteVersion) -> RemoteReader:
        """What a reader outside of a transaction sees, who may be answered by a replica."""
        return RemoteReader(self, version, self._replicas)

    def use(self, version: RemoteVersion, ids: Ids) -> None:
        """Nothing to do: no row is evicted here."""

    def read_through(self, size_max: int, ttl_s: float | None, clock: Clock) -> RemoteCache:
        """Cache rows that are read by key from now on. A row that expires on the server expires here too, later by at
        most the time for which it is cached."""
        life_us = self.spec.values.get("ttl")
        lives = [life_s for life_s in (ttl_s, None if life_us is None else life_us / 1_000_000) if life_s is not None]
        self.cache = RemoteCache(size_max, min(lives, default=None), clock, self.stored)
        self.cache.renew(self._current)
        return self.cache

    def files(self, version: RemoteVersion) -> TableFiles | None:
        """None: only the server reads its rows."""
        return None

    def count(self, version: RemoteVersion) -> int:
        """The number of rows of a version; of rows that expire, how many there are now."""
        return version.live if self._remote is None or self._remote.is_exact else self._remote.count()

    def has(self, number: int) -> bool:
        """Called at recovery before a drop; the server decides when it is opened."""
        return False

    def redo(self, number: int, gone: pa.RecordBatch | None, added: pa.RecordBatch | None, next_row: int) -> None:
        """Called at recovery with a change in the log; it is applied when the table is opened, unless it was."""
        deletes = gone if gone is not None else _no_rows(self.stored.arrow(), self.stored.key)
        upserts = added if added is not None else _no_rows(self.stored.arrow(), self.stored.names)
        self._pending.append(RowChange(Mark(number, next_row), deletes, upserts))

    def prepare(self, draft: Draft) -> RemotePrepared:
        base = draft.base
        assert isinstance(base, RemoteReader)
        removed, added, next_row = base.whole(draft.removed()), draft.added().batch, self._next_row
        if not self.spec.schema.key:
            numbers = pa.array(np.arange(next_row, next_row + added.num_rows))
            added = pa.RecordBatch.from_arrays([*added.columns, numbers], schema=self.stored.arrow())
            next_row += added.num_rows
        new = pa.Table.from_batches([added], schema=self.stored.arrow())
        if base.number != self._current.number:
            both = pa.concat_tables([removed.cast(new.schema), new])
            if both.num_rows and self.history.overlaps(both, base.number):
                raise conflict(self.spec.name)
        mark = Mark(self._current.number + 1, next_row)
        change = RowChange(mark, self._deletes(removed, added), added, replaces=bool(removed.num_rows))
        live = self._current.live - removed.num_rows + added.num_rows
        return RemotePrepared(change, Change(mark.number, removed, new), live)

    def _deletes(self, removed: pa.Table, added: pa.RecordBatch) -> pa.RecordBatch:
        """The keys of removed rows that are not replaced."""
        if not removed.num_rows:
            return _no_rows(self.stored.arrow(), self.stored.key)
        if added.num_rows:
            replaced = among(key_columns(self.stored, removed), key_columns(self.stored, added))
            removed = removed.filter(pa.array(~replaced))
        keys = removed.select(list(self.stored.key)).combine_chunks()
        return keys.to_batches()[0] if keys.num_rows else _no_rows(self.stored.arrow(), self.stored.key)

    def stage_in(self, part: RemotePart[RemoteTable], prepared: RemotePrepared) -> None:
        """Apply a change on the server, without committing it there."""
        part.apply(self.remote, prepared.change)

    def decided(self, prepared: RemotePrepared) -> None:
        """The log has the change; called before the server commits it."""
        self.history.add(prepared.undo)

    def postponed(self, prepared: RemotePrepared) -> None:
        """The server may not have committed it: this is found out when the table is needed again."""
        self._pending.append(prepared.change)

    def stage(self, prepared: RemotePrepared) -> None:
        """Nothing to do: see `stage_in`."""

    def unstage(self) -> None:
        """Nothing to do: its part is aborted."""

    def apply(self, prepared: RemotePrepared) -> RemoteVersion:
        self._next_row = prepared.change.mark.next_row
        version = RemoteVersion(prepared.number, prepared.live)
        if self.cache is not None:
            self.cache.follow(version, prepared.undo)
        self._publish(version)
        self.commits += 1
        self._times.add(version.number)
        return self._current

    def settle(self) -> None:
        """Apply what is pending. MP506 while the server is away."""
        if not self._pending:
            return
        with self._settling:
            if not self._pending:
                return
            mark, part = self.remote.last_mark(), self.remote.begin()
            try:
                for change in self._pending:
                    if change.mark.number > mark.number:
                        self._require_next(change, mark)
                        part.apply(self.remote, change)
                        mark = change.mark
                part.commit()
            except BaseException:
                part.abort()
                raise
            self._pending.clear()

    def _require_next(self, change: RowChange, mark: Mark) -> None:
        if change.mark.number > mark.number + 1:
            message = (
                f"The server's table of '{self.spec.name}' is older than the log: it has version {mark.number}, not "
                f"{change.mark.number - 1}."
            )
            raise StateError("MP804", message, hint="Restore the table that belongs to this state directory.")

    @property
    def urgency(self) -> Urgency:
        return Urgency.NONE

    def begin_compaction(self) -> None:
        """None: the server has only live rows."""

    def compact(self) -> None:
        """Nothing to do."""

    def drop(self) -> None:
        # A table that the file no longer defines is not opened: its rows stay on the server.
        if self._remote is not None:
            self._remote.drop()
            self.close()

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()
            self._remote = None


class Parts:
    """The parts of one commit on all servers that it changes, one for each; used by one thread."""

    def __init__(self) -> None:
        self._parts: dict[str, RemotePart[RemoteTable]] = {}
        self._staged: list[tuple[str, RemoteRows, RemotePrepared]] = []

    def stage(self, rows: Any, prepared: RemotePrepared) -> None:
        """Apply a change to the rows of a table on a server, without committing it; on an error call `abort`."""
        rows.settle()
        place = rows.remote.place
        if place not in self._parts:
            self._parts[place] = rows.remote.begin()
        rows.stage_in(self._parts[place], prepared)
        self._staged.append((place, rows, prepared))

    def commit(self) -> None:
        """Commit on all servers; never raises: what a server does not confirm is pending."""
        for _, rows, prepared in self._staged:
            rows.decided(prepared)
        for place, part in self._parts.items():
            try:
                part.commit()
            except Exception:
                part.abort()
                for where, rows, prepared in self._staged:
                    if where == place:
                        rows.postponed(prepared)

    def abort(self) -> None:
        for part in self._parts.values():
            part.abort()


def owner_of(folder: Path | None) -> str:
    """The name under which a state directory owns tables on servers; chosen once."""
    if folder is None:
        return uuid.uuid4().hex
    file = folder / OWNER_FILE
    if not file.exists():
        write_private(file, uuid.uuid4().hex.encode())
    return file.read_text()


def _no_rows(schema: pa.Schema, names: tuple[str, ...]) -> pa.RecordBatch:
    fields = [schema.field(name) for name in names]
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in fields], schema=pa.schema(fields))
