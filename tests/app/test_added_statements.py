"""CREATE TABLE ... AS SELECT and other definitions by `app.execute`, on an app that runs and on one that does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.app.crashing import ended_states

import millpond as mp
from millpond.errors import MillpondError

USERS = "CREATE TABLE users (id INT PRIMARY KEY, tier STRING);"
TICKS = "CREATE STREAM ticks (k STRING, n INT) FROM 'memory://ticks';"
COUNT = "CREATE TABLE counted AS SELECT k, COUNT(*) AS n FROM ticks GROUP BY k"
TIERS = "CREATE TABLE tiers AS SELECT tier, COUNT(*) AS n FROM users GROUP BY tier"


def rows(app: mp.App, table: str) -> list[dict[str, Any]]:
    return sorted(app.query(f"SELECT * FROM {table}").rows(), key=str)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., mp.App]]:
    """Opens an app of some text on one state directory, and the one before is stopped."""
    apps: list[mp.App] = []

    def make(sql: str, **options: Any) -> mp.App:
        for app in apps:
            app.stop()
        apps.append(mp.App(sql=sql, state=tmp_path / "state", **options))
        return apps[-1]

    yield make
    for app in apps:
        app.stop()


def test_a_view_is_added_follows_its_tables_and_is_there_after_a_restart(opened: Callable[..., mp.App]) -> None:
    app = opened(USERS)
    app.execute("INSERT INTO users VALUES (1, 'GOLD')")
    app.execute(TIERS)
    assert rows(app, "tiers") == [{"tier": "GOLD", "n": 1}]
    app.execute("INSERT INTO users VALUES (2, 'GOLD')")
    app = opened(USERS)
    app.execute("INSERT INTO users VALUES (3, 'BASIC')")
    assert rows(app, "tiers") == [{"tier": "BASIC", "n": 1}, {"tier": "GOLD", "n": 2}]
    with pytest.raises(MillpondError, match="MP214"):
        app.execute("DELETE FROM tiers")


def test_a_table_over_tables_and_views_that_were_made_at_once(opened: Callable[..., mp.App]) -> None:
    app = opened("")
    app.execute("CREATE TABLE a (id INT PRIMARY KEY, v INT, CHECK (v > 0)) WITH ('backend' = 'sqlite')")
    app.execute("CREATE VIEW big AS SELECT id, v FROM a WHERE v > 10")
    app.execute("CREATE TABLE total AS SELECT SUM(v) AS v FROM big")
    app.execute("INSERT INTO a VALUES (1, 5), (2, 20), (3, 30)")
    app = opened("")
    assert rows(app, "total") == [{"v": 50}]
    assert app.table("a").stats().rows == 3
    with pytest.raises(MillpondError, match="MP413"):
        app.execute("INSERT INTO a VALUES (4, -1)")
    with pytest.raises(MillpondError, match=r"MP409.*'big' reads 'a'"):
        app.execute("DROP TABLE a")
    with pytest.raises(MillpondError, match=r"MP409.*'total' reads 'big'"):
        app.execute("DROP VIEW big")
    app.execute("DROP TABLE total; DROP VIEW big; DROP TABLE a")
    assert opened("").tables() == ("dead_letters",)


def test_a_table_is_replaced_and_dropped_and_made_again(opened: Callable[..., mp.App]) -> None:
    app = opened(USERS)
    app.execute("INSERT INTO users VALUES (1, 'GOLD'); CREATE TABLE other (id INT)")
    app.execute(TIERS)
    with pytest.raises(MillpondError, match=r"MP205(.|\n)*OR REPLACE"):
        app.execute(TIERS)
    app.execute(TIERS.replace("TABLE", "TABLE IF NOT EXISTS"))
    for name in ("tiers", "other"):
        app.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT MAX(id) AS top FROM users")
        assert rows(app, name) == [{"top": 1}]
    app.execute("CREATE OR REPLACE TABLE other (x STRING)")
    assert rows(app, "other") == []
    for _ in range(2):
        app.execute("DROP TABLE tiers")
        assert "tiers" not in app
        app.execute(TIERS)
        assert rows(app, "tiers") == [{"tier": "GOLD", "n": 1}]
    app = opened(USERS)
    assert rows(app, "tiers") == [{"tier": "GOLD", "n": 1}]
    assert app.table("other").schema.names == ("x",)


def test_what_cannot_be_added_is_refused_and_changes_nothing(opened: Callable[..., mp.App]) -> None:
    app = opened(USERS + TICKS)
    app.execute("INSERT INTO users VALUES (1, 'GOLD'); CREATE VIEW seen AS SELECT id FROM users")
    refused = {
        "CREATE TABLE x AS SELECT nothing FROM users": r"MP202 <added>:1:26 .*nothing",
        "CREATE TABLE x AS SELECT * FROM absent": "MP201",
        "CREATE TABLE users AS SELECT 1 AS x": r"MP409(.|\n)*millpond apply",
        "CREATE TABLE ticks (x INT)": "MP205 .*Stream 'ticks' already exists",
        "CREATE TABLE seen (x INT)": "MP205 .*View 'seen' already exists",
        "CREATE VIEW ticks AS SELECT 1 AS x": "MP205",
        "INSERT INTO users SELECT n, k FROM ticks": "MP215 .*cannot run in a transaction",
        "DELETE FROM users USING ticks WHERE users.id = ticks.n": "MP215",
        "BEGIN; CREATE TABLE x AS SELECT * FROM users; COMMIT": "MP217",
    }
    for sql, message in refused.items():
        with pytest.raises(MillpondError, match=message):
            app.execute(sql)
    assert app.tables() == ("dead_letters", "users")
    app.execute("INSERT INTO users WITH ticks AS (SELECT 5 AS id, 'x' AS tier) SELECT * FROM ticks")
    assert opened(USERS + TICKS).tables() == ("dead_letters", "users")


def test_the_file_takes_over_what_it_declares_and_drops(opened: Callable[..., mp.App]) -> None:
    app = opened(USERS)
    app.execute("INSERT INTO users VALUES (1, 'GOLD')")
    app.execute(TIERS + "; CREATE TABLE top AS SELECT MAX(id) AS id FROM users")
    app = opened(f"{USERS}{TIERS};")
    assert rows(app, "tiers") == [{"tier": "GOLD", "n": 1}]
    with pytest.raises(MillpondError, match="MP409"):
        app.execute("DROP TABLE tiers")
    app = opened(f"{USERS}{TIERS}; DROP TABLE IF EXISTS top;")
    assert app.tables() == ("dead_letters", "users", "tiers")
    # Nothing is left of it that could come back.
    assert opened(f"{USERS}{TIERS};").tables() == ("dead_letters", "users", "tiers")


def test_a_statement_whose_table_has_left_the_file_names_the_way_out(opened: Callable[..., mp.App]) -> None:
    opened(USERS).execute(TIERS)
    with pytest.raises(MillpondError, match=r"MP201 <added>:1:\d+ (.|\n)*added by app.execute.*DROP"):
        opened("CREATE TABLE others (id INT)")
    assert opened("CREATE TABLE others (id INT); DROP TABLE IF EXISTS tiers").tables() == ("dead_letters", "others")


def test_explain_shows_what_was_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from millpond.cli.main import main

    file = tmp_path / "app.sql"
    file.write_text(USERS)
    app = mp.App(file)
    app.execute(TIERS)
    found = app.query("EXPLAIN SELECT * FROM tiers").rows()
    app.stop()
    assert found
    assert main(["explain", str(file)]) == 0
    output = capsys.readouterr().out
    assert "tiers  kept, 0 rows" in output


@pytest.mark.process
@pytest.mark.parametrize("sql", [TIERS, "DROP TABLE old"])
def test_a_crash_at_any_commit_leaves_the_table_there_and_right_or_absent(sql: str, tmp_path: Path) -> None:
    made, name = tmp_path / "made", "tiers" if sql == TIERS else "old"
    app = mp.App(sql=USERS, state=made)
    app.execute("INSERT INTO users VALUES (1, 'GOLD')")
    app.execute("CREATE TABLE old AS SELECT tier, COUNT(*) AS n FROM users GROUP BY tier")
    app.stop()
    body = f"app = mp.App(sql={USERS!r}, state=state); app.execute({sql!r}); app.stop()"
    times, done = 0, False
    for _, state, ended in ended_states(made, body, ["log.append.begin"]):
        again = mp.App(sql=USERS, state=state)
        found = rows(again, name) if name in again else None
        again.stop()
        assert found in ([{"tier": "GOLD", "n": 1}], None)
        times, done = times + 1, not ended and (found is None) == (name == "old")
    assert times > 2
    assert done


@pytest.mark.spark
def test_a_view_that_cannot_be_computed_is_taken_back(opened: Callable[..., mp.App], spark: Any) -> None:
    app = opened(USERS, spark=spark)
    app.execute("INSERT INTO users VALUES (1, 'GOLD')")
    with pytest.raises(MillpondError, match="MP701"):
        app.execute("CREATE TABLE bad AS SELECT 1 / (id - 1) AS y FROM users")
    assert "bad" not in app
    app.execute("INSERT INTO users VALUES (2, 'GOLD')")
    assert "bad" not in opened(USERS, spark=spark)


@pytest.mark.spark
def test_tables_are_added_to_an_app_that_runs(opened: Callable[..., mp.App], spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a,b\n1,x\n")
    app = opened(USERS + TICKS + "CREATE TABLE log (k STRING); INSERT INTO log SELECT k FROM ticks;", spark=spark)
    app.start()
    feed = app.feed("memory://ticks")
    feed.send([{"k": "a", "n": 1}])
    app.drain("60s")
    app.execute(COUNT)
    app.execute(TIERS)
    app.execute(f"CREATE TABLE loaded AS SELECT * FROM 'file://{tmp_path}/in.csv'")
    app.execute("CREATE TABLE both AS SELECT l.k, c.n FROM log l LEFT JOIN counted c ON c.k = l.k")
    app.execute("INSERT INTO users VALUES (1, 'GOLD')")
    feed.send([{"k": "b", "n": 1}, {"k": "b", "n": 2}])
    app.drain("60s")
    assert rows(app, "counted") == [{"k": "b", "n": 2}], "it counts from when it was added"
    assert rows(app, "tiers") == [{"tier": "GOLD", "n": 1}]
    assert rows(app, "loaded") == [{"a": 1, "b": "x"}]
    assert rows(app, "both") == [{"k": "a", "n": None}, {"k": "b", "n": 2}, {"k": "b", "n": 2}]
    with pytest.raises(MillpondError, match="MP701"):
        app.execute("CREATE TABLE bad AS SELECT 1 / (id - 1) AS x FROM users")
    assert "bad" not in app
    app.execute("DROP TABLE both")
    app.execute("DROP TABLE counted")
    assert app.failures == ()
    feed.send([{"k": "c", "n": 1}])
    app.drain("60s")
    assert len(app.table("log")) == 4
    app = opened(USERS + TICKS + "CREATE TABLE log (k STRING); INSERT INTO log SELECT k FROM ticks;", spark=spark)
    assert set(app.tables()) == {"dead_letters", "users", "log", "tiers", "loaded"}


@pytest.mark.spark
def test_a_flow_that_has_failed_stays_failed_when_a_table_is_added(opened: Callable[..., mp.App], spark: Any) -> None:
    other = "CREATE STREAM ks (k INT) FROM 'memory://ks'; CREATE TABLE xs (x INT); INSERT INTO xs SELECT 1 / k FROM ks;"
    app = opened(USERS + TICKS + f"{COUNT};" + other, spark=spark)
    app.start()
    app.feed("memory://ks").send([{"k": 0}])
    with pytest.raises(MillpondError, match="MP701"):
        app.drain("60s")
    app.execute(TIERS)
    states = {flow.name: flow.state for flow in app.progress().flows}
    assert states == {"ticks": "running", "ks": "failed"}
    assert [error.code for error in app.failures] == ["MP701"]
