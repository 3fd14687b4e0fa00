"""The memory backend: Arrow chunks with a key index in this process, durable through the store's commit log."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from millpond.contracts.table import BackendPlugin, Capabilities, Clock, TableSpec
from millpond.errors import ConflictError, MillpondError, TableError
from millpond.faults import reach
from millpond.options import BOOLEAN, FOLDER, SIZE, Option, choice
from millpond.tables.backend import Urgency
from millpond.tables.compaction import Compaction
from millpond.tables.draft import Draft
from millpond.tables.heap import Version, empty_version
from millpond.tables.index import Ids
from millpond.tables.lookup_keys import key_columns
from millpond.tables.next_version import Addition, Staged, changed, compacted, entries_of, staged
from millpond.tables.recent_changes import Entry, History, renumbered
from millpond.tables.spill_files import SPILL, SpillFolder, temporary_root
from millpond.tables.spill_policy import Spill

# Dead rows are removed when they outnumber the live ones and there are enough of them to be worth the work.
_DEAD_MIN = 4096
# With this many dead rows per live row, the writer waits for the compaction, so that memory is bounded.
_PATIENCE = 4
_FULL_HINT = "Delete rows, increase 'max_memory', or set 'spill' = 'true' to move rows to files. Nothing was changed."
# The number of rows of a checkpoint that are loaded at a time if the table may spill.
_LOADED_ROWS = 131_072


@dataclass(frozen=True)
class Prepared:
    """A change that has passed every check and is ready for the log."""

    staged: Staged
    addition: Addition
    # The removed rows that the log must record: those that are not replaced by a row of the same key.
    vanished: Ids

    @property
    def number(self) -> int:
        return self.staged.version.number

    @property
    def added(self) -> pa.RecordBatch:
        return self.addition.batch


@dataclass
class MemoryRows:
    """The rows of one table: its newest version and its history. Changed only with the table's lock."""

    spec: TableSpec
    current: Version
    history: History = field(default_factory=History)
    commits: int = 0
    compactions: int = 0
    # The store's folder, to which rows are spilled if no other folder is set.
    folder: Path | None = None
    _spill: Spill | None = None

    def __post_init__(self) -> None:
        self.history.start(self.current)
        self._spill = self._wanted_spill(self.spec)

    def define(self, spec: TableSpec) -> None:
        """Apply a definition of the same shape, and create its new indexes."""
        self.spec = spec
        self._spill = self._wanted_spill(spec)
        for names in spec.indexes:
            columns = tuple(spec.schema.position(n) for n in names)
            if columns not in self.current.indexes:
                self.current = self.current.indexed(columns)
        if self._spill is not None:
            self.current = self._spill.fitted(self.current)

    def load(self, table: pa.Table, number: int) -> None:
        """Start with the rows of a checkpoint."""
        empty = empty_version(self.spec.schema, self.spec.indexes)
        filled = loaded(empty, table, number) if self._spill is None else _spilled(empty, table, self._spill)
        self.current = replace(filled, number=number)
        self.history.start(self.current)

    def view(self, version: Version) -> Version:
        """What a reader of a version sees now."""
        return version

    def use(self, version: Version, ids: Ids) -> None:
        """Called with the rows that a reader has read."""

    def prepare(self, draft: Draft) -> Prepared:
        """Check a draft against the commits since it began; MP405 if the same rows were changed."""
        return self._prepared(draft, self._removed(draft), draft.added())

    def _removed(self, draft: Draft) -> Ids:
        assert isinstance(draft.base, Version)
        removed = draft.removed()
        if self.current is draft.base or not len(removed):
            return removed
        removed = renumbered(removed, draft.base.heap, self.current.heap)
        if (removed < 0).any() or not self.current.existing(removed).all():
            raise conflict(self.spec.name)
        return removed

    def _prepared(self, draft: Draft, removed: Ids, addition: Addition) -> Prepared:
        live = self.current
        if addition.keys is None or not addition.count:
            return self._fitting(Prepared(staged(live, removed, addition), addition, removed))
        addition.entries = entries_of(live, addition.keys)
        replaced = self._occupied(live, addition.entries)
        if live is not draft.base and not np.isin(replaced, removed).all():
            raise conflict(self.spec.name)
        vanished = removed[:0] if len(replaced) == len(removed) else np.setdiff1d(removed, replaced)
        return self._fitting(Prepared(staged(live, removed, addition), addition, vanished))

    @property
    def bytes_disk(self) -> int:
        return 0

    def has(self, number: int) -> bool:
        return False

    def stage(self, prepared: Prepared) -> None:
        """Nothing to do: a prepared change cannot fail here."""

    def unstage(self) -> None:
        """Nothing was staged."""

    def drop(self) -> None:
        """Nothing to do: the rows are freed with this object."""
        self.close()

    def close(self) -> None:
        if self._spill is not None:
            self._spill.folder.close()

    def apply(self, prepared: Prepared) -> Version:
        """The next version, not yet visible; nothing here may fail, because the log has it already."""
        first = self.current.rows
        self.current = after = prepared.staged.apply()
        self.history.add(Entry(after.number, prepared.staged.removed, first, after.rows, after.live))
        self.commits += 1
        return after

    @property
    def urgency(self) -> Urgency:
        version = self.current
        dead = version.rows - version.live
        if (dead <= version.live and not (dead and self._is_tight(version))) or dead < _DEAD_MIN:
            return Urgency.NONE
        return Urgency.NOW if dead > _PATIENCE * max(version.live, _DEAD_MIN) else Urgency.SOON

    def compact(self) -> Version | None:
        if self.urgency is Urgency.NONE:
            return None
        try:
            return self.begin_compaction().end()
        except MillpondError:
            # A failing disk does not make the finished commit fail; the compaction is retried after the next one.
            return None

    def begin_compaction(self) -> Compaction:
        reach("compaction.begin")
        version = self.current
        fresh, numbers = compacted(version) if self._spill is None else compacted(version, self._spill.filtered)
        return Compaction(self, version, fresh, numbers)

    def adopt(self, fresh: Version, numbers: Ids) -> Version:
        """Continue in a new heap. Readers of the old one are not affected."""
        fresh = fresh if self._spill is None else self._spill.fitted(fresh)
        reach("compaction.done")
        version = self.current
        self.history.detach(version)
        version.heap.successor = (fresh.heap, numbers)
        self.history.start(fresh)
        self.compactions += 1
        self.current = fresh
        return fresh

    def _wanted_spill(self, spec: TableSpec) -> Spill | None:
        wanted, limit = spec.values.get("spill"), spec.values.get("max_memory")
        if not wanted or limit is None:
            return None
        root = Path(wanted) if wanted is not True else self.folder / SPILL if self.folder else temporary_root()
        if self._spill is not None and self._spill.folder.root == root:
            return replace(self._spill, bytes_max=limit)
        return Spill(SpillFolder(root, spec.name), limit)

    def _occupied(self, live: Version, entries: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Ids:
        assert live.heap.index is not None
        if len(entries) == 1:
            row = live.heap.index.slots.row.item(entries.item(0)) if entries.item(0) >= 0 else -1
            return np.array([row] if row >= 0 and live.has(row) else [], dtype=np.int64)
        rows = live.heap.index.slots.row[entries[entries >= 0]].astype(np.int64)
        return rows[live.existing(rows)]

    def _is_tight(self, version: Version) -> bool:
        """Whether dead rows use memory that `max_memory` reserves for live ones."""
        limit = self.spec.values.get("max_memory")
        return limit is not None and self._spill is None and version.nbytes > limit

    def _fitting(self, prepared: Prepared) -> Prepared:
        """The change with rows spilled, or MP406 if the live rows would exceed `max_memory`. Called before the log is
        written, so that a failing disk makes the change fail."""
        limit = self.spec.values.get("max_memory")
        after = prepared.staged.version
        if limit is None or not prepared.addition.count:
            return prepared
        if self._spill is not None:
            return replace(prepared, staged=replace(prepared.staged, version=self._spill.fitted(after)))
        needed = after.nbytes * after.live // after.rows
        if needed > limit:
            message = f"Table '{self.spec.name}' is full: it would take {needed:,} bytes, 'max_memory' is {limit:,}."
            raise TableError("MP406", message, hint=_FULL_HINT)
        return prepared


def conflict(table: str) -> ConflictError:
    """MP405 for a change that another transaction made first."""
    message = f"Another transaction changed the same rows of '{table}' first."
    return ConflictError("MP405", message, hint="Nothing was changed; retry the transaction.")


def loaded(version: Version, table: pa.Table, number: int) -> Version:
    """A version with the rows of a checkpoint, with its version number."""
    batch = next(iter(table.combine_chunks().to_batches()), None)
    if batch is not None and batch.num_rows:
        keys = key_columns(version.schema, batch) if version.schema.key else None
        version = changed(version, np.empty(0, dtype=np.int64), Addition(version.schema, batch, keys))
    return replace(version, number=number)


def _spilled(version: Version, table: pa.Table, spill: Spill) -> Version:
    """A version with the rows of a checkpoint, with never more of them in memory than allowed."""
    for batch in table.to_batches(max_chunksize=_LOADED_ROWS):
        keys = key_columns(version.schema, batch) if version.schema.key else None
        version = spill.fitted(changed(version, np.empty(0, dtype=np.int64), Addition(version.schema, batch, keys)))
    return version


def make(spec: TableSpec, clock: Clock, folder: Path | None = None) -> MemoryRows:
    """A table without rows."""
    return MemoryRows(spec, empty_version(spec.schema, spec.indexes), folder=folder)


PLUGIN = BackendPlugin(
    name="memory",
    options=(
        Option("durable", BOOLEAN, "true", "Whether the rows survive a crash and a restart."),
        Option("max_memory", SIZE, None, "The maximal size in memory; without 'spill', larger changes are rejected."),
        Option(
            "spill",
            FOLDER,
            "false",
            "Where rows beyond 'max_memory' are stored: true (in the state directory) or a folder.",
        ),
        Option("compression", choice("none", "lz4", "zstd"), "none", "The compression of rows on disk."),
    ),
    capabilities=Capabilities(),
    make=make,
    help="Rows in memory as Arrow chunks with a key index; every commit is first written to the state directory's log.",
)
