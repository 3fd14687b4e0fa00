"""Options of tables in an app: given anew at every start, shown by DESCRIBE, EXPLAIN and SHOW, changed without loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import MillpondError
from millpond.tables.store import open_store

COLUMNS = "(id INT PRIMARY KEY, name STRING DEFAULT 'none')"


def app(state: Path, options: str, columns: str = COLUMNS) -> mp.App:
    return mp.App(sql=f"CREATE TABLE t {columns} WITH ({options});", state=state)


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"{i} {'x' * 100}"} for i in range(count)]


def test_options_hold_after_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        made = app(tmp_path, "'max_memory' = '100KB'")
        with pytest.raises(MillpondError, match="MP406"):
            made.table("t").insert(rows(5000))
        made.stop()


def test_a_table_that_is_not_durable_stays_so(tmp_path: Path) -> None:
    for _ in range(3):
        made = app(tmp_path, "'durable' = 'false'")
        assert len(made.table("t")) == 0
        made.table("t").insert(rows(3))
        made.stop()


def test_options_defaults_and_indexes_change_without_loss(tmp_path: Path) -> None:
    first = app(tmp_path, "'max_memory' = '100KB'")
    first.table("t").insert(rows(2))
    first.stop()
    changed = "(id INT PRIMARY KEY, name STRING DEFAULT 'some', INDEX (name))"
    second = app(tmp_path, "'max_memory' = '200KB', 'spill' = 'true', 'cache.max_size' = '5'", changed)
    table = second.table("t")
    table.insert([{"id": 7}])
    assert table.get(7) == {"id": 7, "name": "some"}
    table.insert(rows(5000)[100:])
    table.find("name = 'some'")
    assert (len(table), table.stats().index_uses) == (4903, 1)
    assert table.stats().bytes_spilled > 0
    second.stop()
    with pytest.raises(MillpondError, match="MP806"):
        app(tmp_path, "'durable' = 'true'", "(id INT PRIMARY KEY, other STRING)").table("t")


def test_describe_and_explain_show_where_rows_are(tmp_path: Path) -> None:
    folder = tmp_path / "spilled"
    options = f"'max_memory' = '200KB', 'spill' = '{folder}', 'cache.max_size' = '5', 'cache.ttl' = '1m'"
    made = app(tmp_path / "state", options)
    made.table("t").insert(rows(5000))
    made.table("t").get(1)
    described = {
        r["column"]: r["type"] for r in made.query("DESCRIBE EXTENDED t").rows() if r["column"].startswith("#")
    }
    assert int(described["# bytes_spilled"]) == sum(f.stat().st_size for f in folder.glob("*/*.arrow")) > 0
    assert (described["# option max_memory"], described["# option spill"]) == ("200000", str(folder))
    assert (described["# cache_rows"], described["# cache_misses"], described["# rows"]) == ("1", "1", "5000")
    assert described["# updated_at"].endswith("+00:00")
    lines = [r["plan"].strip() for r in made.query("EXPLAIN SELECT * FROM t").rows()]
    assert f"up to 200,000 bytes in memory; older rows are moved to files in {folder}, except the key index" in lines
    assert "read by key through a cache of up to 5 rows, each for 60 s" in lines
    shown = next(r for r in made.query("SHOW TABLES").rows() if r["name"] == "t")
    figures = made.table("t").stats()
    assert shown["bytes"] == figures.bytes_memory + figures.bytes_spilled
    made.stop()
    assert not list(folder.glob("*/*.arrow"))


def test_when_a_table_was_last_changed_is_known_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "u.db"
    text = f"""
        CREATE TABLE t (id INT PRIMARY KEY);
        CREATE TABLE u (id INT PRIMARY KEY) WITH ('backend' = 'sqlite', 'path' = '{path}');
        CREATE TABLE untouched (id INT PRIMARY KEY);
    """
    first = mp.App(sql=text, state=tmp_path / "state")
    first.execute("INSERT INTO t VALUES (1)")
    first.execute("INSERT INTO u VALUES (1)")
    known = {name: first.table(name).stats().updated_at for name in ("t", "u", "untouched")}
    assert known["t"] is not None
    assert known["u"] is not None
    assert known["t"] < known["u"]
    assert known["untouched"] is None
    first.stop()
    second = mp.App(sql=text, state=tmp_path / "state")
    assert {name: second.table(name).stats().updated_at for name in known} == known
    second.stop()
    store = open_store(tmp_path / "state" / "store")
    store.checkpoint()
    store.close()
    third = mp.App(sql=text, state=tmp_path / "state")
    assert {name: third.table(name).stats().updated_at for name in known} == known
    shown = {r["name"]: r["updated_at"] for r in third.query("SHOW TABLES").rows()}
    assert shown["t"].timestamp() == pytest.approx(known["t"])
    third.stop()


def test_what_a_run_made_can_be_asked_until_the_app_is_stopped() -> None:
    made = mp.App(sql="CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1), (2);")
    made.run_once()
    assert made.table("t").values("id") == [1, 2]
    made.run_once()
    assert made.execute("INSERT INTO t VALUES (3)") == 1
    folder = made._open().context.state.path
    assert folder.is_dir()
    made.stop()
    assert not folder.exists()


def test_a_definition_keeps_its_case_and_an_error_in_it_keeps_the_old_table(tmp_path: Path) -> None:
    made = mp.App(sql="CREATE TABLE t (id INT PRIMARY KEY);", state=tmp_path)
    made.execute("CREATE TABLE Notes (Id INT PRIMARY KEY, Text STRING);\nINSERT INTO notes VALUES (1, 'Kept')")
    assert made.table("notes").get(1) == {"Id": 1, "Text": "Kept"}
    with pytest.raises(MillpondError, match=r"MP208 <query>:1:39"):
        made.execute("CREATE OR REPLACE TABLE notes (Id INT NULL PRIMARY KEY)")
    assert len(made.table("notes")) == 1
    made.execute("CREATE OR REPLACE TABLE notes (Id STRING PRIMARY KEY)")
    assert len(made.table("notes")) == 0
    made.stop()


def test_options_of_a_name_that_is_a_source_and_a_backend_are_all_shown(tmp_path: Path) -> None:
    made = mp.App(sql="CREATE TABLE t (id INT PRIMARY KEY);", state=tmp_path)
    assert {"spill", "max.rows.per.batch"} <= {r["name"] for r in made.query("SHOW OPTIONS FOR memory").rows()}
    made.stop()
