"""A crash while a changed file drops and widens tables: the whole edit is done, or nothing of it. No Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.app.crashing import ended_states

import millpond as mp
from millpond.engine.ledger import finish_edit
from millpond.errors import MillpondError, StateError
from millpond.faults import EDIT_POINTS
from millpond.tables.store import open_store

pytestmark = pytest.mark.process

TABLES = "CREATE TABLE a (n INT PRIMARY KEY); CREATE TABLE b (n INT PRIMARY KEY); CREATE TABLE c (n INT PRIMARY KEY);"


def prepared(state: Path) -> None:
    """A state whose three tables have a row each."""
    first = mp.App(sql=TABLES, state=state)
    for name in ("a", "b", "c"):
        first.execute(f"INSERT INTO {name} VALUES (1)")
    first.stop()


@pytest.mark.parametrize("point", ["log.append.begin", *EDIT_POINTS])
def test_a_crash_while_tables_are_dropped_leaves_the_state_before_or_after(point: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    prepared(state)
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


EDITED = "CREATE TABLE a (n INT PRIMARY KEY, m INT DEFAULT 7); CREATE TABLE c (n INT PRIMARY KEY, k STRING);"
BEFORE, AFTER = {"a": ["n"], "b": ["n"], "c": ["n"]}, {"a": ["n", "m"], "c": ["n", "k"]}
POINTS = ("log.append.begin", *EDIT_POINTS)


def test_a_crash_while_tables_are_widened_and_dropped_leaves_the_state_before_or_after(tmp_path: Path) -> None:
    prepared(tmp_path / "made")
    body = f"app = mp.App(sql={EDITED!r}, state=state, accept=True); app.tables(); app.stop()"
    found: dict[str, list[dict[str, list[str]]]] = {}
    for point, state, _ in ended_states(tmp_path / "made", body, POINTS):
        store = open_store(state / "store")
        finish_edit(store)
        tables = {name: list(store.table(name).schema.names) for name in store.names() if name in BEFORE}
        found.setdefault(point, []).append(tables)
        store.close()
    for point in POINTS:
        states = found[point]
        assert len(states) > 1, f"{point} was reached"
        assert all(state in (BEFORE, AFTER) for state in states), (point, states)
        assert states == sorted(states, key=lambda state: state == AFTER), "once done it stays done"
        assert states[-1] == AFTER
    assert found["log.append.begin"][0] == BEFORE
    assert found["edit.decided"][0] == AFTER


def test_a_drop_before_a_create_is_part_of_the_edit_and_runs_once(tmp_path: Path) -> None:
    state = tmp_path / "state"
    prepared(state)
    replaced = "DROP TABLE IF EXISTS a; CREATE TABLE a (x STRING);"
    with pytest.raises(StateError, match=r"MP806 .*'b'"):
        mp.App(sql=replaced + "CREATE TABLE c (n INT PRIMARY KEY);", state=state).tables()
    before = mp.App(sql=TABLES, state=state)
    assert [len(before.table(name)) for name in ("a", "b", "c")] == [1, 1, 1], "nothing was changed"
    before.stop()
    kept = "CREATE TABLE b (n INT PRIMARY KEY); CREATE TABLE c (n INT PRIMARY KEY);"
    for rows in (0, 1):
        app = mp.App(sql=replaced + kept, state=state)
        assert app.table("a").schema.names == ("x",)
        assert len(app.table("a")) == rows
        app.execute("INSERT INTO a VALUES ('x')")
        app.stop()


def test_a_table_that_was_made_by_hand_is_taken_over_only_where_it_fits(tmp_path: Path) -> None:
    state = tmp_path / "state"
    prepared(state)
    app = mp.App(sql=TABLES, state=state)
    app.execute("CREATE TABLE hand (n INT PRIMARY KEY); INSERT INTO hand VALUES (5)")
    app.stop()
    for other in ("CREATE TABLE hand (x STRING);", "CREATE TABLE hand AS SELECT n FROM c;"):
        with pytest.raises(MillpondError, match=r"MP409 .*'hand' already exists"):
            mp.App(sql=other + "CREATE TABLE c (n INT PRIMARY KEY);", state=state, accept=True).tables()
    before = mp.App(sql=TABLES, state=state)
    assert [len(before.table(name)) for name in ("a", "b", "c", "hand")] == [1, 1, 1, 1], "nothing was changed"
    before.stop()
    for sql, rows in (("", 1), ("DROP TABLE IF EXISTS hand;", 0)):
        after = mp.App(sql=TABLES + sql + "CREATE TABLE hand (n INT PRIMARY KEY);", state=state)
        assert len(after.table("hand")) == rows
        after.stop()
