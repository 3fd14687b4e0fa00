"""The store: all tables of an app, their published versions, and the commit log that they share."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

from millpond import registry
from millpond.contracts.table import Clock, Ending, Fallback, StoreStats, TableSpec, Transaction
from millpond.errors import Problem, StateError, TableError
from millpond.faults import reach
from millpond.tables.backend import BackgroundCompaction, TableRows, Urgency
from millpond.tables.compaction import Compactor
from millpond.tables.constraints import require_kept
from millpond.tables.draft import Base, Draft
from millpond.tables.durable import Folder, Recovered, TableState, rows_of
from millpond.tables.live_table import LiveTable
from millpond.tables.log_records import draft_of, encode_by_key, encode_change, spec_as_json
from millpond.tables.remote.rows import Parts
from millpond.tables.transaction import Activity, TableTransaction

# A table and what a commit changes in it; a table on a server has its own kind of prepared change.
Change = tuple[LiveTable, Any]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay an interrupt to the end of the block. Python interrupts only its main thread."""
    on_main = threading.current_thread() is threading.main_thread()
    if not on_main or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    caught: list[FrameType | None] = []
    usual = signal.signal(signal.SIGINT, lambda _, frame: caught.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if caught and callable(usual):
            usual(signal.SIGINT, caught[0])


def open_store(folder: Path | None, *, fallback: Fallback | None = None, clock: Clock = time.time) -> TableStore:
    """Open the tables of a folder, recovered as of the last commit; without a folder, tables exist only in this
    process.

    `fallback` evaluates the expressions that Arrow cannot evaluate exactly. Warnings of recovery are in the store's
    `problems`. MP801 if another process uses the folder, MP804 if it is damaged."""
    if folder is None:
        return TableStore(None, Recovered(), fallback, clock)
    opened = Folder(folder, clock)
    try:
        return TableStore(opened, opened.recover(), fallback, clock)
    except BaseException:
        opened.close()
        raise


class TableStore:
    """Readers read `published` once and see all tables as of one commit. Writers lock their tables; the commit lock is
    held only from writing the log record to publishing, so that commits become visible in the order of the log."""

    def __init__(self, folder: Folder | None, recovered: Recovered, fallback: Fallback | None, clock: Clock) -> None:
        self.fallback = fallback
        # The states that the app sets, by name in lower case; a table without one is ready.
        self.states: dict[str, str] = {}
        self.before_commit: Callable[[Transaction], Ending | None] | None = None
        self.followers: Callable[[str], Sequence[str]] | None = None
        self.on_failure: Callable[[BaseException], None] | None = None
        self.activity = Activity()
        self.problems: list[Problem] = list(recovered.problems)
        self.published: Mapping[int, Base] = {}
        self._folder = folder
        self.clock = clock
        self._values: dict[str, Any] = dict(recovered.values)
        self._next_table = recovered.next_table
        self._commit_lock = threading.Lock()
        # Commits that are in the log and wait for a server before they become visible.
        self._unpublished = 0
        self._all_published = threading.Condition(self._commit_lock)
        self._interrupted = False
        self._compactor = Compactor(self._compact_beside, self._report)
        self._by_name: dict[str, LiveTable] = {}
        for id_, rows in recovered.tables.items():
            table = self._live(id_, rows)
            table.updated_at = recovered.updated_at.get(id_)
            self._add(table)

    def _report(self, error: BaseException) -> None:
        """Report an error of a background thread, which can only be a bug."""
        if self.on_failure is None:
            raise error
        self.on_failure(error)

    def create(self, spec: TableSpec) -> LiveTable:
        is_new = spec.name.lower() not in self._by_name
        # A server may take long, so it is asked without the lock.
        remote = self._rows_of(spec) if is_new and registry.find("backend", spec.backend).capabilities.remote else None
        with self._commit_lock:
            there = self._by_name.get(spec.name.lower())
            if there is not None:
                return self._reopen(there, spec)
            rows = remote if remote is not None else self._rows_of(spec)
            # Opened before it is logged, because opening its file may fail.
            assert rows.current is not None
            table = self._live(self._next_table, rows)
            # With the path that the backend has chosen.
            self._append({"create": {"id": table.id, "spec": spec_as_json(table.spec)}})
            self._next_table += 1
            self._add(table)
            return table

    def _rows_of(self, spec: TableSpec) -> TableRows:
        return rows_of(spec, self.clock, self._folder.path if self._folder is not None else None)

    def drop(self, name: str) -> None:
        table = self._by_name.get(name.lower())
        if table is None:
            return
        table.acquire()
        try:
            with self._commit_lock:
                self._append({"drop": table.id, "version": table.rows.current.number})
                table.rows.drop()
                del self._by_name[name.lower()]
                self.published = {i: v for i, v in self.published.items() if i != table.id}
        finally:
            table.release()

    def reshape(self, tables: Sequence[tuple[TableSpec, pa.Table]], puts: Mapping[str, Any]) -> None:
        with self._commit_lock, uninterrupted():
            folder = self._folder.path if self._folder is not None else None
            made = [
                self._live(self._next_table + i, rows_of(spec, self.clock, folder))
                for i, (spec, _) in enumerate(tables)
            ]
            filled = [
                (t, draft_of(t.rows.view(t.rows.current), rows)) for t, (_, rows) in zip(made, tables, strict=True)
            ]
            prepared = [(table, table.prepare(draft)) for table, draft in filled if draft.touched]
            changes, blobs = self._encoded(prepared)
            old = [self._by_name[table.name.lower()] for table in made]
            steps = [
                {
                    "create": {"id": new.id, "spec": spec_as_json(new.spec)},
                    "drop": before.id,
                    "version": before.rows.current.number,
                }
                for new, before in zip(made, old, strict=True)
            ]
            now = self.clock()
            header = {"reshape": steps, "changes": changes, "puts": dict(puts), "at": now}
            parts = self._staged_remotely(prepared)
            try:
                self._log_staged(prepared, header, blobs)
            except BaseException:
                parts.abort()
                raise
            parts.commit()
            self._next_table += len(made)
            gone = {table.id for table in old}
            self.published = {i: v for i, v in self.published.items() if i not in gone}
            for before, table in zip(old, made, strict=True):
                before.rows.drop()
                self._add(table)
            self._publish(prepared, puts, now)

    def table(self, name: str) -> LiveTable:
        return self._by_name[name.lower()]

    def names(self) -> tuple[str, ...]:
        return tuple(t.name for t in list(self._by_name.values()))

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def items(self, prefix: str) -> dict[str, Any]:
        return {k: v for k, v in self._values.copy().items() if k.startswith(prefix)}

    def begin(self, locks: Sequence[str] = ()) -> TableTransaction:
        return self.begin_on({self.table(name) for name in locks})

    def begin_change(self, table: LiveTable) -> TableTransaction:
        """Begin the transaction of a single change to a table."""
        names = self.followers(table.name) if self.followers is not None else ()
        following = [self._by_name[name.lower()] for name in names if name.lower() in self._by_name]
        return self.begin_on({table, *following})

    def begin_on(self, tables: Iterable[LiveTable]) -> TableTransaction:
        """Begin a transaction that locks some tables, in the order of their numbers."""
        taken: list[LiveTable] = []
        try:
            for table in sorted(tables, key=lambda t: t.id):
                table.acquire()
                taken.append(table)
        except BaseException:
            for table in taken:
                table.release()
            raise
        return TableTransaction(self, taken, self.published)

    def commit(self, drafts: Sequence[tuple[LiveTable, Draft]], puts: Mapping[str, Any]) -> None:
        """Commit drafts and values together; called by a transaction that has locked the tables."""
        prepared = [(table, table.prepare(draft)) for table, draft in drafts]
        if not prepared and not puts:
            return
        changes, blobs = self._encoded(prepared)
        header = {"changes": changes, "puts": dict(puts), "at": self.clock()}
        with self.activity.commits.timing(), uninterrupted():
            if any(table.capabilities.remote for table, _ in prepared):
                self._commit_remotely(prepared, header, blobs)
            else:
                self._commit_here(prepared, header, blobs)
        for table, _ in prepared:
            urgency = table.rows.urgency
            if urgency is Urgency.NOW:
                self._compact(table)
            elif urgency is Urgency.SOON:
                self._compactor.ask(table)
        self._maintain()

    def _commit_here(self, prepared: Sequence[Change], header: Mapping[str, Any], blobs: Sequence[Any]) -> None:
        with self._commit_lock:
            self._require_all(prepared)
            self._log_staged(prepared, header, blobs)
            # From here to the publish nothing may fail: what is in the log must become visible. If something does fail,
            # readers keep the published versions and writers get MP810, until a restart applies the commit.
            self._interrupted = True
            reach("commit.applied")
            self._publish(prepared, header["puts"], header["at"])
            self._interrupted = False

    def _commit_remotely(self, prepared: Sequence[Change], header: Mapping[str, Any], blobs: Sequence[Any]) -> None:
        """The same with tables on servers. The servers are waited for without the commit lock, so that others commit
        meanwhile; the tables of this commit are locked, so none of them can change them."""
        parts = self._staged_remotely(prepared)
        try:
            reach("commit.remote.staged")
            with self._commit_lock:
                self._require_all(prepared)
                self._log_staged(prepared, header, blobs)
                if any(table.capabilities.outside and not table.capabilities.remote for table, _ in prepared):
                    # A file has one writer for all tables, which must not be left in the middle of its transaction.
                    parts.commit()
                    self._publish(prepared, header["puts"], header["at"])
                    return
                self._unpublished += 1
        except BaseException:
            parts.abort()
            raise
        reach("commit.remote.decided")
        parts.commit()
        reach("commit.remote.committed")
        with self._all_published:
            self._publish(prepared, header["puts"], header["at"])
            self._unpublished -= 1
            self._all_published.notify_all()

    def _staged_remotely(self, prepared: Sequence[Change]) -> Parts:
        parts = Parts()
        try:
            for table, change in prepared:
                if table.capabilities.remote:
                    parts.stage(table.rows, change)
        except BaseException:
            parts.abort()
            raise
        return parts

    def _require_all(self, prepared: Sequence[Change]) -> None:
        self._check_sound()
        for table, _ in prepared:
            if table.id not in self.published:
                raise table.dropped()

    def _log_staged(self, prepared: Sequence[Change], header: Mapping[str, Any], blobs: Sequence[Any]) -> None:
        """Stage the changes in outside databases, where they may fail, then write the log record, which makes them
        final."""
        try:
            for table, change in prepared:
                table.rows.stage(change)
            reach("commit.staged")
            if header["changes"] or header["puts"] or "reshape" in header:
                self._append(header, blobs)
        except BaseException:
            for table, _ in prepared:
                table.rows.unstage()
            raise

    def create_index(self, table: LiveTable, names: tuple[str, ...]) -> None:
        """Create an index of a table on some columns."""
        table.acquire()
        try:
            with self._commit_lock:
                if names in table.spec.indexes:
                    return
                spec = replace(table.spec, indexes=(*table.spec.indexes, names))
                self._append({"define": {"id": table.id, "spec": spec_as_json(spec)}})
                self._define(table, spec)
        finally:
            table.release()

    def copy(self, table: LiveTable, name: str) -> LiveTable:
        """A new table with another's columns and rows; MP409 if the name is in use."""
        if name.lower() in self._by_name:
            raise TableError("MP409", f"Table '{name}' already exists.", hint="Drop it first, or choose another name.")
        rows = table.to_arrow()
        # A table on a server is not its own copy.
        places = ("table", "collection", "prefix", "path") if table.capabilities.remote else ()
        values = {option: value for option, value in table.spec.values.items() if option not in places}
        made = self.create(replace(table.spec, name=name, values=values))
        made.insert(rows)
        return made

    def stats(self) -> StoreStats:
        return self.activity.stats()

    def checkpoint(self) -> None:
        if self._folder is None:
            return
        with self._folder.checkpointing:
            with self._all_published:
                self._all_published.wait_for(lambda: not self._unpublished)
                self._folder.rotate()
                self._append_pending()
                tables = {t.id: (t, self.published[t.id]) for t in self._by_name.values()}
                values, next_table = dict(self._values), self._next_table
            states = [
                TableState(i, spec_as_json(t.spec), v, t.in_checkpoints, t.codec, t.updated_at if t.durable else None)
                for i, (t, v) in tables.items()
            ]
            self._folder.write_checkpoint(states, values, next_table)

    def _append_pending(self) -> None:
        """Write changes that a server may lack into the new log, because the old one goes."""
        remote = [table for table in self._by_name.values() if table.capabilities.remote]
        rows: list[tuple[int, Any]] = [(table.id, table.rows) for table in remote]
        parts = [encode_by_key(id_, change) for id_, held in rows for change in held.pending]
        if parts:
            blobs = [blob for _, streams in parts for blob in streams]
            self._append({"changes": [entry for entry, _ in parts], "at": self.clock()}, blobs)

    def compact(self) -> None:
        """Wait until no compaction is running or queued."""
        self._compactor.wait()

    def bytes_on_disk(self, table: int) -> int:
        return 0 if self._folder is None else self._folder.bytes_of(table)

    def close(self) -> None:
        self._compactor.close()
        for table in self._by_name.values():
            table.rows.close()
        if self._folder is not None:
            self._folder.close()

    def _live(self, id_: int, rows: TableRows) -> LiveTable:
        plugin = registry.find("backend", rows.spec.backend)
        return LiveTable(self, id_, rows, plugin.capabilities)

    def _add(self, table: LiveTable) -> None:
        self._by_name[table.name.lower()] = table
        self.published = {**self.published, table.id: table.rows.current}

    def _reopen(self, table: LiveTable, spec: TableSpec) -> LiveTable:
        if table.capabilities.files and not spec.values.get("path"):
            spec = replace(spec, values={**spec.values, "path": table.spec.values.get("path")})
        difference = _shape_difference(table.spec, spec)
        if difference:
            message = f"Table '{spec.name}' already exists with another {difference}."
            raise TableError("MP409", message, hint="Drop it, or choose another name.")
        if table.capabilities.remote:
            # Its options are not in the log: it can be read from now on.
            self._define(table, replace(table.spec, values=spec.values, recovered=False))
        if set(spec.schema.checks) - set(table.schema.checks):
            require_kept(spec.name, spec.schema, table.schema.checks, table.to_arrow(), table.evaluator.over)
        indexes = tuple(dict.fromkeys((*spec.indexes, *table.spec.indexes)))
        spec = replace(spec, indexes=indexes, recovered=False)
        if spec_as_json(spec) != spec_as_json(table.spec):
            self._append({"define": {"id": table.id, "spec": spec_as_json(spec)}})
        self._define(table, spec)
        return table

    def _define(self, table: LiveTable, spec: TableSpec) -> None:
        table.rows.define(spec)
        table.define(spec)
        table.renew(table.rows.current)
        self.published = {**self.published, table.id: table.rows.current}

    def _encoded(self, prepared: Sequence[Change]) -> tuple[list[dict[str, Any]], list[Any]]:
        """The parts of a commit for the log record."""
        changes: list[dict[str, Any]] = []
        blobs: list[Any] = []
        for table, change in prepared:
            if self._folder is None or not table.durable:
                continue
            if table.capabilities.remote:
                entry, streams = encode_by_key(table.id, change.change)
                changes.append(entry)
                blobs += streams
            else:
                entry, streams = encode_change(table.id, table.rows.current, change, table.codec)
                # With the version number, because at recovery an outside database may already have the change.
                changes.append(entry | {"version": change.number} if table.capabilities.outside else entry)
                blobs += streams
        return changes, blobs

    def _publish(self, prepared: Sequence[Change], puts: Mapping[str, Any], now: float) -> None:
        published = dict(self.published)
        for table, change in prepared:
            published[table.id] = table.apply(change)
            table.updated_at = now
        values = {**self._values, **puts} if puts else self._values
        self._values = {k: v for k, v in values.items() if v is not None} if None in puts.values() else values
        self.published = published

    def _check_sound(self) -> None:
        if self._interrupted:
            message = "A commit is in the log but could not be applied to the tables."
            raise StateError("MP810", message, hint="Restart the app: recovery applies the commit.")

    def _compact(self, table: LiveTable) -> None:
        """Remove dead rows; called with the table's lock held. Readers continue in the old heap."""
        self._renew(table, table.rows.compact())

    def _compact_beside(self, table: LiveTable) -> None:
        if table.rows.urgency is Urgency.NONE:
            return
        compaction = table.rows.begin_compaction()
        if compaction is not None and compaction.follow():
            self.end_compaction(table, compaction)

    def end_compaction(self, table: LiveTable, compaction: BackgroundCompaction) -> None:
        """Publish a compacted table; only the writer of this table waits while the last commits are applied to it."""
        if not table.acquire_unless(self._compactor.stopping):
            return
        try:
            if table.id in self.published:
                self._renew(table, compaction.end())
        finally:
            table.release()

    def _renew(self, table: LiveTable, version: Base | None) -> None:
        if version is not None:
            table.renew(version)
            with self._commit_lock:
                self.published = {**self.published, table.id: version}

    def _append(self, header: Mapping[str, Any], blobs: Sequence[Any] = ()) -> None:
        self._check_sound()
        if self._folder is not None:
            with self.activity.syncs.timing():
                self._folder.append(header, blobs)

    def _maintain(self) -> None:
        if self._folder is not None and self._folder.wants_checkpoint():
            self._folder.in_background(self.checkpoint, self._report)


def _shape_difference(old: TableSpec, new: TableSpec) -> str:
    """The difference between two definitions that prevents opening the table, or the empty string."""
    shapes: tuple[tuple[str, Callable[[TableSpec], Any]], ...] = (
        ("set of columns", lambda s: [(c.name.lower(), c.type, c.nullable) for c in s.schema]),
        ("key", lambda s: [n.lower() for n in s.schema.key]),
        ("backend", lambda s: s.backend),
        ("treatment of NULL keys", lambda s: s.null_keys),
    )
    return next((word for word, shape in shapes if shape(old) != shape(new)), "")
