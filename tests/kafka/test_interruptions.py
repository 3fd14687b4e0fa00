"""Kafka that is interrupted while an app reads and writes: nothing is lost, nothing doubled."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kafka.broker import Broker
from tests.kafka.topics import until

import millpond as mp
from millpond.errors import SourceError

pytestmark = pytest.mark.spark


def test_a_broker_that_goes_away_and_comes_back_costs_nothing(
    topic: Callable[..., Any], broker: Broker, spark: Any, tmp_path: Path
) -> None:
    orders, out, late = topic(2), topic(), topic()
    orders.send(*({"id": i} for i in range(100)))
    # The client's own patience, a minute, would hide that the flow comes back by itself; a busy broker needs seconds.
    short = "'kafka.default.api.timeout.ms' = '6000', 'kafka.request.timeout.ms' = '5000'"
    retry = "'topic.retry.interval' = '200ms', 'topic.retry.strategy' = 'fixed'"
    sql = f"""
        CREATE STREAM orders (id INT) FROM {orders.uri} WITH ({short}, {retry});
        CREATE TABLE seen (id INT); INSERT INTO seen SELECT id FROM orders;
        INSERT INTO {out.uri} SELECT id FROM orders;
        CREATE STREAM late (id INT) FROM {late.uri} WITH ({retry}, 'topic.wait.timeout' = '60s');
        CREATE TABLE lated (id INT); INSERT INTO lated SELECT id FROM late;
    """
    app = mp.App(sql=sql, state=tmp_path / "state", spark=spark)
    app.start()

    def source(name: str) -> Any:
        return next(s for s in app.progress().sources if s.name == name)

    until(lambda: len(app.table("seen")) == 100 and source("orders").lag == 0, "the first messages, and no lag")
    broker.stop()
    try:
        until(lambda: source("orders").retries > 1, "a flow that tries again")
        assert (source("orders").state, source("orders").health) == ("retrying", "disconnected")
        assert "retrying" in {flow.state for flow in app.progress().flows}
        assert app.failures == ()
    finally:
        broker.start()
    orders.send(*({"id": i} for i in range(100, 200)))
    orders.grow(3)
    orders.send(*({"id": i} for i in range(200, 210)), partition=2)
    until(lambda: len(app.table("seen")) == 210, "the messages after the restart, of a new partition too")
    until(lambda: source("orders").health == "healthy" and source("orders").lag == 0, "a healthy source")
    assert sorted(app.table("seen").values("id")) == list(range(210))
    until(lambda: len(out.values()) >= 210, "all messages written")
    assert {value["id"] for value in out.values()} == set(range(210))

    late.delete()
    until(lambda: source("late").health == "not_found", "a topic that is gone is noticed")
    app.stop()
    assert app.failures == ()


def test_a_killed_app_has_exactly_the_right_tables_after_it(
    topic: Callable[..., Any], spark: Any, tmp_path: Path
) -> None:
    orders, users = topic(2), topic()
    orders.send(*({"id": i, "user": f"u{i % 7}"} for i in range(3000)))
    users.send(*((f"u{i % 7}", {"n": i}) for i in range(500)), ("u0", None))
    (tmp_path / "app.sql").write_text(f"""
        CREATE STREAM orders (id INT, user STRING) FROM {orders.uri} WITH ('max.rows.per.batch' = '500');
        CREATE TABLE users AS SELECT * FROM {users.uri} WITH ('key' = 'user', 'max.rows.per.batch' = '100');
        CREATE TABLE seen (id INT); INSERT INTO seen SELECT id FROM orders;
        CREATE TABLE counts AS SELECT user, COUNT(*) AS n, SUM(id) AS ids FROM orders GROUP BY user;
    """)
    state = tmp_path / "state"
    command = [sys.executable, "-m", "millpond.cli.main", "run", "app.sql", "--state", "state", "--no-http"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        done = "flows/orders*/checkpoint/commits/3"
        until(lambda: any(state.glob(done)) or process.poll() is not None, "some batches")
        os.kill(process.pid, signal.SIGKILL)
    orders.send(*({"id": i, "user": f"u{i % 7}"} for i in range(3000, 4000)))
    app = mp.App(tmp_path / "app.sql", state=state, spark=spark)
    before = len(app.table("seen"))
    app.run_once()
    assert 0 < before < 4000
    assert sorted(app.table("seen").values("id")) == list(range(4000))
    found = {row["user"]: (row["n"], row["ids"]) for row in app.table("counts").find().to_pylist()}
    right = {f"u{u}": [i for i in range(4000) if i % 7 == u] for u in range(7)}
    assert found == {user: (len(ids), sum(ids)) for user, ids in right.items()}
    last = {f"u{i % 7}": i for i in range(500)}
    del last["u0"]
    assert {row["user"]: row["n"] for row in app.table("users").find().to_pylist()} == last
    app.stop()


def test_a_topic_that_is_made_anew_is_reported_and_not_read_on(
    topic: Callable[..., Any], spark: Any, tmp_path: Path
) -> None:
    orders = topic()
    orders.send({"id": 1}, {"id": 2})
    wait = "WITH ('topic.wait.timeout' = '60s', 'topic.retry.interval' = '200ms', 'topic.retry.strategy' = 'fixed')"
    sql = f"""
        CREATE STREAM orders (id INT) FROM {orders.uri} {wait};
        CREATE TABLE seen (id INT); INSERT INTO seen SELECT id FROM orders;
    """
    app = mp.App(sql=sql, state=tmp_path / "state", spark=spark)
    app.start()
    until(lambda: app.stats()["sources"][0]["lag"] == 0, "nothing left to read")
    assert (len(app.table("seen")), app.stats()["sources"][0]["lag_s"]) == (2, 0.0)
    orders.delete()
    until(lambda: not orders.exists(), "the topic gone")
    orders.create()
    # More than before: by offsets alone the new topic looks like the old one that has grown.
    orders.send(*({"id": i} for i in range(10, 20)))
    until(lambda: app.failures, "a flow that says so")
    assert app.failures[0].code == "MP511"
    app.stop()
    again = mp.App(sql=sql, state=tmp_path / "state", spark=spark)
    with pytest.raises(SourceError, match="was deleted and created again"):
        again.run_once()
    again.stop()
