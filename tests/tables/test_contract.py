"""Every backend keeps the table contract."""

from __future__ import annotations

from pathlib import Path

from millpond.contracts.table import Store
from millpond.tables.store import open_store
from millpond.testing.tables import TableContract, VolatileTableContract


class TestMemory(TableContract):
    """Memory tables in a state directory."""


class TestCache(VolatileTableContract):
    """Cache tables, within their size."""

    backend = "cache"
    keeps_rows = False


class TestMemoryWithoutFolder(VolatileTableContract):
    """Memory tables that nothing outlives."""

    keeps_rows = False

    def open(self, folder: Path | None) -> Store:
        return open_store(None)
