"""A backend of another package is one file and a test class: it is found by its entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tables.ninth_backend import PLUGIN, NinthTable

from millpond import registry
from millpond.contracts.table import TableSpec
from millpond.testing.remote_tables import RemoteTableContract
from millpond.testing.table_harness import EVENTS

ROOT = Path(__file__).parents[2]


def install(folder: Path) -> None:
    """What pip leaves of a package with an entry point."""
    about = folder / "ninth-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: ninth\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[millpond.backends]\nninth = tests.tables.ninth_backend:PLUGIN\n")


class TestNinth(RemoteTableContract):
    """Tables of a backend that is not Millpond's."""

    backend = "ninth"

    @pytest.fixture(autouse=True)
    def _installed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        registry._installed.cache_clear()
        install(tmp_path / "site")
        monkeypatch.syspath_prepend(tmp_path / "site")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), str(ROOT), str(ROOT / "src")]))
        self.options = {"url": str(tmp_path / "file")}
        yield
        registry._installed.cache_clear()

    def outside(self, table: str) -> int:
        reader = NinthTable(TableSpec(table, EVENTS, "ninth", self.options), "")
        return int(reader.held()[table].rows.num_rows)


def test_an_app_uses_a_backend_by_its_entry_point(tmp_path: Path) -> None:
    install(tmp_path / "site")
    (tmp_path / "app.sql").write_text(
        "CREATE TABLE t (id INT PRIMARY KEY, name STRING) WITH ('backend' = 'ninth', 'url' = 'file');\n"
        "INSERT INTO t VALUES (1, 'a'), (2, 'b');\nSELECT name FROM t WHERE id = 2;\n"
    )
    command = [sys.executable, "-m", "millpond.cli.main", "run", "app.sql", "--once", "--state", "state"]
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, timeout=240, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "b" in done.stdout.split()


def test_a_backend_that_is_not_installed_is_unknown() -> None:
    with pytest.raises(Exception, match="MP308"):
        registry.find("backend", PLUGIN.name)
