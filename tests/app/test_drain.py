"""`app.drain`: everything that was sent before it is in the tables when it returns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import MillpondError

pytestmark = pytest.mark.spark
Open = Callable[[str], mp.App]


@pytest.fixture
def started(spark: Any, tmp_path: Path) -> Iterator[Open]:
    apps: list[mp.App] = []

    def start(sql: str) -> mp.App:
        file = tmp_path / "app.sql"
        file.write_text(sql)
        apps.append(mp.App(file, spark=spark, state=tmp_path / "state"))
        apps[-1].start()
        return apps[-1]

    yield start
    for app in apps:
        app.stop()


COUNTS = """
CREATE STREAM ticks (k INT, n INT) FROM 'memory://ticks' WITH ('max.rows.per.batch' = '40');
CREATE STREAM lines (k INT) FROM 'file://./lines.jsonl' WITH ('file.create.empty' = 'true');
CREATE STREAM nobody FROM 'memory://nobody';
CREATE TABLE sums AS SELECT k, COUNT(*) AS n, SUM(n) AS total FROM ticks GROUP BY k;
CREATE TABLE all_of_it AS SELECT SUM(n) AS n FROM sums;
CREATE TABLE counted AS SELECT k, COUNT(*) AS n FROM lines GROUP BY k;
CREATE TABLE never AS SELECT a, COUNT(*) AS n FROM nobody GROUP BY a;
"""


def test_what_was_sent_and_appended_is_in_tables_and_views_while_others_send(started: Open, tmp_path: Path) -> None:
    app = started(COUNTS)
    feed, done = app.feed("memory://ticks"), threading.Event()

    def others() -> None:
        while not done.wait(0.5):
            feed.send([{"k": 2, "n": 1}])

    other = threading.Thread(target=others)
    other.start()
    try:
        for round_ in range(1, 3):
            feed.send([{"k": 1, "n": n} for n in range(100)])
            with (tmp_path / "lines.jsonl").open("a") as file:
                file.write('{"k": 7}\n' * 5)
            app.drain("60s")
            assert app.table("sums").get(1) == {"k": 1, "n": 100 * round_, "total": 4950 * round_}
            assert app.table("counted").get(7) == {"k": 7, "n": 5 * round_}
            view = app.table("all_of_it").values("n")[0]
            assert view is not None
            assert view >= 100 * round_
    finally:
        done.set()
        other.join()


def test_a_join_of_streams_is_drained_after_its_streams(started: Open) -> None:
    app = started("""
        CREATE STREAM a (id INT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL 1 MINUTE) FROM 'memory://a';
        CREATE STREAM b (id INT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL 1 MINUTE) FROM 'memory://b';
        CREATE TABLE pairs (id INT PRIMARY KEY);
        INSERT INTO pairs SELECT a.id FROM a JOIN b ON a.id = b.id AND b.at BETWEEN a.at AND a.at + INTERVAL 1 MINUTE;
    """)
    for n in range(2):
        for name in ("a", "b"):
            app.feed(f"memory://{name}").send([{"id": n, "at": f"2026-03-01T10:00:0{n}Z"}])
        app.drain("120s")
        assert sorted(app.table("pairs").values("id")) == list(range(n + 1))


def test_a_flow_that_waits_is_named_when_time_is_over_and_one_that_failed_is_raised_at_once(
    started: Open, tmp_path: Path
) -> None:
    app = started("""
        CREATE STREAM s (k INT, d INT) FROM 'memory://s';
        CREATE STREAM w (k INT) FROM 'memory://w';
        CREATE TABLE late PRIMARY KEY (k) AS SELECT * FROM 'file://./late.csv' WITH ('file.wait.timeout' = '10m');
        CREATE TABLE t (k INT PRIMARY KEY, v DOUBLE);
        CREATE TABLE u (k INT PRIMARY KEY);
        INSERT INTO t SELECT k, 10 / d FROM s;
        INSERT INTO u SELECT w.k FROM w JOIN late l ON l.k = w.k;
    """)
    app.feed("memory://w").send([{"k": 1}])
    with pytest.raises(MillpondError) as raised:
        app.drain("0.2s")
    assert raised.value.code == "MP712"
    assert "the flow 'w'" in str(raised.value)
    assert "It is waiting." in str(raised.value)
    app.feed("memory://s").send([{"k": 1, "d": 0}])
    with pytest.raises(MillpondError) as raised:
        app.drain("10 minutes")
    assert raised.value.code == "MP701"


def test_an_app_that_does_not_run_cannot_be_drained(tmp_path: Path) -> None:
    app = mp.App(sql="CREATE STREAM s (k INT) FROM 'memory://s'; SELECT * FROM s;", state=tmp_path / "state")
    app.feed("memory://s").send([{"k": 1}])
    with pytest.raises(MillpondError, match="MP710"):
        app.drain()
    app.stop()
