"""'state.ttl': groups that no event touches are dropped with all that is kept of them, and begin anew."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.stepping import Stepper

START = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
TIMED = """
CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)
  FROM 'file://./never.jsonl';
"""
UNTIMED = "CREATE STREAM s (k STRING, n INT) FROM 'file://./never.jsonl';"
COUNTS = "SELECT k, COUNT(*) AS c, COUNT(DISTINCT n) AS kinds, COLLECT_LIST(n) AS list FROM s GROUP BY k"


def row(k: str | None, n: int, seconds: float | None = None) -> dict[str, Any]:
    return {"k": k, "n": n, "ts": None if seconds is None else START + timedelta(seconds=seconds)}


def counts(stepper: Stepper, table: str = "t") -> dict[str | None, int]:
    return {r["k"]: r["c"] for r in stepper.rows(table)}


def clock_of(stepper: Stepper, seconds: float) -> None:
    """Stop the app's wall clock at a moment."""
    stepper._running.context.now_us = lambda: int(seconds * 1_000_000)


def hidden_rows(stepper: Stepper) -> dict[str, int]:
    """How many rows each hidden table of `t` holds."""
    return {name: len(stepper.rows(name)) for name in stepper.tables() if name.startswith("t__")}


@pytest.mark.spark
@pytest.mark.parametrize("large", [False, True], ids=["by Arrow", "by Spark"])
def test_a_group_leaves_when_the_watermark_is_a_ttl_after_its_newest_event(
    large: bool, spark: Any, tmp_path: Path
) -> None:
    sql = f"{TIMED} CREATE TABLE t AS {COUNTS} WITH ('state.ttl' = '10s');"
    stepper = Stepper(sql, tmp_path, spark, large=large)
    stepper.feed([row("a", 1, 0), row(None, 1, 4), row(None, 2, 2), row("b", 1, 14)])
    assert counts(stepper) == {"a": 1, None: 2, "b": 1}
    # The watermark comes to 10, where a expires; in the batch that moves it, a is still the group of its events.
    stepper.feed([row("b", 2, 15)])
    assert counts(stepper) == {None: 2, "b": 2}
    stepper.restart()
    stepper.feed([row("a", 1, 16), row("b", 2, 19)])
    assert counts(stepper) == {"a": 1, "b": 3}
    assert hidden_rows(stepper) == {"t__groups": 2, "t__distinct0": 3, "t__values": 4}
    assert sorted((r["k"], r["kinds"], r["list"]) for r in stepper.rows("t")) == [("a", 1, [1]), ("b", 2, [1, 2, 2])]
    stepper.close()


@pytest.mark.spark
def test_without_a_watermark_the_clock_of_commits_decides_also_after_a_restart(spark: Any, tmp_path: Path) -> None:
    distinct = "CREATE TABLE d AS SELECT DISTINCT k, n FROM s WITH ('state.ttl' = '1m');"
    sql = f"{UNTIMED} CREATE TABLE t AS {COUNTS} WITH ('state.ttl' = '1m'); {distinct}"
    stepper = Stepper(sql, tmp_path, spark)
    clock_of(stepper, 100)
    stepper.feed([row("a", 1), row("b", 1), row(None, 1)])
    clock_of(stepper, 130)
    stepper.feed([row("b", 1)])
    stepper.restart()
    clock_of(stepper, 160)
    stepper.feed([row("a", 2), row("a", 1)])
    assert counts(stepper) == {"a": 2, "b": 2}, "a had expired and begins anew"
    assert sorted((r["k"], r["n"]) for r in stepper.rows("d")) == [("a", 1), ("a", 2), ("b", 1)]
    clock_of(stepper, 190)
    stepper.feed([row("c", 1)])
    assert counts(stepper) == {"a": 2, "c": 1}
    assert sorted((r["k"], r["n"]) for r in stepper.rows("d")) == [("a", 1), ("a", 2), ("c", 1)]
    assert hidden_rows(stepper) == {"t__groups": 2, "t__distinct0": 3, "t__values": 3}
    stepper.close()


@pytest.mark.spark
def test_the_option_may_be_added_changed_and_removed_and_the_groups_stay(spark: Any, tmp_path: Path) -> None:
    def edited(options: str) -> Stepper:
        into = f"INSERT INTO 'file://./out' SELECT k, SUM(n) AS total FROM s GROUP BY k{options};"
        stepper = Stepper(f"{UNTIMED} CREATE TABLE t AS {COUNTS}{options}; {into}", tmp_path, spark)
        stepper._next = stepper.flow.commits.entry.batch + 1
        return stepper

    def step(options: str, now_s: float, key: str) -> dict[str | None, int]:
        stepper = edited(options)
        clock_of(stepper, now_s)
        stepper.feed([row(key, 1)])
        found = counts(stepper)
        stepper.close()
        return found

    assert step("", 0, "a") == {"a": 1}
    assert step(" WITH ('state.ttl' = '1m')", 1000, "b") == {"a": 1, "b": 1}, "a counts as touched now"
    assert step(" WITH ('state.ttl' = '1h')", 1100, "b") == {"a": 1, "b": 2}
    assert step("", 9000, "b") == {"a": 1, "b": 3}
    assert step(" WITH ('state.ttl' = '1m')", 9500, "c") == {"a": 1, "b": 3, "c": 1}
    assert step(" WITH ('state.ttl' = '1m')", 9560, "b") == {"b": 1}
    stepper = edited("")
    emitted = [r["total"] for r in stepper.sink("out") if r["k"] == "b"]
    stepper.close()
    assert emitted == [1, 2, 3, 1], "the groups of the sink began anew too"


@pytest.mark.spark
def test_a_silent_stream_drops_its_groups_by_the_clock(spark: Any, tmp_path: Path) -> None:
    now = 100.0
    stream = f"{TIMED.replace(';', '')} WITH ('idle.timeout' = '30s');"
    table = "CREATE TABLE u (k STRING PRIMARY KEY, c BIGINT);"
    insert = "INSERT INTO u SELECT k, COUNT(*) FROM s GROUP BY k WITH ('state.ttl' = '20s');"
    sink = "INSERT INTO 'file://./out' SELECT k, COUNT(*) AS c FROM s GROUP BY k WITH ('state.ttl' = '20s');"
    stepper = Stepper(f"{stream} {table} {insert} {sink}", tmp_path, spark)
    idle: Any = stepper.flow._idle
    clock: Callable[[], float] = lambda: now  # noqa: E731
    idle._clock = clock
    stepper.feed([row("a", 1, 0), row("b", 1, 16)])
    now += 31
    stepper.flow.rest()
    # The watermark is 16 - 5 + 31 by now.
    assert counts(stepper, "u") == {}
    stepper.feed([row("b", 1, 43)])
    assert counts(stepper, "u") == {"b": 1}
    assert [(r["k"], r["c"]) for r in stepper.sink("out")] == [("a", 1), ("b", 1), ("b", 1)]
    stepper.close()
