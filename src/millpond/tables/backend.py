"""The interface between the store and a backend: a table's newest version, and how a draft becomes the next one."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Protocol

import pyarrow as pa

from millpond.contracts.table import TableSpec
from millpond.tables.draft import Base, Draft
from millpond.tables.index import Ids
from millpond.tables.recent_changes import History


class Urgency(IntEnum):
    """When a table must be compacted: not yet, in the background, or at once by the writer."""

    NONE = 0
    SOON = 1
    NOW = 2


class Prepared(Protocol):
    """A change that has passed every check and is ready for the log."""

    @property
    def number(self) -> int:
        """The number of the new version."""

    @property
    def added(self) -> pa.RecordBatch:
        """The added rows."""

    @property
    def vanished(self) -> Ids:
        """The removed rows that the log must record: those that are not replaced by a row of the same key."""


class BackgroundCompaction(Protocol):
    """A compaction that runs while the writer continues."""

    def follow(self) -> bool:
        """Apply the commits since the start; False if the compaction has become useless."""

    def end(self) -> Base | None:
        """The version to publish, None if it is too late; called with the table's lock."""


class TableRows(Protocol):
    """The rows of one table. Changed only under the table's lock, and published by the store."""

    spec: TableSpec
    history: History
    commits: int
    compactions: int

    @property
    def current(self) -> Any:
        """The newest version."""

    @property
    def bytes_disk(self) -> int:
        """The size of the backend's own files."""

    def define(self, spec: TableSpec) -> None:
        """Apply a definition of the same shape, and create its new indexes."""

    def load(self, table: pa.Table, number: int) -> None:
        """Start with the rows of a checkpoint; called at recovery, before any change."""

    def view(self, version: Any) -> Any:
        """What a reader of a version sees now."""

    def use(self, version: Any, ids: Ids) -> None:
        """Called with the rows that a reader has read."""

    def prepare(self, draft: Draft) -> Any:
        """Check a draft against the commits since it began; MP405 if the same rows were changed."""

    def has(self, number: int) -> bool:
        """Whether a change in the log was already applied; called at recovery, only for backends outside of the
        store."""

    def stage(self, prepared: Any) -> None:
        """Do everything that can fail in the backend's own database, without committing; called before the log is
        written."""

    def unstage(self) -> None:
        """Undo `stage`, because the log could not be written."""

    def apply(self, prepared: Any) -> Base:
        """The next version, not yet visible; called after the log is written, so it must not fail."""

    @property
    def urgency(self) -> Urgency:
        """Whether there are rows to remove; called after every commit."""

    def compact(self) -> Base | None:
        """Remove rows that no version can see; returns a version to publish if that renumbers rows."""

    def begin_compaction(self) -> BackgroundCompaction | None:
        """The same in the background, without the table's lock; called for tables whose urgency is SOON."""

    def drop(self) -> None:
        """The table was dropped in the log: remove what is stored elsewhere."""

    def close(self) -> None:
        """Close all files; the rows cannot be used afterwards."""
