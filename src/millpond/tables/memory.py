"""The memory backend: Arrow chunks with a key index in this process, durable through the store's commit log."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from millpond.contracts.table import BackendPlugin, Capabilities, TableSpec
from millpond.errors import ConflictError
from millpond.options import BOOLEAN, Option
from millpond.tables.draft import Draft
from millpond.tables.heap import (
    Addition,
    Staged,
    Version,
    changed,
    compacted,
    empty_version,
    entries_of,
    key_columns,
    staged,
)
from millpond.tables.history import Entry, History, renumbered
from millpond.tables.index import Ids

# Dead rows are dropped when they outnumber the live ones and there are enough of them to be worth it.
_DEAD_MIN = 4096


@dataclass(frozen=True)
class Prepared:
    """A change that has passed every check and only waits for the log."""

    staged: Staged
    added: pa.RecordBatch
    # What the log must say is gone: rows that are not merely replaced under their key.
    vanished: Ids


@dataclass
class MemoryRows:
    """The rows of one table: its newest version and how it got there. Changed only under the table's lock."""

    spec: TableSpec
    current: Version
    history: History = field(default_factory=History)
    commits: int = 0
    compactions: int = 0

    def prepare(self, draft: Draft) -> Prepared:
        """Check a draft against what was committed since it began; MP405 when the same rows were changed."""
        live = self.current
        removed = renumbered(draft.removed(), draft.base.heap, live.heap)
        if (removed < 0).any() or not live.there(removed).all():
            raise self._conflict()
        addition = draft.added()
        if addition.keys is None or not addition.batch.num_rows:
            return Prepared(staged(live, removed, addition), addition.batch, removed)
        entries = entries_of(live, addition.keys)
        replaced = self._occupied(live, entries)
        if live is not draft.base and not np.isin(replaced, removed).all():
            raise self._conflict()
        vanished = removed[:0] if len(replaced) == len(removed) else np.setdiff1d(removed, replaced)
        ready = Addition(addition.batch, addition.keys, entries)
        return Prepared(staged(live, removed, ready), addition.batch, vanished)

    def apply(self, prepared: Prepared) -> Version:
        """The next version, not yet visible to anyone; nothing here can fail, as the log has it already."""
        first = self.current.rows
        self.current = after = prepared.staged.apply()
        self.history.add(Entry(after.number, prepared.staged.removed, first, after.rows, after.live))
        self.commits += 1
        return after

    def compact(self) -> Version | None:
        """The newest version in a new heap without its dead rows, or None while they are few."""
        version = self.current
        dead = version.rows - version.live
        if dead < _DEAD_MIN or dead <= version.live:
            return None
        fresh, numbers = compacted(version)
        self.history.detach(version)
        version.heap.successor = (fresh.heap, numbers)
        self.history.start(fresh)
        self.compactions += 1
        self.current = fresh
        return fresh

    def _occupied(self, live: Version, entries: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Ids:
        assert live.heap.index is not None
        rows = live.heap.index.slots.row[entries[entries >= 0]].astype(np.int64)
        return rows[live.there(rows)]

    def _conflict(self) -> ConflictError:
        message = f"Another transaction changed the same rows of '{self.spec.name}' first."
        return ConflictError("MP405", message, hint="Nothing was changed; try the transaction again.")


def new_rows(spec: TableSpec) -> MemoryRows:
    """A table without rows."""
    return _started(spec, empty_version(spec.schema, spec.indexes))


def loaded_rows(spec: TableSpec, table: pa.Table, number: int) -> MemoryRows:
    """A table as a checkpoint holds it."""
    version = empty_version(spec.schema, spec.indexes)
    batch = next(iter(table.combine_chunks().to_batches()), None)
    if batch is not None and batch.num_rows:
        keys = key_columns(spec.schema, batch) if spec.schema.key else None
        version = changed(version, np.empty(0, dtype=np.int64), Addition(batch, keys))
    return _started(spec, replace(version, number=number))


def _started(spec: TableSpec, version: Version) -> MemoryRows:
    rows = MemoryRows(spec, version)
    rows.history.start(version)
    return rows


PLUGIN = BackendPlugin(
    name="memory",
    options=(Option("durable", BOOLEAN, "true", "Whether the rows survive a crash and a restart."),),
    capabilities=Capabilities(),
    help="Rows in this process as Arrow chunks with a key index; every commit is in the state directory's log first.",
)
