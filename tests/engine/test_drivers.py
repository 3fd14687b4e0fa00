"""Batches handed over by a feed: in order, from where the ledger is, without Spark where none is needed."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext
from tests.engine.stepping import Stepper

import millpond as mp
from millpond.engine import flow
from millpond.engine.drivers import FeedDriver, FirstPoll, Query, SparkDriver, Stopping
from millpond.engine.feeds.feed import Feed
from millpond.errors import SourceError, StateError

APP = """
CREATE STREAM s (k INT, v STRING) FROM 'file://./in/*.jsonl' WITH ('max.rows.per.batch' = '2');
CREATE TABLE t (k INT PRIMARY KEY, v STRING);
INSERT INTO t SELECT k, v FROM s;
"""


@pytest.mark.spark
def test_the_driver_reads_what_spark_would_have_read(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("".join(f'{{"k": {k}, "v": "x{k}"}}\n' for k in range(9)))
    (tmp_path / "app.sql").write_text(APP)
    seen: list[tuple[Any, Any]] = []
    whole = flow.read_batch  # type: ignore[attr-defined]

    def compared(reader: Any, raw: Any, batch_id: int, files: Any, *limits: Any, **others: Any) -> Any:
        assert files is not None
        wanted = reader.records(raw).toArrow()
        found = reader.on_driver(raw, files)
        assert found is not None
        seen.append((found.to_pylist(), wanted.sort_by([("_mp_major", "ascending"), ("_mp_minor", "ascending")])))
        assert found.schema.types == wanted.schema.types
        return whole(reader, raw, batch_id, files, *limits, **others)

    monkeypatch.setattr(flow, "read_batch", compared)
    app = mp.App(tmp_path / "app.sql", state=tmp_path / "state", spark=spark)
    app.run_once()
    assert [found for found, _ in seen] == [wanted.to_pylist() for _, wanted in seen]
    assert len(seen) == 5
    with mp.App(tmp_path / "app.sql", state=tmp_path / "state", spark=spark) as again:
        assert again.query("SELECT COUNT(*) AS n FROM t").rows() == [{"n": 9}]


def test_an_app_that_arrow_evaluates_starts_no_spark(tmp_path: Path) -> None:
    before = SparkContext._active_spark_context
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("".join(f'{{"k": {k}, "v": "x{k}"}}\n' for k in range(9)))
    (tmp_path / "app.sql").write_text(APP)
    app = mp.App(tmp_path / "app.sql")
    app.run_once()
    assert app.query("SELECT COUNT(*) AS n FROM t").rows() == [{"n": 9}]
    app.stop()
    assert SparkContext._active_spark_context is before
    assert list((tmp_path / ".millpond").rglob("*.parquet")) == []


class Reader(io.StringIO):
    """Asks the app to stop when the first row is printed."""

    app: mp.App

    def write(self, text: str) -> int:
        self.app.request_stop()
        return super().write(text)


def test_an_app_that_is_asked_to_stop_while_it_catches_up_stops_after_the_batch(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(f'{{"k": {k}}}\n' for k in range(9)))
    sql = "CREATE STREAM s (k INT) FROM 'file:in.jsonl' WITH ('max.rows.per.batch' = '1'); SELECT k FROM s;"
    (tmp_path / "app.sql").write_text(sql)
    printed = Reader()
    printed.app = mp.App(tmp_path / "app.sql", output=printed, settings={"json": "true"})
    printed.app.run_once()
    assert printed.getvalue() == '{"k": 0}\n'
    assert [flow.state for flow in printed.app.progress().flows] == ["stopped"]
    again = io.StringIO()
    mp.App(tmp_path / "app.sql", output=again, settings={"json": "true"}).run_once()
    assert again.getvalue() == "".join(f'{{"k": {k}}}\n' for k in range(1, 9))


PATIENCE_S = 60.0


class Ledger:
    """What a flow does with batches: counts those that are done, and is asked to stop or fails at one of them."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.done: list[int] = []
        self.taken = threading.Semaphore(0)
        self.at: dict[int, Exception] = {}

    def take(self, batch: int, file: Path) -> None:
        if batch in self.at:
            raise self.at[batch]
        assert int(file.name[:12]) == batch + 1
        self.done.append(batch)
        self.feed.forget(batch + 1)
        self.taken.release()

    def driver(self) -> FeedDriver:
        thread = threading.Thread
        return FeedDriver(self.feed, lambda: len(self.done), self.take, lambda work: thread(target=work, daemon=True))


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "source", dict)


@pytest.fixture
def give(feed: Feed) -> Callable[[], None]:
    def one() -> None:
        writer = feed.writer()
        writer.write(pa.RecordBatch.from_pydict({"n": [1]}))
        writer.close()
        feed.publish({})

    return one


def test_what_is_there_is_handed_over_in_order_and_then_what_comes(feed: Feed, give: Callable[[], None]) -> None:
    ledger = Ledger(feed)
    for _ in range(3):
        give()
    ledger.driver().catch_up(lambda: False)
    assert ledger.done == [0, 1, 2]
    driver = ledger.driver()
    driver.start()
    for _ in range(3):
        give()
        driver.wake()
        assert ledger.taken.acquire(timeout=PATIENCE_S)
    driver.stop()
    give()
    driver.wake()
    assert driver.ended() is None
    ledger.driver().catch_up(lambda: False)
    assert ledger.done == [*range(7)]
    assert feed.waiting() == 0


def test_a_batch_that_fails_ends_the_driver_and_comes_first_the_next_time(feed: Feed, give: Callable[[], None]) -> None:
    ledger = Ledger(feed)
    for _ in range(3):
        give()
    ledger.at[1] = ValueError("wrong")
    with pytest.raises(ValueError, match="wrong"):
        ledger.driver().catch_up(lambda: False)
    driver = ledger.driver()
    driver.start()
    assert driver._thread is not None
    driver._thread.join(PATIENCE_S)
    assert driver.ended() is ledger.at[1]
    assert ledger.done == [0]
    ledger.at[1] = Stopping()
    ledger.driver().catch_up(lambda: False)
    assert ledger.done == [0]
    ledger.at.clear()
    ledger.driver().catch_up(lambda: False)
    assert ledger.done == [0, 1, 2]


def test_catching_up_ends_where_the_feed_ended_when_it_began(feed: Feed, give: Callable[[], None]) -> None:
    ledger = Ledger(feed)
    give()

    def take(batch: int, file: Path) -> None:
        ledger.take(batch, file)
        give()

    driver = FeedDriver(feed, lambda: len(ledger.done), take, lambda work: threading.Thread(target=work))
    driver.catch_up(lambda: False)
    assert ledger.done == [0]
    assert feed.waiting() == 1


def test_catching_up_takes_what_a_poll_gives_meanwhile(feed: Feed, give: Callable[[], None]) -> None:
    ledger = Ledger(feed)
    driver = ledger.driver()

    def look() -> None:
        for _ in range(3):
            give()
            assert ledger.taken.acquire(timeout=PATIENCE_S)

    poll = FirstPoll(look, driver.wake)
    driver.catch_up(poll.is_on)
    poll.result()
    assert ledger.done == [0, 1, 2]


def test_an_error_of_the_first_poll_is_raised_after_what_it_gave_was_taken(
    feed: Feed, give: Callable[[], None]
) -> None:
    ledger = Ledger(feed)
    driver = ledger.driver()

    def look() -> None:
        give()
        raise SourceError("MP503", "A column is missing.")

    poll = FirstPoll(look, driver.wake)
    driver.catch_up(poll.is_on)
    assert ledger.done == [0]
    with pytest.raises(SourceError, match="MP503"):
        poll.result()


def test_a_feed_file_that_is_gone_is_reported_when_the_next_one_is_there(
    feed: Feed, give: Callable[[], None], tmp_path: Path
) -> None:
    ledger = Ledger(feed)
    give()
    (tmp_path / "source" / "feed" / "000000000001.parquet").unlink()
    ledger.driver().catch_up(lambda: False)
    give()
    with pytest.raises(StateError, match=r"MP804.*000000000001.parquet cannot be read"):
        ledger.driver().catch_up(lambda: False)
    assert ledger.done == []


def test_a_query_that_does_not_start_has_ended(tmp_path: Path) -> None:
    """So that a flow whose source is away when it is resumed is resumed again."""
    away = SourceError("MP506", "Nobody answers.")

    def spark() -> Any:
        raise away

    driver = SparkDriver(spark, Query("q", lambda session: session, tmp_path), lambda raw, number: None, 1)
    assert driver.ended() is None
    with pytest.raises(SourceError, match="MP506"):
        driver.start()
    assert driver.ended() is away
    driver.stop()


@pytest.mark.spark
def test_a_batch_may_come_before_the_start_of_its_driver_has_returned(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A streaming query runs its first batch when Python may still wait for the call that has started it."""
    sql = "CREATE STREAM s (k INT) FROM 'memory://s'; CREATE TABLE t (k INT); INSERT INTO t SELECT k FROM s;"
    app = Stepper(sql, tmp_path, spark)

    class Eager:
        def start(self) -> None:
            app.feed([{"k": 1}])

        def stop(self) -> None:
            """There is nothing to stop."""

    monkeypatch.setattr(app.flow, "_renew_driver", Eager)
    app.flow.start()
    app.flow.pause()
    app.flow.resume()
    assert app.rows("t") == [{"k": 1}, {"k": 1}]
    app.close()


@pytest.mark.spark
def test_a_flow_that_waits_for_spark_holds_up_no_other_flow(spark: Any, tmp_path: Path) -> None:
    started = threading.Event()

    def slowly() -> Any:
        assert started.wait(60)
        return spark

    sql = """
    CREATE STREAM pairs (a INT, b INT) FROM memory://pairs;
    CREATE STREAM words (k INT, v STRING) FROM memory://words;
    CREATE TABLE ratios (a INT PRIMARY KEY, r DOUBLE);
    CREATE TABLE t (k INT PRIMARY KEY, v STRING);
    UPSERT INTO ratios SELECT a, xpath_double(concat('<a>', b, '</a>'), 'a') FROM pairs;
    UPSERT INTO t SELECT k, v FROM words;
    """
    with mp.App(sql=sql, state=tmp_path / "state", spark=slowly) as app:
        # Arrow has no such function.
        app.feed("memory://pairs").send([{"a": 1, "b": 2}])
        for k in range(5):
            app.feed("memory://words").send([{"k": k, "v": "x"}])
            deadline = time.monotonic() + 60
            while not app.table("t").contains(k):
                assert time.monotonic() < deadline
                time.sleep(0.01)
        assert len(app.table("ratios")) == 0
        started.set()
        app.drain("120s")
        assert app.query("SELECT * FROM ratios").rows() == [{"a": 1, "r": 2.0}]
