"""The connectors of docs/connectors.md pass the contract suites that it shows, and run as an installed package."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from millpond import registry
from millpond.testing.documents import read_sections

PAGE = Path(__file__).parents[2] / "docs" / "connectors.md"
TIMEOUT_S = 240


def block(title: str) -> str:
    """A file that the page shows."""
    (found,) = (b.body for section in read_sections(PAGE) for b in section.blocks if b.title == title)
    return str(found)


def shown(title: str) -> ModuleType:
    """A module that the page shows, imported under its own name."""
    module = ModuleType(title)
    exec(compile(block(f"{title}.py"), f"{PAGE}:{title}", "exec"), module.__dict__)
    return module


TestOutbox = pytest.mark.spark(shown("test_outbox").TestOutbox)
TestAudit = pytest.mark.spark(shown("test_audit").TestAudit)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module can be imported, and what the test class registers ends with the test."""
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    for name in ("outbox", "audit"):
        monkeypatch.setitem(sys.modules, name, shown(name))


def installed(folder: Path, files: dict[str, str]) -> Path:
    """Where a package of these files is after pip has installed it, without a network."""
    package, target = folder / "package", folder / "site"
    package.mkdir()
    for name, text in files.items():
        (package / name).write_text(text)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps"]
    command = [*pip, "--no-build-isolation", "--target", str(target), str(package)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return target


def millpond(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "millpond.cli.main", *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@pytest.mark.process
def test_a_package_that_is_installed_brings_its_source(tmp_path: Path) -> None:
    site = installed(tmp_path, {name: block(name) for name in ("outbox.py", "pyproject.toml")})
    (tmp_path / "shop.sql").write_text(block("shop.sql"))
    shop = sqlite3.connect(tmp_path / "shop.db")
    with shop:
        shop.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY, kind TEXT, body TEXT)")
        shop.executemany("INSERT INTO outbox (kind, body) VALUES (?, 'pen')", [("order",)] * 700 + [("refund",)])
    shop.close()
    done = millpond(site, tmp_path, "run", "shop.sql", "--once", "--json", "--no-http")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row for row in rows if "kind" in row] == [{"kind": "order", "n": 700}, {"kind": "refund", "n": 1}]


@pytest.mark.process
def test_a_package_that_cannot_be_imported_is_reported(tmp_path: Path) -> None:
    site = installed(tmp_path, {"outbox.py": "1 / 0\n", "pyproject.toml": block("pyproject.toml")})
    (tmp_path / "shop.sql").write_text(block("shop.sql"))
    done = millpond(site, tmp_path, "check", "shop.sql")
    assert done.returncode == 2
    assert "MP309" in done.stderr
    assert "The source 'outbox' of the package 'millpond-outbox' cannot be loaded: division by zero." in done.stderr
    assert "Traceback" not in done.stderr
