"""A running app takes an edited file, and a failed flow is restarted; in process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import InputError, MillpondError, StateError

pytestmark = pytest.mark.spark

ORDERS = "CREATE STREAM orders (id INT, amount INT, parts INT) FROM 'memory://orders';"
CLICKS = "CREATE STREAM clicks (k INT) FROM 'memory://clicks';"
EACH = "CREATE TABLE each_part (id INT PRIMARY KEY, v DOUBLE);"
DIVIDE = "INSERT INTO each_part SELECT id, amount / parts FROM orders;"
REPAIRED = "INSERT INTO each_part SELECT id, amount / NULLIF(parts, 0) FROM orders;"
COUNT = "CREATE TABLE clicked AS SELECT k, COUNT(*) AS n FROM clicks GROUP BY k;"
BASE = (ORDERS, CLICKS, EACH, DIVIDE, COUNT)


class Live:
    """An app that runs, and the file it was started with."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder, self.spark = folder, spark
        self.app: mp.App | None = None

    def start(self, *statements: str) -> mp.App:
        self.app = mp.App(self.write(*statements), spark=self.spark)
        self.app.start()
        return self.app

    def write(self, *statements: str) -> Path:
        file = self.folder / "app.sql"
        file.write_text("\n".join(statements))
        return file

    def flow(self, name: str) -> Any:
        assert self.app is not None
        return next(flow for flow in self.app.progress().flows if flow.name == name)


@pytest.fixture
def live(tmp_path: Path, spark: Any) -> Iterator[Live]:
    made = Live(tmp_path, spark)
    yield made
    if made.app is not None:
        made.app.stop()


def fail_by_zero(app: mp.App) -> None:
    app.feed("memory://orders").send([{"id": 1, "amount": 6, "parts": 3}, {"id": 2, "amount": 1, "parts": 0}])
    with pytest.raises(MillpondError, match="MP701"):
        app.drain("60s")


def test_a_failed_flow_goes_on_with_the_repaired_statement_and_the_others_are_not_disturbed(live: Live) -> None:
    app = live.start(*BASE)
    clicks = app.feed("memory://clicks")
    clicks.send([{"k": 1}])
    fail_by_zero(app)
    changes = app.apply(live.write(ORDERS, CLICKS, EACH, REPAIRED, COUNT))
    app.feed("memory://orders").send([{"id": 3, "amount": 8, "parts": 2}])
    clicks.send([{"k": 1}])
    app.drain("60s")
    assert sorted(app.table("each_part").find().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "v": 2.0},
        {"id": 2, "v": None},
        {"id": 3, "v": 4.0},
    ]
    assert app.table("clicked").get(1) == {"k": 1, "n": 2}
    assert {flow.name: flow.state for flow in app.progress().flows} == {"orders": "running", "clicks": "running"}
    assert app.failures == ()
    assert live.flow("clicks").batches == 2, "its figures go on"
    (orders,) = [flow for flow in changes["flows"] if flow["name"] == "orders"]  # type: ignore[union-attr, attr-defined]
    assert orders["added"] == [4]


def test_a_restarted_flow_goes_on_from_its_last_finished_batch(live: Live) -> None:
    app = live.start(*BASE)
    fail_by_zero(app)
    with pytest.raises(MillpondError, match="MP701"):
        app.restart("orders")
    assert live.flow("orders").state == "failed"
    with pytest.raises(MillpondError, match="MP713"):
        app.restart("CLICKS")
    with pytest.raises(MillpondError, match=r"MP201.*\n.*Did you mean 'orders'"):
        app.restart("ordres")
    app.execute("CREATE TABLE other (n INT)")
    assert len(app.table("each_part")) == 0, "the batch was undone"


def test_statements_are_added_and_removed_while_rows_come(live: Live) -> None:
    app = live.start(*BASE)
    clicks, done = app.feed("memory://clicks"), threading.Event()
    sent = 0

    def others() -> None:
        nonlocal sent
        while not sent or not done.wait(0.3):
            clicks.send([{"k": 1}])
            sent += 1

    other = threading.Thread(target=others)
    other.start()
    try:
        view = "CREATE TABLE all_clicks AS SELECT SUM(n) AS n FROM clicked;"
        log = "CREATE TABLE log (k INT); INSERT INTO log SELECT k FROM clicks;"
        users = "CREATE TABLE users (id INT PRIMARY KEY); INSERT INTO users VALUES (1);"
        app.apply(live.write(CLICKS, COUNT, view, log, users, ORDERS, EACH, DIVIDE))
    finally:
        done.set()
        other.join()
    clicks.send([{"k": 2}])
    app.drain("60s")
    assert app.table("clicked").get(1) == {"k": 1, "n": sent}
    assert app.table("all_clicks").values("n") == [sent + 1]
    assert 2 in app.table("log").values("k")
    assert app.table("users").values("id") == [1]
    app.apply(live.write(CLICKS, COUNT), accept=True)
    assert sorted(app.tables()) == ["clicked", "dead_letters"]
    clicks.send([{"k": 2}])
    app.drain("60s")
    assert app.table("clicked").get(2) == {"k": 2, "n": 2}
    assert [flow.name for flow in app.progress().flows] == ["clicks"]
    with pytest.raises(MillpondError, match="MP501"):
        app.feed("memory://orders")


def test_what_would_lose_rows_is_refused_and_nothing_is_changed_unless_it_is_accepted(live: Live) -> None:
    app = live.start(*BASE)
    app.feed("memory://clicks").send([{"k": 1}])
    app.drain("60s")
    other = "CREATE TABLE clicked AS SELECT k * 10 AS k, COUNT(*) AS n FROM clicks GROUP BY k * 10;"
    with pytest.raises(StateError, match="MP806"):
        app.apply(live.write(ORDERS, CLICKS, EACH, DIVIDE, other))
    app.feed("memory://clicks").send([{"k": 1}])
    app.drain("60s")
    assert app.table("clicked").get(1) == {"k": 1, "n": 2}
    app.apply(accept=True)
    app.feed("memory://clicks").send([{"k": 5}])
    app.drain("60s")
    assert app.table("clicked").find().to_pylist() == [{"k": 50, "n": 1}]


def test_a_column_that_is_added_keeps_the_rows_of_a_running_app(live: Live) -> None:
    app = live.start(*BASE)
    app.feed("memory://clicks").send([{"k": 1}])
    app.drain("60s")
    app.apply(live.write(ORDERS, CLICKS, EACH, DIVIDE, COUNT.replace("AS n", "AS n, MAX(k) AS top")))
    app.feed("memory://clicks").send([{"k": 1}, {"k": 2}])
    app.drain("60s")
    assert sorted(app.table("clicked").find().to_pylist(), key=lambda row: row["k"]) == [
        {"k": 1, "n": 2, "top": 1},
        {"k": 2, "n": 1, "top": 2},
    ]


def test_a_file_with_mistakes_changes_nothing(live: Live) -> None:
    app = live.start(*BASE)
    with pytest.raises(InputError, match="Did you mean 'amount'"):
        app.apply(live.write(ORDERS, EACH, "INSERT INTO each_part SELECT id, amuont FROM orders;"))
    with pytest.raises(MillpondError, match=r"MP713.*time\.zone"):
        app.apply(live.write("SET time.zone = 'Europe/Berlin';", *BASE))
    with pytest.raises(StateError, match="MP802"):
        app.apply(live.write(*BASE).rename(live.folder / "other.sql"))
    with pytest.raises(InputError, match="MP310"):
        app.apply("app.sql", sql=ORDERS)
    app.feed("memory://orders").send([{"id": 1, "amount": 6, "parts": 3}])
    app.drain("60s")
    assert app.table("each_part").get(1) == {"id": 1, "v": 2.0}
    assert len(app.plan.flows) == 2


def test_an_app_that_does_not_run_takes_no_file(tmp_path: Path) -> None:
    app = mp.App(sql="CREATE TABLE t (n INT);", state=tmp_path / "state")
    app.execute("INSERT INTO t VALUES (1)")
    for change in (lambda: app.apply(sql="CREATE TABLE t (n INT, m INT);"), lambda: app.restart("x")):
        with pytest.raises(MillpondError, match="MP713"):
            change()
    app.stop()
