"""All tables of an app: what is published, what is put, and the one commit log behind them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond import registry
from millpond.contracts.table import BackendPlugin, Ending, Fallback, TableSpec, Transaction
from millpond.errors import Problem, StateError, TableError
from millpond.faults import reach
from millpond.tables.backends import rows_of
from millpond.tables.compaction import Compactor
from millpond.tables.constraints import require_kept
from millpond.tables.draft import Base, Draft
from millpond.tables.durable import Folder, Recovered, TableState
from millpond.tables.live import LiveTable
from millpond.tables.memory import Clock
from millpond.tables.records import draft_of, encode_change, spec_as_json
from millpond.tables.rows import Beside, Prepared, TableRows, Urgency
from millpond.tables.transaction import TableTransaction
from millpond.tables.uninterrupted import uninterrupted


def open_store(folder: Path | None, *, fallback: Fallback | None = None, clock: Clock = time.time) -> TableStore:
    """The tables of a folder, recovered as of the last commit; without a folder nothing outlives the process.

    `fallback` evaluates the expressions that Arrow cannot evaluate exactly. What recovery had to cut off is in the
    store's `problems`. MP801 when another process has the folder, MP804 when it is damaged."""
    if folder is None:
        return TableStore(None, Recovered(), fallback, clock)
    opened = Folder(folder, clock)
    try:
        return TableStore(opened, opened.recover(), fallback, clock)
    except BaseException:
        opened.close()
        raise


class TableStore:
    """Readers take `published` once and see all tables as of one commit. Writers hold the locks of their tables; the
    commit lock is held only from the log's record to the publish, so commits are visible in the order of the log."""

    def __init__(self, folder: Folder | None, recovered: Recovered, fallback: Fallback | None, clock: Clock) -> None:
        self.fallback = fallback
        # What the app says of its tables, by name in lower case; a table alone is ready.
        self.states: dict[str, str] = {}
        self.before_commit: Callable[[Transaction], Ending | None] | None = None
        self.followers: Callable[[str], Sequence[str]] | None = None
        self.on_failure: Callable[[BaseException], None] | None = None
        self.problems: list[Problem] = list(recovered.problems)
        self.published: Mapping[int, Base] = {}
        self._folder = folder
        self.clock = clock
        self._values: dict[str, Any] = dict(recovered.values)
        self._next_table = recovered.next_table
        self._commit_lock = threading.Lock()
        self._interrupted = False
        self._compactor = Compactor(self._compact_beside, self._report)
        self._by_name: dict[str, LiveTable] = {}
        for id_, rows in recovered.tables.items():
            table = self._live(id_, rows)
            table.updated_at = recovered.updated_at.get(id_)
            self._add(table)

    def _report(self, error: BaseException) -> None:
        """What failed in a thread beside the commits; only a bug does."""
        if self.on_failure is None:
            raise error
        self.on_failure(error)

    def create(self, spec: TableSpec) -> LiveTable:
        with self._commit_lock:
            there = self._by_name.get(spec.name.lower())
            if there is not None:
                return self._reopen(there, spec)
            rows = rows_of(spec, self.clock, self._folder.path if self._folder is not None else None)
            # Opened before the log says that it is there: a file may be refused.
            assert rows.current is not None
            table = self._live(self._next_table, rows)
            self._append({"create": {"id": table.id, "spec": spec_as_json(spec)}})
            self._next_table += 1
            self._add(table)
            return table

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
            filled = [(t, draft_of(t.rows.current, rows)) for t, (_, rows) in zip(made, tables, strict=True)]
            prepared = [(table, table.prepare(draft)) for table, draft in filled if draft.touched]
            changes, blobs = self._encoded(prepared)
            old = [self._by_name[table.name.lower()] for table in made]
            steps = [
                {"create": {"id": new.id, "spec": spec_as_json(new.spec)}, "drop": before.id}
                for new, before in zip(made, old, strict=True)
            ]
            now = self.clock()
            self._append({"reshape": steps, "changes": changes, "puts": dict(puts), "at": now}, blobs)
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
        """Begin the transaction of one call that changes a table."""
        names = self.followers(table.name) if self.followers is not None else ()
        following = [self._by_name[name.lower()] for name in names if name.lower() in self._by_name]
        return self.begin_on({table, *following})

    def begin_on(self, tables: Iterable[LiveTable]) -> TableTransaction:
        """Begin with the locks of some tables, taken in the order of their numbers."""
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
        """Make drafts and values visible together; called by a transaction that holds the tables' locks."""
        prepared = [(table, table.prepare(draft)) for table, draft in drafts]
        if not prepared and not puts:
            return
        changes, blobs = self._encoded(prepared)
        with self._commit_lock, uninterrupted():
            self._check_sound()
            for table, _ in prepared:
                if table.id not in self.published:
                    raise table.dropped()
            now = self.clock()
            self._log_staged(prepared, {"changes": changes, "puts": dict(puts), "at": now}, blobs)
            # From here to the publish nothing may stop it: what is in the log must become visible. If something does,
            # readers stay with what was published and writers are refused, until a restart does the commit.
            self._interrupted = True
            reach("commit.applied")
            self._publish(prepared, puts, now)
            self._interrupted = False
        for table, _ in prepared:
            urgency = table.rows.urgency
            if urgency is Urgency.NOW:
                self._compact(table)
            elif urgency is Urgency.SOON:
                self._compactor.ask(table)
        self._maintain()

    def _log_staged(
        self, prepared: Sequence[tuple[LiveTable, Prepared]], header: Mapping[str, Any], blobs: Sequence[Any]
    ) -> None:
        """Let databases outside do all that they could refuse, then write the record that decides."""
        try:
            for table, change in prepared:
                table.rows.stage(change)
            reach("commit.staged")
            if header["changes"] or header["puts"]:
                self._append(header, blobs)
        except BaseException:
            for table, _ in prepared:
                table.rows.unstage()
            raise

    def create_index(self, table: LiveTable, names: tuple[str, ...]) -> None:
        """Index a table by some columns from now on."""
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
        """A new table with another's columns and rows; MP409 if the name is taken."""
        if name.lower() in self._by_name:
            raise TableError(
                "MP409", f"There is a table '{name}' already.", hint="Drop it first, or choose another name."
            )
        rows = table.to_arrow()
        made = self.create(replace(table.spec, name=name))
        made.insert(rows)
        return made

    def checkpoint(self) -> None:
        if self._folder is None:
            return
        with self._folder.checkpointing:
            with self._commit_lock:
                self._folder.rotate()
                tables = {t.id: (t, self.published[t.id]) for t in self._by_name.values()}
                values, next_table = dict(self._values), self._next_table
            states = [
                TableState(i, spec_as_json(t.spec), v, t.in_checkpoints, t.codec, t.updated_at if t.durable else None)
                for i, (t, v) in tables.items()
            ]
            self._folder.write_checkpoint(states, values, next_table)

    def compact(self) -> None:
        """Return when no compaction is under way or due."""
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
        plugin: BackendPlugin = registry.find("backend", rows.spec.backend)
        return LiveTable(self, id_, rows, plugin.capabilities)

    def _add(self, table: LiveTable) -> None:
        self._by_name[table.name.lower()] = table
        self.published = {**self.published, table.id: table.rows.current}

    def _reopen(self, table: LiveTable, spec: TableSpec) -> LiveTable:
        difference = _shape_difference(table.spec, spec)
        if difference:
            message = f"Table '{spec.name}' is there already, with another {difference}."
            raise TableError("MP409", message, hint="Drop it, or give the new one another name.")
        if set(spec.schema.checks) - set(table.schema.checks):
            require_kept(spec.name, spec.schema, table.schema.checks, table.to_arrow(), table.evaluator.over)
        indexes = tuple(dict.fromkeys((*spec.indexes, *table.spec.indexes)))
        spec = replace(spec, indexes=indexes)
        if spec_as_json(spec) != spec_as_json(table.spec):
            self._append({"define": {"id": table.id, "spec": spec_as_json(spec)}})
        self._define(table, spec)
        return table

    def _define(self, table: LiveTable, spec: TableSpec) -> None:
        table.rows.define(spec)
        table.define(spec)
        table.renew(table.rows.current)
        self.published = {**self.published, table.id: table.rows.current}

    def _encoded(self, prepared: Sequence[tuple[LiveTable, Prepared]]) -> tuple[list[dict[str, Any]], list[Any]]:
        """The parts of a commit that the log must hold."""
        changes: list[dict[str, Any]] = []
        blobs: list[Any] = []
        for table, change in prepared:
            if table.durable and self._folder is not None:
                entry, streams = encode_change(table.id, table.rows.current, change, table.codec)
                # A database outside may have the change already when the log is read again.
                changes.append(entry | {"version": change.number} if table.capabilities.outside else entry)
                blobs += streams
        return changes, blobs

    def _publish(self, prepared: Sequence[tuple[LiveTable, Prepared]], puts: Mapping[str, Any], now: float) -> None:
        published = dict(self.published)
        for table, change in prepared:
            published[table.id] = table.apply(change)
            table.updated_at = now
        values = {**self._values, **puts} if puts else self._values
        self._values = {k: v for k, v in values.items() if v is not None} if None in puts.values() else values
        self.published = published

    def _check_sound(self) -> None:
        if self._interrupted:
            message = "A commit failed between the log and the tables."
            raise StateError("MP810", message, hint="Start the app again: it goes on with that commit done.")

    def _compact(self, table: LiveTable) -> None:
        """Drop dead rows; called with the table's lock held. Readers go on in the old heap."""
        self._renew(table, table.rows.compact())

    def _compact_beside(self, table: LiveTable) -> None:
        if table.rows.urgency is Urgency.NONE:
            return
        compaction = table.rows.begin_compaction()
        if compaction is not None and compaction.follow():
            self.end_compaction(table, compaction)

    def end_compaction(self, table: LiveTable, compaction: Beside) -> None:
        """Publish a table without its dead rows: the writer waits while the last commits are taken over, and nobody
        else."""
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
            self._folder.append(header, blobs)

    def _maintain(self) -> None:
        if self._folder is not None and self._folder.wants_checkpoint():
            self._folder.in_background(self.checkpoint, self._report)


def _shape_difference(old: TableSpec, new: TableSpec) -> str:
    """What makes two definitions different tables, or nothing."""
    shapes: tuple[tuple[str, Callable[[TableSpec], Any]], ...] = (
        ("set of columns", lambda s: [(c.name.lower(), c.type, c.nullable) for c in s.schema]),
        ("key", lambda s: [n.lower() for n in s.schema.key]),
        ("backend", lambda s: s.backend),
        ("treatment of NULL keys", lambda s: s.null_keys),
    )
    return next((word for word, shape in shapes if shape(old) != shape(new)), "")
