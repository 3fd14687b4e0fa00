"""Committed changes that the files of a Delta table do not have yet: the last of each key, in memory.

The commit log has them too, so they outlive the process. A reader sees them in front of the files."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.contracts.remote_table import RowChange
from millpond.schema import Schema
from millpond.tables.heap import Version, empty_version
from millpond.tables.index import Ids
from millpond.tables.lookup_keys import Keys, key_columns
from millpond.tables.next_version import Addition, changed

_NO_IDS = np.empty(0, dtype=np.int64)


class Overlay:
    """Immutable: a change makes a new one, which shares its rows. Made by one thread at a time, read by any."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._keys = Schema.of([schema[name] for name in schema.key], schema.key)
        self.changes: tuple[RowChange, ...] = ()
        # The rows to write, and the keys to delete; no key is in both.
        self._upserts = empty_version(self._schema)
        self._deletes = empty_version(self._keys)
        # Whether none of the rows replaces one that the files have.
        self.is_new = True

    @classmethod
    def of(cls, schema: Schema, changes: Iterable[RowChange]) -> Overlay:
        made = cls(schema)
        for change in changes:
            made = made.after(change)
        return made

    def __len__(self) -> int:
        """The number of keys."""
        return self._upserts.live + self._deletes.live

    def after(self, change: RowChange) -> Overlay:
        """With one more change."""
        made = Overlay(self._schema)
        made.changes = (*self.changes, change)
        made.is_new = self.is_new and not change.replaces
        gone, written = Keys(tuple(change.deletes.columns)), key_columns(self._schema, change.upserts)
        removed = np.concatenate([_there(self._upserts, gone), _there(self._upserts, written)])
        made._upserts = _with(self._upserts, self._schema, removed, change.upserts)
        new = change.deletes
        if new.num_rows:
            new = new.take(pa.array(np.flatnonzero(self._deletes.locate(Keys(gone.columns)) < 0)))
        made._deletes = _with(self._deletes, self._keys, _there(self._deletes, written), new)
        return made

    def touches(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """Which keys were written or deleted since the files."""
        if not len(keys) or not len(self):
            return np.zeros(len(keys), dtype=np.bool_)
        written = self._upserts.locate(Keys(keys.columns)) >= 0
        found: npt.NDArray[np.bool_] = written | (self._deletes.locate(Keys(keys.columns)) >= 0)
        return found

    def rows(self) -> pa.Table:
        """All rows that were written."""
        return self._upserts.all(range(len(self._schema)))

    def rows_of(self, keys: Keys) -> pa.Table:
        """The written rows of some keys, each once."""
        ids = np.unique(_there(self._upserts, keys))
        return self._upserts.table(ids, range(len(self._schema)))

    def deleted(self) -> pa.Table:
        """The keys that were deleted."""
        return self._deletes.all(range(len(self._keys)))


def _there(version: Version, keys: Keys) -> Ids:
    """The rows that have one of the keys."""
    if not len(keys) or not version.live:
        return _NO_IDS
    found = version.locate(Keys(keys.columns))
    return found[found >= 0]


def _with(version: Version, schema: Schema, removed: Ids, added: pa.RecordBatch) -> Version:
    if not len(removed) and not added.num_rows:
        return version
    keys = key_columns(schema, added) if added.num_rows else None
    return changed(version, removed, Addition(schema, added if added.num_rows else None, keys))
