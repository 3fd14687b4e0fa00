"""The marks of Kafka messages: every row goes out once in an undisturbed run, and one that goes out again because of a
crash carries the mark of the first time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kafka.topics import until

import millpond as mp
from millpond.engine import commit
from millpond.errors import MillpondError
from millpond.testing.documents import read_sections

pytestmark = pytest.mark.spark
PAGE = Path(__file__).parents[2] / "docs" / "exactly-once.md"
EVENTS = [{"id": n, "per": 0 if n in (3, 6) else 2} for n in range(8)]


def marked(topic: Any) -> list[tuple[tuple[bytes, ...], Any]]:
    """Each message as its mark and its value."""
    names = ("millpond.app", "millpond.flow", "millpond.batch", "millpond.row")
    return [(tuple(dict(m.headers())[n] for n in names), json.loads(m.value())) for m in topic.read()]


class Crash:
    """Ends a flow's first batch after its outputs went out and before its commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, point: str = "flow.worked") -> None:
        self.point, self.left = point, 1
        monkeypatch.setattr(commit, "reach", self)

    def __call__(self, point: str) -> None:
        if point == self.point and self.left:
            self.left -= 1
            raise RuntimeError("the process ends here")


# With a function that the driver knows, and with one that only Spark does.
@pytest.mark.parametrize("rate", ["100 / per", "length(soundex(string(id))) * 100 / per"])
def test_rows_that_fail_become_dead_letters_and_every_other_row_goes_out_once(
    topic: Callable[..., Any], run: Callable[..., Any], rate: str
) -> None:
    orders, out = topic(), topic()
    orders.send(*EVENTS)
    letters = run(
        f"""
        CREATE STREAM orders (id INT, per INT) FROM {orders.uri};
        INSERT INTO {out.uri} SELECT id, {rate} AS rate FROM orders WITH ('on.error' = 'dead-letter');
        """,
        "SELECT position FROM dead_letters ORDER BY position",
    )
    assert [row["position"] for row in letters] == ["3", "6"]
    found = marked(out)
    assert [value["id"] for _, value in found] == [0, 1, 2, 4, 5, 7]
    assert len({mark for mark, _ in found}) == len(found)


def test_two_apps_that_write_the_same_rows_to_one_topic_have_marks_of_their_own(
    topic: Callable[..., Any], spark: Any, tmp_path: Path
) -> None:
    orders, out = topic(), topic()
    orders.send({"id": 1}, {"id": 2})
    sql = f"CREATE STREAM orders (id INT) FROM {orders.uri}; INSERT INTO {out.uri} SELECT id FROM orders;"
    for state in ("first", "second"):
        app = mp.App(sql=sql, state=tmp_path / state, spark=spark)
        app.run_once()
        app.stop()
    found = marked(out)
    assert sorted(value["id"] for _, value in found) == [1, 1, 2, 2]
    assert len({mark for mark, _ in found}) == 4
    assert len({mark[0] for mark, _ in found}) == 2, "each state directory has one id"
    assert len({mark[1:] for mark, _ in found}) == 2, "but for it their marks are the same"


def replayed(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, between: Any = None) -> None:
    """Run an app that ends before its first commit, and again."""
    crash = Crash(monkeypatch)
    for _ in range(2):
        app = mp.App(sql=sql, state=tmp_path / "state", spark=spark)
        try:
            app.run_once()
        except MillpondError:
            assert not crash.left
        finally:
            app.stop()
        if between is not None:
            between()


def test_a_replayed_batch_sends_the_same_rows_with_the_same_marks(
    topic: Callable[..., Any], spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, out, changes = topic(), topic(), topic()
    orders.send(*EVENTS)
    replayed(
        spark,
        tmp_path,
        monkeypatch,
        f"""
        CREATE STREAM orders (id INT, per INT) FROM {orders.uri};
        CREATE TABLE kinds (per INT, kind STRING);
        INSERT INTO kinds VALUES (2, 'b'), (2, 'a'), (0, 'c');
        CREATE TABLE sums AS SELECT per, SUM(id) AS ids FROM orders GROUP BY per;
        INSERT INTO {out.uri} SELECT o.id, k.kind FROM orders o JOIN kinds k ON k.per = o.per;
        INSERT INTO {out.uri} SELECT DISTINCT per FROM orders;
        INSERT INTO {changes.uri} SELECT * FROM CHANGES(sums);
        """,
    )
    for topic_, rows in ((out, 6 * 2 + 2 + 2), (changes, 2)):
        found = marked(topic_)
        assert len(found) == 2 * rows
        by_mark = dict(found)
        assert len(by_mark) == rows
        assert all(by_mark[mark] == value for mark, value in found)


def test_the_reader_of_the_page_has_each_row_once_after_a_replay(
    topic: Callable[..., Any], spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, out = topic(), topic()
    orders.send(*({"id": n, "price": 1.5} for n in range(5)))
    sql = f"""
        CREATE STREAM orders (id BIGINT, price DECIMAL(12,2)) FROM {orders.uri};
        INSERT INTO {out.uri} SELECT id, price FROM orders;
    """
    replayed(spark, tmp_path, monkeypatch, sql)
    assert len(out.values()) == 10
    (block,) = (b for section in read_sections(PAGE) for b in section.blocks if b.title == "received.sql")
    text = block.body.replace("kafka://localhost:9092/enriched", out.uri)
    reader = mp.App(sql=text, state=tmp_path / "reader", spark=spark)
    reader.run_once()
    assert sorted(reader.table("received").values("id")) == list(range(5))
    reader.stop()


def test_an_event_that_waited_keeps_the_mark_of_its_batch_whichever_commit_releases_it(
    topic: Callable[..., Any], spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, out = topic(), topic()
    orders.send({"id": 1, "per": 7})
    sql = f"""
        CREATE STREAM orders (id INT, per INT) FROM {orders.uri};
        CREATE TABLE kinds (per INT PRIMARY KEY, kind STRING);
        INSERT INTO {out.uri} SELECT o.id, k.kind FROM orders o JOIN kinds k ON k.per = o.per
          WITH ('on.missing' = 'wait', 'wait.timeout' = '1h');
    """
    first = mp.App(sql=sql, state=tmp_path / "state", spark=spark)
    first.start()
    first.wait_ready("60s")
    until(lambda: first.progress().flows[0].batches == 1, "the event does not wait yet")
    settle, left = commit.settle, [1]

    def settle_later(*given: Any) -> Any:
        if left:
            left.pop()
            raise RuntimeError("the process ends here")
        return settle(*given)

    monkeypatch.setattr(commit, "settle", settle_later)
    first.execute("INSERT INTO kinds VALUES (7, 'a'), (8, 'b')")
    until(lambda: not left, "nothing was released")
    first.stop()
    # Now a batch comes first.
    orders.send({"id": 2, "per": 8})
    second = mp.App(sql=sql, state=tmp_path / "state", spark=spark)
    second.run_once()
    second.stop()
    found = marked(out)
    assert sorted(value["id"] for _, value in found) == [1, 1, 2]
    assert len({mark for mark, _ in found}) == 2
