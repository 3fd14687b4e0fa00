"""Every backend keeps the table contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.contracts.table import Store
from millpond.tables.store import open_store
from millpond.testing.tables import TableContract, VolatileTableContract


class TestMemory(TableContract):
    """Memory tables in a state directory."""


class TestCompressedMemory(TableContract):
    """Memory tables whose files are compressed."""

    options = {"compression": "zstd"}


class TestCache(VolatileTableContract):
    """Cache tables, within their size."""

    backend = "cache"
    keeps_rows = False


class TestMemoryWithoutFolder(VolatileTableContract):
    """Memory tables that nothing outlives."""

    keeps_rows = False

    def open(self, folder: Path | None) -> Store:
        return open_store(None)


class TestSqlite(TableContract):
    """SQLite tables beside a state directory."""

    backend = "sqlite"

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.options = {"path": str(tmp_path / "tables.db")}


class TestSqliteWithoutFolder(VolatileTableContract):
    """SQLite tables that are their own only record."""

    backend = "sqlite"
    keeps_rows = False

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.options = {"path": str(tmp_path / "tables.db")}

    def open(self, folder: Path | None) -> Store:
        return open_store(None)


class TestSpilledMemory(TableContract):
    """Memory tables of which no row stays in memory."""

    options = {"spill": True, "max_memory": 1}


class TestSpilledMemoryWithoutFolder(VolatileTableContract):
    """Memory tables that spill into a folder of their own choice."""

    keeps_rows = False

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.options = {"spill": str(tmp_path / "spilled"), "max_memory": 1}

    def open(self, folder: Path | None) -> Store:
        return open_store(None)
