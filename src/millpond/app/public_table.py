"""The public view of a table keyed by message keys: without the hidden column that stores those keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pyarrow as pa

from millpond.contracts.source import IDENTITY, without_identity
from millpond.contracts.table import Change, Keys, ReadTable, Table, documented
from millpond.errors import TableError


def shown(table: Table) -> Table:
    """The table itself, or a wrapper that hides the key column if there is one, and delegates everything else."""
    return cast("Table", ShownTable(table)) if IDENTITY in table.schema else table


@documented
class ShownTable:
    """A table without its key column, which therefore has no key for users."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.schema = without_identity(table.schema)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def __dir__(self) -> list[str]:
        return dir(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def get(self, key: Any) -> dict[str, Any] | None:
        raise self._without_key()

    def contains(self, key: Any) -> bool:
        raise self._without_key()

    def find(self, *condition: Any, columns: Sequence[str] | None = None, **page: Any) -> pa.Table:
        found: pa.Table = self._table.find(*condition, columns=self._columns(columns), **page)
        return found

    def lookup(self, keys: Keys, by: str | Sequence[str] | None = None) -> pa.Table:
        if by is None:
            raise self._without_key()
        return self._table.lookup(keys, by=by).drop_columns([IDENTITY])

    def scan(self, where: Any = None, batch_rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        return (batch.select(list(self.schema.names)) for batch in self._table.scan(where, batch_rows))

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        return self._table.to_arrow(self._columns(columns))

    def snapshot(self, version: int | None = None) -> ReadTable:
        return cast("ReadTable", ShownTable(self._table.snapshot(version)))

    def changes_since(self, version: int) -> tuple[Change, ...] | None:
        found = self._table.changes_since(version)
        return None if found is None else tuple(self._change(change) for change in found)

    def _change(self, change: Change) -> Change:
        removed, added = (rows.drop_columns([IDENTITY]) for rows in (change.removed, change.added))
        return Change(change.version, removed, added)

    def _columns(self, columns: Sequence[str] | None) -> Sequence[str]:
        return self.schema.names if columns is None else columns

    def _without_key(self) -> TableError:
        hint = "Declare a PRIMARY KEY in its definition, or read it by find(condition)."
        return TableError("MP409", f"Table '{self._table.name}' is keyed by message keys, not by a column.", hint=hint)
