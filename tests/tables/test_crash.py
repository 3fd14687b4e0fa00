"""A process killed at any write, sync or rename loses nothing that was committed and keeps nothing that was not."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from millpond.faults import POINTS
from millpond.tables.store import open_store

WORKER = Path(__file__).with_name("crash_worker.py")
sys.path.insert(0, str(WORKER.parent))
import crash_worker  # type: ignore[import-not-found]  # noqa: E402

KILLED = 137
AT_RECOVERY = ("log.cut.begin", "spill.abandoned.removed")
# The commit under way is in the log from these points on, though it was not acknowledged; rows spill before that, and
# again when the commit is followed by a compaction.
WRITTEN = ("log.append.written", "log.append.synced", "commit.applied", "sqlite.commit", "spill", "compaction")


@cache
def expected(turns: int) -> dict[str, Any]:
    return crash_worker.expected(turns)


def work(folder: Path, fault: str) -> int:
    """Run the worker as a process, to its fault or to its end."""
    environment = {**os.environ, "MILLPOND_FAULT": fault}
    command = [sys.executable, str(WORKER), str(folder / "tables"), str(folder / "acknowledged")]
    return subprocess.run(command, env=environment, timeout=120).returncode


def go_on(folder: Path) -> None:
    """The same work without a fault, to its end: what goes on after a crash need not be another process."""
    crash_worker.main(folder / "tables", folder / "acknowledged")


def check(folder: Path, fault: str) -> int:
    """The store holds exactly a number of commits, none of those acknowledged missing; the number."""
    acknowledged = int((folder / "acknowledged").read_text()) if (folder / "acknowledged").exists() else 0
    store = open_store(folder / "tables")
    held = store.get("turn") or 0
    content = {**crash_worker.content(store)}
    store.close()
    assert not list((folder / "tables" / "spill").glob("*/*"))
    assert held in ((acknowledged, acknowledged + 1) if fault.startswith(WRITTEN) else (acknowledged,))
    if held or len(content["tables"]) == 4:
        assert content == expected(held)
    return held


@pytest.mark.process
@pytest.mark.parametrize("point", [p for p in POINTS if p not in AT_RECOVERY])
@pytest.mark.parametrize("count", [1, 4])
def test_a_crash_anywhere_keeps_exactly_the_commits(tmp_path: Path, point: str, count: int) -> None:
    fault = f"{point}:{count}"
    code = work(tmp_path, fault)
    if code == 0:
        assert count > 1, f"{point} is never reached"
        return
    assert code == KILLED
    check(tmp_path, fault)
    go_on(tmp_path)
    assert check(tmp_path, "") == crash_worker.COMMITS


@pytest.mark.process
def test_a_crash_while_a_torn_end_is_cut_leaves_it_to_the_next(tmp_path: Path) -> None:
    assert work(tmp_path, "log.append.half:7") == KILLED
    assert work(tmp_path, "log.cut.begin:1") == KILLED
    check(tmp_path, "")
    go_on(tmp_path)
    assert check(tmp_path, "") == crash_worker.COMMITS


@pytest.mark.process
def test_a_crash_while_spilled_files_are_cleared_away_leaves_them_to_the_next(tmp_path: Path) -> None:
    assert work(tmp_path, "spill.renamed:3") == KILLED
    assert list((tmp_path / "tables" / "spill").glob("*/*.arrow"))
    assert work(tmp_path, "spill.abandoned.removed:1") == KILLED
    check(tmp_path, "")
    go_on(tmp_path)
    assert check(tmp_path, "") == crash_worker.COMMITS
