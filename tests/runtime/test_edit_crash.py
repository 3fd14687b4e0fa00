"""A crash while a changed file drops tables: all of them are dropped, or none is. No Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import millpond as mp
from millpond.faults import EDIT_POINTS

pytestmark = pytest.mark.process

TABLES = "CREATE TABLE a (n INT PRIMARY KEY); CREATE TABLE b (n INT PRIMARY KEY); CREATE TABLE c (n INT PRIMARY KEY);"


@pytest.mark.parametrize("point", ["log.append.begin", *EDIT_POINTS])
def test_a_crash_while_tables_are_dropped_leaves_the_state_before_or_after(point: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = mp.App(sql=TABLES, state=state)
    for name in ("a", "b", "c"):
        first.execute(f"INSERT INTO {name} VALUES (1)")
    first.stop()
    program = f"""
        import millpond as mp
        app = mp.App(sql="CREATE TABLE c (n INT PRIMARY KEY);", state={str(state)!r}, accept=True)
        app.tables()
        app.stop()
    """
    environment = {**os.environ, "MILLPOND_FAULT": f"{point}:1"}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=environment, timeout=120, check=False)
    assert done.returncode == 137, "the process was ended at the point"
    again = mp.App(sql=TABLES, state=state)
    rows = {name: len(again.table(name)) for name in ("a", "b", "c")}
    again.stop()
    dropped = point != "log.append.begin"
    assert rows == ({"a": 0, "b": 0, "c": 1} if dropped else {"a": 1, "b": 1, "c": 1})
