"""What the store asks of a backend: the newest version of a table's rows, and how a draft becomes the next."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Protocol

import pyarrow as pa

from millpond.contracts.table import TableSpec
from millpond.tables.draft import Base, Draft
from millpond.tables.history import History
from millpond.tables.index import Ids


class Urgency(IntEnum):
    """When a table must be compacted: not yet, beside the writer, or by the writer before anything else."""

    NONE = 0
    SOON = 1
    NOW = 2


class Prepared(Protocol):
    """A change that has passed every check and only waits for the log."""

    @property
    def number(self) -> int:
        """The version that it makes."""

    @property
    def added(self) -> pa.RecordBatch:
        """The rows that are new."""

    @property
    def vanished(self) -> Ids:
        """What the log must say is gone: rows that are not merely replaced under their key."""


class Beside(Protocol):
    """A compaction under way while the writer goes on."""

    def follow(self) -> bool:
        """Take over what commits did since; False when it is of no use any more."""

    def end(self) -> Base | None:
        """The version to publish, None when it came too late; called with the table's lock."""


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
        """The bytes of the files that it keeps itself."""

    def define(self, spec: TableSpec) -> None:
        """Take over a definition of the same shape, with the indexes that are new in it."""

    def load(self, table: pa.Table, number: int) -> None:
        """Begin with the rows of a checkpoint; called at recovery, before any change."""

    def view(self, version: Any) -> Any:
        """What a reader of a version sees now."""

    def use(self, version: Any, ids: Ids) -> None:
        """Called with the rows that a reader was given."""

    def prepare(self, draft: Draft) -> Any:
        """Check a draft against what was committed since it began; MP405 when the same rows were changed."""

    def has(self, number: int) -> bool:
        """Whether a change that the log holds is there already; asked at recovery of outside backends only."""

    def stage(self, prepared: Any) -> None:
        """Do in a database of its own all that could fail, without committing; called before the log is written."""

    def unstage(self) -> None:
        """Undo `stage`: the log refused."""

    def apply(self, prepared: Any) -> Base:
        """The next version, not yet visible to anyone; called when the log has it, so it must not be refused."""

    @property
    def urgency(self) -> Urgency:
        """Whether there are rows to let go of; asked after every commit."""

    def compact(self) -> Base | None:
        """Let go of rows that nobody can see; a version to publish when that renumbers rows."""

    def begin_compaction(self) -> Beside | None:
        """The same beside the writer, without the table's lock; asked of tables whose urgency is SOON."""

    def drop(self) -> None:
        """The table is gone from the log: remove what is kept elsewhere."""

    def close(self) -> None:
        """Let go of files; the rows are of no use afterwards."""
