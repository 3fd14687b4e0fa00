"""Topics that do not exist: waited for, created, or reported with a hint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kafka.broker import LOGIN_MODULE, PASSWORD, USER, Broker
from tests.kafka.topics import until
from tests.ports import free_ports

import millpond as mp
from millpond.errors import SinkError, SourceError

pytestmark = pytest.mark.spark

TABLE = "CREATE TABLE seen (id INT); INSERT INTO seen SELECT id FROM orders;"


def test_a_missing_topic_fails_at_once_and_says_how_to_make_it(
    topic: Callable[..., Any], run: Callable[..., Any]
) -> None:
    orders = topic(create=False)
    with pytest.raises(SourceError) as caught:
        run(f"CREATE STREAM orders (id INT) FROM {orders.uri}; {TABLE}")
    assert caught.value.code == "MP501"
    assert f"--bootstrap-server {orders.brokers} --create --topic {orders.name}" in caught.value.hint
    assert "WITH ('topic.create.if.missing' = 'true')" in caught.value.hint


def test_a_topic_that_comes_late_is_waited_for_and_the_flow_says_so(
    topic: Callable[..., Any], spark: Any, tmp_path: Path
) -> None:
    orders = topic(create=False)
    wait = "WITH ('topic.wait.timeout' = '120s', 'topic.retry.interval' = '500ms', 'topic.retry.strategy' = 'fixed')"
    app = mp.App(sql=f"CREATE STREAM orders (id INT) FROM {orders.uri} {wait}; {TABLE}", state=tmp_path, spark=spark)
    app.start()
    until(lambda: app.progress().flows[0].state == "retrying", "a flow that waits")
    assert app.progress().flows[0].error.startswith(f"MP501 There is no topic '{orders.name}'")
    orders.create()
    orders.send({"id": 1}, {"id": 2})
    until(lambda: len(app.table("seen")) == 2, "what came late")
    assert app.progress().flows[0].error == ""
    app.stop()


def test_a_missing_topic_is_made_where_that_is_asked(topic: Callable[..., Any], run: Callable[..., Any]) -> None:
    orders = topic(create=False)
    made = "WITH ('topic.create.if.missing' = 'true', 'topic.partitions' = '3')"
    run(f"CREATE STREAM orders (id INT) FROM {orders.uri} {made}; {TABLE}")
    assert orders.partitions() == 3


def test_a_broker_that_is_not_there_is_a_network_error(topic: Callable[..., Any], run: Callable[..., Any]) -> None:
    with pytest.raises(SourceError) as caught:
        run(f"CREATE STREAM orders (id INT) FROM kafka://localhost:{free_ports(1)[0]}/orders; {TABLE}")
    assert caught.value.code == "MP506"


def test_a_login_is_passed_on_and_a_wrong_one_reported_at_once_without_the_password(
    topic: Callable[..., Any], run: Callable[..., Any], broker: Broker
) -> None:
    orders = topic()
    orders.send({"id": 1})

    def app(password: str) -> str:
        jaas = f'{LOGIN_MODULE} required username="{USER}" password="{password}";'
        login = f"""'kafka.security.protocol' = 'SASL_PLAINTEXT', 'kafka.sasl.mechanism' = 'PLAIN',
            'kafka.sasl.jaas.config' = '{jaas}', 'topic.wait.timeout' = '60s'"""
        uri = f"kafka://{broker.login_address}/{orders.name}"
        return f"CREATE STREAM orders (id INT) FROM {uri} WITH ({login}); {TABLE}"

    with pytest.raises(SourceError) as caught:
        run(app("wrong-word"))
    assert caught.value.code == "MP507"
    assert "'kafka.sasl.mechanism' = 'PLAIN'" in caught.value.hint
    assert "wrong-word" not in str(caught.value)
    assert run(app(PASSWORD), "SELECT id FROM seen") == [{"id": 1}]


def test_a_missing_topic_of_a_sink_is_reported_at_the_start_before_any_row_comes(
    topic: Callable[..., Any], run: Callable[..., Any]
) -> None:
    orders, out = topic(), topic(create=False)
    stream = f"CREATE STREAM orders (id INT) FROM {orders.uri};\n"
    with pytest.raises(SinkError) as caught:
        run(f"{stream}INSERT INTO {out.uri} SELECT id FROM orders;")
    problem = caught.value.problems[0]
    message = f"{out.uri} cannot be written. There is no topic '{out.name}' at {out.brokers}."
    assert (problem.code, problem.message) == ("MP601", message)
    assert problem.place is not None
    assert problem.place.line == 2
    assert f"--bootstrap-server {out.brokers} --create --topic {out.name}" in caught.value.hint
    made = "WITH ('topic.create.if.missing' = 'true', 'topic.partitions' = '2')"
    run(f"{stream}INSERT INTO {out.uri} {made} SELECT id FROM orders;")
    assert out.partitions() == 2
