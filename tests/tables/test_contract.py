"""Every backend keeps the table contract."""

from __future__ import annotations

from pathlib import Path

from millpond.contracts.table import Store
from millpond.tables.store import open_store
from millpond.testing.tables import (
    ReadingContract,
    TableContract,
    TransactionContract,
    TypesContract,
    VersionContract,
    WritingContract,
)


class TestMemory(TableContract):
    """Memory tables in a state directory."""


class TestCache(ReadingContract, WritingContract, TypesContract, TransactionContract, VersionContract):
    """Cache tables, within their size."""

    backend = "cache"
    keeps_rows = False


class TestMemoryWithoutFolder(ReadingContract, WritingContract, TransactionContract, VersionContract):
    """Memory tables that nothing outlives."""

    def open(self, folder: Path | None) -> Store:
        return open_store(None)
