"""Tables that are not ready: who waits for them, who goes on without them, and that nobody else is held up."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.app.planning import plan_text
from millpond.app.running_plan import Running
from millpond.app.stopped_app import query_state
from millpond.engine.progress import FAILED, LOADING, MISSING, READY, RETRYING, STALE
from millpond.engine.readiness import Readiness
from millpond.errors import FlowError, MillpondError
from millpond.testing.clock import Clock
from millpond.testing.sql_files import sink_lines

LATE = "WITH ('file.wait.timeout' = '10m', 'file.retry.interval' = '50ms')"
APP = f"""
CREATE TABLE users PRIMARY KEY (user_id) AS SELECT user_id, tier FROM 'file:users.csv' {LATE};
CREATE TABLE tiers AS SELECT tier, COUNT(*) AS n FROM users GROUP BY tier;
CREATE TABLE copy (user_id STRING);
CREATE TABLE seen (id INT PRIMARY KEY);
INSERT INTO copy SELECT user_id FROM users;
CREATE STREAM trades (id INT, user_id STRING) FROM 'file:trades.jsonl';
CREATE STREAM ticks (id INT) FROM 'file:ticks.jsonl';
CREATE STREAM slow (id INT) FROM 'file:slow.jsonl' {LATE};
INSERT INTO 'file:out' SELECT t.id, u.tier FROM trades t JOIN users u ON u.user_id = t.user_id;
INSERT INTO seen SELECT id FROM ticks;
INSERT INTO seen SELECT id FROM slow;
"""
BOUND_S = 120.0


def eventually(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold in time"
        time.sleep(0.02)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.sql").write_text(APP)
    (tmp_path / "trades.jsonl").write_text('{"id": 1, "user_id": "u1"}\n')
    (tmp_path / "ticks.jsonl").write_text('{"id": 7}\n')
    return tmp_path


def bring(folder: Path) -> None:
    """The sources that were not there."""
    (folder / "slow.jsonl").write_text('{"id": 8}\n')
    (folder / "aside.csv").write_text("user_id,tier\nu1,GOLD\n")
    (folder / "aside.csv").rename(folder / "users.csv")


def states(app: Any, what: str) -> dict[str, str]:
    return {row["name"]: row["state"] for row in app.query(f"SHOW {what}")}


@pytest.mark.spark
def test_sources_that_are_not_there_hold_up_only_what_hangs_on_them(folder: Path, spark: Any) -> None:
    with mp.App(folder / "app.sql", spark=spark) as app:
        assert app.table("seen").values("id") == [7]
        assert states(app, "TABLES")["users"] == "retrying"
        assert states(app, "FLOWS") == {"trades": "waiting", "ticks": "running", "slow": "retrying"}
        sources = {row["name"]: (row["state"], row["health"]) for row in app.query("SHOW SOURCES")}
        assert sources["slow"] == ("retrying", "not_found")
        with pytest.raises(FlowError, match="MP703"):
            app.wait_ready(0.2)
        bring(folder)
        app.wait_ready(BOUND_S)
        assert states(app, "TABLES")["users"] == "ready"
        assert set(states(app, "FLOWS").values()) == {"running"}
        assert app.table("copy").values("user_id") == ["u1"]
        assert app.query("SELECT tier, n FROM tiers").rows() == [{"tier": "GOLD", "n": 1}]
        eventually(lambda: len(app.table("seen")) == 2)
        assert [json.loads(line) for line in sink_lines(folder / "out")] == [{"id": 1, "tier": "GOLD"}]


@pytest.mark.spark
def test_columns_of_empty_files_are_found_when_their_first_records_come(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "events.csv").touch()
    (tmp_path / "app.sql").write_text(
        "CREATE STREAM events FROM 'file:events.csv'; CREATE TABLE n AS SELECT a, COUNT(*) AS n FROM events GROUP BY a;"
        f"CREATE TABLE rates AS SELECT * FROM 'file:late/rates.jsonl' {LATE};"
    )
    with mp.App(tmp_path / "app.sql", spark=spark) as app:
        assert states(app, "FLOWS") == {"events": "waiting"}
        (tmp_path / "late").mkdir()
        (tmp_path / "late/rates.jsonl").touch()
        eventually(lambda: {r["name"]: r["state"] for r in app.query("SHOW SOURCES")}["rates.jsonl"] == "waiting")
        (tmp_path / "events.csv").write_text("a,b\n1,2\n")
        (tmp_path / "late/rates.jsonl").write_text('{"rate": 1.50}\n')
        app.wait_ready(BOUND_S)
        eventually(lambda: app.query("SELECT * FROM n").rows() == [{"a": 1, "n": 1}])
        assert [str(row["rate"]) for row in app.query("SELECT * FROM rates")] == ["1.50"]


@pytest.mark.spark
def test_once_waits_for_sources_that_are_looked_for(folder: Path, spark: Any) -> None:
    app = mp.App(folder / "app.sql", spark=spark)
    run = threading.Thread(target=app.run_once)
    run.start()
    eventually(lambda: any(f.state == "retrying" for f in app.progress().flows))
    bring(folder)
    run.join(BOUND_S)
    assert not run.is_alive()
    assert app.failures == ()
    assert sorted(app.table("seen").values("id")) == [7, 8]
    assert app.table("copy").values("user_id") == ["u1"]
    app.stop()
    assert [json.loads(line) for line in sink_lines(folder / "out")] == [{"id": 1, "tier": "GOLD"}]


@pytest.mark.spark
def test_events_that_a_statement_was_skipped_for_are_counted(folder: Path, spark: Any) -> None:
    app_text = APP.replace(LATE, "").replace("ON u.user_id = t.user_id;", "ON u.user_id = t.user_id WITH (%s);")
    (folder / "app.sql").write_text(app_text % "'on.table.missing' = 'skip'")
    app = mp.App(folder / "app.sql", spark=spark)
    with pytest.raises(MillpondError, match="MP501"):
        app.run_once()
    reported = [p.message for p in app.progress().problems if p.code == "MP709"]
    app.stop()
    assert reported == [
        "The statement is skipped for every event: the table 'users' is failed.",
        "The statement was skipped for 1 event, because a table was missing.",
    ]
    assert {row["name"]: row["state"] for row in app_flows(folder)} == {
        "trades": "finished",
        "ticks": "finished",
        "slow": "failed",
    }


def app_flows(folder: Path) -> list[dict[str, Any]]:
    """What is reported of the flows of an app that is stopped."""
    return list(query_state("SHOW FLOWS", state=folder / ".millpond" / "app").to_pylist())


JUDGED = """
CREATE TABLE users (user_id STRING PRIMARY KEY, tier STRING);
CREATE TABLE seen (id INT PRIMARY KEY);
CREATE STREAM trades (id INT, user_id STRING) FROM 'memory://trades';
INSERT INTO seen SELECT t.id FROM trades t JOIN users u ON u.user_id = t.user_id WITH ({options});
"""


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A readiness over one flow that reads `users`, whose state the test chooses; no Spark."""
    made: list[Running] = []

    def make(policy: str, clock: Clock, *, comes_again: bool = False) -> tuple[Running, Readiness]:
        options = f"'on.table.missing' = '{policy}', 'table.wait.timeout' = '5s'"
        plan = plan_text(JUDGED.format(options=options), base=tmp_path)
        running = Running(plan, tmp_path / policy, None, io.StringIO(), lambda found: plan)
        made.append(running)
        running.prepare(accept=False)
        return running, Readiness(running.context, lambda name: comes_again, clock)

    yield make
    for running in made:
        running.close(stop_spark=False)


def verdict(running: Running, readiness: Readiness, state: str) -> bool | str:
    running.context.table_states["users"] = state
    try:
        return readiness.may_begin(running.plan.flows[0])
    except FlowError as error:
        return error.code


POLICIES = {"wait": False, "fail": "MP703", "skip": True, "nulls": True, "default": True}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_counts_when_the_time_is_over_and_at_once_for_a_table_that_is_lost(
    policy: str, judge: Callable[..., Any]
) -> None:
    clock = Clock()
    running, readiness = judge(policy, clock)
    assert [verdict(running, readiness, state) for state in (READY, STALE)] == [True, True]
    assert [verdict(running, readiness, state) for state in (MISSING, RETRYING, LOADING)] == [False, False, False]
    lost = "MP703" if policy == "wait" else POLICIES[policy]
    assert verdict(running, readiness, FAILED) == lost
    clock.now += 5
    assert [verdict(running, readiness, state) for state in (RETRYING, RETRYING)] == [POLICIES[policy]] * 2
    reported = [p.code for p in running.context.notices]
    assert reported == ([] if policy == "fail" else ["MP709"]), "once for a statement and table"


def test_a_watched_table_that_failed_is_waited_for(judge: Callable[..., Any]) -> None:
    running, readiness = judge("wait", Clock(), comes_again=True)
    assert verdict(running, readiness, FAILED) is False


@pytest.mark.spark
def test_a_watched_table_is_stale_while_its_file_is_gone_and_stays_usable(folder: Path, spark: Any) -> None:
    bring(folder)
    text = "CREATE TABLE users AS SELECT * FROM 'file:users.csv' WITH ('watch' = 'true', 'watch.interval' = '20ms');"
    (folder / "app.sql").write_text(text)
    with mp.App(folder / "app.sql", spark=spark) as app:
        (folder / "users.csv").rename(folder / "away.csv")
        eventually(lambda: states(app, "TABLES")["users"] == "stale")
        assert app.query("SELECT tier FROM users").rows() == [{"tier": "GOLD"}]
        (folder / "away.csv").rename(folder / "users.csv")
        eventually(lambda: states(app, "TABLES")["users"] == "ready")
