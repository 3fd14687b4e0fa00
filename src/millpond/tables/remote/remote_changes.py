"""The recent changes of a table on a server: for views, for conflicts, and to undo what a reader must not see yet."""

from __future__ import annotations

import threading
from collections import deque
from weakref import WeakSet

import pyarrow as pa

from millpond.contracts.table import Change
from millpond.schema import Schema
from millpond.tables.lookup_keys import Keys, among, key_columns
from millpond.tables.recent_changes import COMMITS_MAX, ROWS_MAX
from millpond.tables.remote.version_reader import RemoteReader, RemoteVersion


class RemoteHistory:
    """Changes as rows with all stored columns, oldest first. A change is added before the server makes it visible, so
    a reader of the server finds it here. What the oldest version in use needs is kept, however much."""

    def __init__(self, schema: Schema, stored: Schema) -> None:
        self._schema, self._stored = schema, stored
        self._changes: deque[Change] = deque()
        self._versions: WeakSet[RemoteVersion] = WeakSet()
        self._rows = 0
        self._lock = threading.Lock()

    def published(self, version: RemoteVersion) -> None:
        """A version may be read from now on."""
        with self._lock:
            self._versions.add(version)

    def add(self, change: Change) -> None:
        with self._lock:
            self._changes.append(change)
            self._rows += _size(change)
            oldest = min((version.number for version in self._versions), default=change.version)
            while self._changes and (self._rows > ROWS_MAX or len(self._changes) > COMMITS_MAX):
                if self._changes[0].version > oldest:
                    break
                self._rows -= _size(self._changes.popleft())

    def clear(self) -> None:
        """Somebody else changed the table: nothing before is known."""
        with self._lock:
            self._changes.clear()
            self._rows = 0

    def after(self, number: int) -> list[Change]:
        """The changes after a version, with all stored columns."""
        with self._lock:
            return [change for change in self._changes if change.version > number]

    def changes_since(self, number: int, newest: RemoteReader) -> tuple[Change, ...] | None:
        """The changes of the commits after a version, oldest first; None if some are no longer stored."""
        found = [change for change in self.after(number) if change.version <= newest.number]
        if len(found) != newest.number - number:
            return None
        names = list(self._schema.names)
        return tuple(Change(c.version, c.removed.select(names), c.added.select(names)) for c in found)

    def version(self, number: int, newest: RemoteReader) -> RemoteReader | None:
        """An older version, if all changes since are known."""
        if number == newest.number:
            return newest
        since = [change for change in self.after(number) if change.version <= newest.number]
        if number > newest.number or len(since) != newest.number - number:
            return None
        grown = sum(change.added.num_rows - change.removed.num_rows for change in since)
        return newest.at(number, 0, newest.live - grown)

    def undone(self, rows: pa.Table, number: int) -> pa.Table:
        """Rows of the server as they were at a version, and with them all that were changed since."""
        later = self.after(number)
        if not later:
            return rows
        touched, restored = _no_keys(self._stored), []
        for change in later:
            # Of several changes of a key, the first one after the version has the row that it had.
            mine = _keys(self._stored, change.removed)
            restored.append(change.removed.filter(pa.array(~among(mine, touched))) if len(mine) else change.removed)
            touched = _joined(touched, mine, _keys(self._stored, change.added))
        if rows.num_rows:
            rows = rows.filter(pa.array(~among(_keys(self._stored, rows), touched)))
        return pa.concat_tables([rows, *restored])

    def overlaps(self, rows: pa.Table, number: int) -> bool:
        """Whether a commit after a version changed one of these rows."""
        keys = _keys(self._stored, rows)
        for change in self.after(number):
            for part in (change.removed, change.added):
                if part.num_rows and among(keys, _keys(self._stored, part)).any():
                    return True
        return False


def _size(change: Change) -> int:
    return int(change.removed.num_rows + change.added.num_rows)


def _keys(schema: Schema, rows: pa.Table) -> Keys:
    names = [schema.position(name) for name in schema.key]
    return (
        key_columns(schema, rows) if rows.num_rows else Keys(tuple(pa.array([], schema.columns[p].type) for p in names))
    )


def _no_keys(schema: Schema) -> Keys:
    return Keys(tuple(pa.array([], schema[name].type) for name in schema.key))


def _joined(*parts: Keys) -> Keys:
    return Keys(
        tuple(pa.concat_arrays(list(columns)) for columns in zip(*(part.columns for part in parts), strict=True))
    )
