"""'backfill' over Kafka: a GROUP BY table is computed again from where the stream began, up to where it is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import MillpondError
from millpond.sources.kafka import past_messages

pytestmark = pytest.mark.spark

COUNT = "CREATE TABLE c AS SELECT k, COUNT(*) AS n FROM s GROUP BY k"
WIDER = "CREATE TABLE c AS SELECT k, COUNT(*) AS n, SUM(v) AS v, COUNT(DISTINCT v) AS vs FROM s GROUP BY k"
ADDED = "CREATE TABLE a AS SELECT COUNT(*) AS n, MAX(v) AS v FROM s"
BACKFILL = " WITH ('backfill' = 'true');"


def stream(topic: Any, options: str = "") -> str:
    return f"CREATE STREAM s (k INT, v INT) FROM {topic.uri}{options};"


class Apps:
    """Runs of one text after the other on one state directory, and on a fresh one."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder = spark, folder

    def run(self, *statements: str, state: str = "state") -> dict[str, list[Any]]:
        app = mp.App(sql="\n".join(statements), state=self.folder / state, spark=self.spark)
        try:
            app.run_once()
            return {
                name: sorted(map(tuple, (row.values() for row in app.query(f"SELECT * FROM {name}").rows())))
                for name in app.tables()
                if name != "dead_letters"
            }
        finally:
            app.stop()


@pytest.fixture
def apps(spark: Any, tmp_path: Path) -> Apps:
    return Apps(spark, tmp_path)


def events(count: int) -> list[dict[str, int]]:
    return [{"k": n % 3, "v": n * n % 7} for n in range(count)]


def test_what_is_added_is_what_a_new_app_would_have_and_goes_on_exactly_once(
    topic: Callable[..., Any], apps: Apps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_messages, "PART_ROWS", 4)
    source = topic(2)
    source.send(*events(5), None, b"not json", partition=0)
    source.send(*events(4), partition=1)
    apps.run(stream(source), COUNT + ";")
    source.send(*events(3), partition=1)
    apps.run(stream(source), COUNT + ";")
    source.send(*events(2), partition=0)
    edited = (stream(source), WIDER + BACKFILL, ADDED + BACKFILL)
    assert apps.run(*edited) == apps.run(*edited, state="fresh")
    source.send(*events(7), partition=1)
    assert apps.run(*edited) == apps.run(*edited, state="fresher")
    assert apps.run(*edited)["a"] == [(21, 4)]


def test_it_begins_where_the_stream_began(topic: Callable[..., Any], apps: Apps) -> None:
    source = topic()
    source.send(*events(3))
    late = stream(source, " WITH ('auto.offset.reset' = 'latest')")
    apps.run(late, COUNT + ";")
    source.send(*events(4))
    apps.run(late, COUNT + ";")
    source.grow(2)
    source.send(*events(1), partition=1)
    apps.run(late, COUNT + ";")
    assert apps.run(late, COUNT + ";", ADDED + BACKFILL)["a"] == [(5, 4)]


def test_messages_that_the_topic_no_longer_has_are_reported_and_nothing_is_changed(
    topic: Callable[..., Any], apps: Apps
) -> None:
    source = topic()
    source.send(*events(6))
    before = apps.run(stream(source), COUNT + ";")
    source.truncate(0, 2)
    with pytest.raises(MillpondError, match=r"MP815.*partition 0 .* no longer has the messages before 2"):
        apps.run(stream(source), WIDER + BACKFILL)
    assert apps.run(stream(source), COUNT + ";") == before
    # A stream that has begun behind them lacks nothing.
    apps.run(stream(source), COUNT + ";", state="later")
    assert apps.run(stream(source), WIDER + BACKFILL, state="later")["c"] == [(0, 1, 2, 1), (1, 1, 2, 1), (2, 2, 8, 1)]


def test_a_topic_that_was_made_anew_is_reported(topic: Callable[..., Any], apps: Apps) -> None:
    source = topic()
    source.send(*events(3))
    apps.run(stream(source), COUNT + ";")
    source.delete()
    with pytest.raises(MillpondError, match=r"MP815.*no longer exists"):
        apps.run(stream(source), WIDER + BACKFILL)


def test_a_running_app_takes_it_by_apply(topic: Callable[..., Any], spark: Any, tmp_path: Path) -> None:
    source = topic()
    source.send(*events(6))
    file = tmp_path / "app.sql"
    file.write_text(stream(source) + COUNT + ";")
    app = mp.App(file, spark=spark)
    app.start()
    try:
        file.write_text(stream(source) + WIDER + BACKFILL + ADDED + BACKFILL)
        app.apply()
        assert app.query("SELECT * FROM a").rows() == [{"n": 6, "v": 4}]
        assert app.table("c").get(2) == {"k": 2, "n": 2, "v": 8, "vs": 1}
    finally:
        app.stop()
