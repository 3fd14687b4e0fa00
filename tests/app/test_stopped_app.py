"""The tables of a stopped app whose state directory may only be read."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millpond.app.app import App
from millpond.app.stopped_app import query_state
from millpond.errors import StateError

SQL = """
CREATE TABLE t (n INT PRIMARY KEY, v STRING);
CREATE TABLE u (n INT PRIMARY KEY, v STRING) WITH ('backend' = 'sqlite');
INSERT INTO t VALUES (1, 'one'), (2, 'two');
INSERT INTO u VALUES (3, 'three');
"""
NOBODY = 65534


@pytest.fixture
def state() -> Iterator[Path]:
    """A state directory that everybody may read and nobody may write; pytest's own folders let nobody in."""
    folder = Path(tempfile.mkdtemp(prefix="read-only-"))
    folder.chmod(0o755)
    app = App(sql=SQL, state=folder / "state")
    app.run_once()
    app.stop()
    for path in (folder / "state", *(folder / "state").rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder / "state"
    for path in (folder / "state", folder / "state" / "store"):
        path.chmod(0o755)
    shutil.rmtree(folder)


@contextmanager
def without_rights() -> Iterator[None]:
    """As a user whom permissions bind: for root they are none."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def contents(state: Path) -> dict[str, tuple[int, bytes]]:
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in state.rglob("*") if p.is_file()}


def test_its_tables_can_be_queried_and_nothing_in_it_changes(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, copies = contents(state), state.parent / "copies"
    copies.mkdir()
    copies.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(copies))
    with without_rights():
        with pytest.raises(PermissionError):
            (state / "new").touch()
        assert query_state("SELECT n, v FROM t WHERE n > 1", state=state).to_pylist() == [{"n": 2, "v": "two"}]
        assert query_state("SELECT v FROM u", state=state).to_pylist() == [{"v": "three"}]
        assert query_state("SHOW TABLES", state=state).num_rows == 3
    assert contents(state) == before
    assert list(copies.iterdir()) == []


def test_one_that_an_app_holds_or_that_cannot_be_read_is_reported(state: Path) -> None:
    lock = os.open(state / "lock", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with without_rights(), pytest.raises(StateError, match="MP801"):
        query_state("SELECT n FROM t", state=state)
    os.close(lock)
    (state / "store" / "log-000001").chmod(0o000)
    with without_rights(), pytest.raises(StateError, match=r"MP804 .*log-000001 cannot be read"):
        query_state("SELECT n FROM t", state=state)
