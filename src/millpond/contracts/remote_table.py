"""The contract of a table whose rows are on a server: by key, in transactions of the server that carry our mark.

There are no row numbers and no versions. `tables.remote` provides those above it: versions by undoing what was
committed since, conflicts, changes, and recovery from the commit log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.table import AggregateCall


@dataclass(frozen=True)
class Mark:
    """The last change that a server has applied to a table: the number of the version, and the number that the next row
    of a table without key gets."""

    number: int
    next_row: int = 0


@dataclass(frozen=True)
class RowChange:
    """What one commit does to a table, by key. `deletes` has the key columns, `upserts` all columns; no key is in
    both. `mark` is what the server has afterwards. `replaces`: whether there may be rows with these keys."""

    mark: Mark
    deletes: pa.RecordBatch
    upserts: pa.RecordBatch
    replaces: bool = True


# The class of a backend's tables.
Table_contra = TypeVar("Table_contra", contravariant=True)


class RemotePart(Protocol[Table_contra]):
    """The part of a commit that one server has, in one of its transactions. Used by one thread."""

    def apply(self, table: Table_contra, change: RowChange) -> None:
        """Make a change to a table of this server, not visible to others yet, together with its mark. Called before the
        commit is decided: whatever the server may reject is rejected here. ConstraintError MP404 for a value that it
        cannot store, StateError MP801 if the mark is not the one before this change."""

    def commit(self) -> None:
        """Make the changes visible. Called after the commit is decided. If it raises, the changes may or may not have
        been made: the mark shows which."""

    def abort(self) -> None:
        """Undo everything. Never raises."""


class RemoteTable(Protocol):
    """One table of a server. The columns always have a key. All methods but `close` raise SourceError MP506 if the
    server cannot be reached, MP507 and MP508 if it cannot be used as configured. Thread-safe."""

    # Tables of the same place are changed in one transaction.
    place: str
    # Whether rows disappear only by our changes, so that they can be counted here.
    is_exact: bool

    def open(self, *, known: bool) -> tuple[Mark, int]:
        """Connect, fence others off, and create the table or take over the existing one; returns its mark and the
        number of its rows. Called once, before any other method. `known`: the state directory has the table already, so
        it must exist, and be ours. TableError MP409 if the columns do not fit, StateError MP801 if another app
        uses it."""

    def create_index(self, columns: Sequence[str]) -> None:
        """Create an index unless there is one on these columns."""

    def last_mark(self) -> Mark:
        """The mark of the last change; StateError MP801 if another app has taken the table over."""

    def lookup(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> pa.Table:
        """All columns of the rows where these columns have one of the values; NULL matches NULL."""

    def narrowed(self, condition: exp.Expression, parameters: Sequence[object]) -> pa.Table | None:
        """All columns of the rows that may satisfy a condition, and maybe others; None if the server cannot evaluate
        any part of it as Spark does."""

    def aggregated(self, calls: Sequence[AggregateCall], condition: exp.Expression | None) -> list[int | None] | None:
        """The values of aggregates over the rows that satisfy a condition; None if the server cannot evaluate all of
        it as Spark does."""

    def scan(self) -> pa.Table:
        """All rows."""

    def count(self) -> int:
        """The number of rows now."""

    def begin(self) -> RemotePart[Self]:
        """Begin a transaction of the server."""

    def drop(self) -> None:
        """Remove the table, if it was created by us, and its mark."""

    def close(self) -> None:
        """Release all connections, and let others in."""
