"""Options of Kafka's source and sink: each reaches the client it is for, or is refused with what to write instead."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from millpond.app.planning import plan_text
from millpond.errors import SinkError, SourceError
from millpond.kafka.address import Address
from millpond.options import Given, complete, read_options
from millpond.plan.explain import explain_text
from millpond.sinks import kafka as sink
from millpond.sinks.kafka import producer_options

COPY = "CREATE TABLE seen (id INT); INSERT INTO seen SELECT id FROM orders;"


def options(given: Mapping[str, str]) -> dict[str, Any]:
    return complete(read_options([Given(*item) for item in given.items()], sink.OPTIONS, "test"), sink.OPTIONS, {})


def test_a_sink_is_set_for_throughput_and_kafka_options_win() -> None:
    address = Address("b:9092", ("out",))
    found = producer_options(address, options({}))
    assert (found["kafka.acks"], found["kafka.linger.ms"], found["kafka.batch.size"]) == ("all", "20", "262144")
    found = producer_options(address, options({"linger": "1s", "batch.size": "1MiB", "acks": "1"}))
    assert (found["kafka.acks"], found["kafka.linger.ms"], found["kafka.batch.size"]) == ("1", "1000", "1048576")
    assert producer_options(address, options({"kafka.linger.ms": "7"}))["kafka.linger.ms"] == "7"


SCHEMA = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}'
REGISTRY = "'schema.registry.url' = 'http://b:8081'"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            "'starting.offsets' = 'latest'",
            "MP508 'starting.offsets' is not valid JSON of topics, partitions and offsets.",
        ),
        (
            "'kafka.auto.offset.reset' = 'latest'",
            "MP508 'kafka.auto.offset.reset' cannot be set: write 'auto.offset.reset'.",
        ),
        ("'max.rows.per.batch' = '0'", "MP302 Invalid value '0' for option 'max.rows.per.batch'."),
        ("'key' = 'a,,b'", "MP302 Invalid value 'a,,b' for option 'key'."),
        ("'topic.partitions' = '0'", "MP302 Invalid value '0' for option 'topic.partitions'."),
        ("'topic.retry.interval' = '5'", "MP106 '5' is not a duration."),
        ("'topic.retry.interval' = '0s'", "MP302 Invalid value '0s' for option 'topic.retry.interval'."),
        ("'topic.retry.multiplier' = '0.5'", "MP302 Invalid value '0.5' for option 'topic.retry.multiplier'."),
        ("'topic.retry.multiplier' = 'nan'", "MP302 Invalid value 'nan' for option 'topic.retry.multiplier'."),
        ("'brokers' = 'c:9092'", "MP306 Option 'brokers' is given twice."),
        ("'kafka.bootstrap.servers' = 'c:9092'", "MP306 Option 'kafka.bootstrap.servers' is given twice."),
        ("'delimiter' = ';'", "MP303 Option 'delimiter' has no effect here."),
        (f"'avro.schema' = '{SCHEMA}'", "MP303 Option 'avro.schema' has no effect here."),
        ("'topic.retry.increment' = '5s'", "MP303 Option 'topic.retry.increment' has no effect here."),
        (
            "'topic.retry.strategy' = 'fixed', 'topic.retry.multiplier' = '2'",
            "MP303 Option 'topic.retry.multiplier' has no effect here.",
        ),
        (
            "'format' = 'avro'",
            "MP508 Message values are Avro, but no schema is given: set 'avro.schema', 'avro.schema.file' or"
            " 'schema.registry.url'.",
        ),
        (
            f"'format' = 'avro', 'avro.schema' = '{SCHEMA}', {REGISTRY}",
            "MP508 The schema of message values is given twice, by 'avro.schema' and 'schema.registry.url': keep one of"
            " them.",
        ),
        ("'format' = 'avro', 'avro.schema' = '{\"type\": \"recrd\"}'", "MP508 The Avro schema is invalid: "),
        (
            "'format' = 'avro', 'schema.registry.url' = 'b'",
            "MP508 'schema.registry.url' must be the address of a registry, such as http://localhost:8081.",
        ),
    ],
)
def test_what_can_be_reported_before_the_start_is(written: str, message: str, tmp_path: Path) -> None:
    plan = plan_text(
        f"CREATE STREAM orders (id INT) FROM kafka://b:9092/orders WITH ({written}); {COPY}", base=tmp_path
    )
    (problem,) = plan.errors
    assert f"{problem.code} {problem.message}".startswith(message)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("'key' = 'nme'", "MP601 'key' refers to 'nme', which is not a column of the query."),
        ("'headers' = 'nme'", "MP601 'headers' refers to 'nme', which is not a column of the query."),
        ("'key.format' = 'json'", "MP303 Option 'key.format' has no effect here."),
        ("'format' = 'raw'", "MP601 The format 'raw' writes one column, but the query returns 2 columns."),
        ("'brokers' = 'c:9092'", "MP306 Option 'brokers' is given twice."),
        ("'format' = 'avro', 'avro.schema' = '{'", "MP508 The Avro schema is invalid: "),
    ],
)
def test_what_does_not_fit_a_sink_is_reported_before_the_start(written: str, message: str, tmp_path: Path) -> None:
    stream = "CREATE STREAM orders (id INT, name STRING) FROM kafka://b:9092/orders;"
    plan = plan_text(f"{stream} INSERT INTO kafka://b:9092/out WITH ({written}) SELECT * FROM orders;", base=tmp_path)
    (problem,) = plan.errors
    assert f"{problem.code} {problem.message}".startswith(message)


def test_a_wrong_variable_of_the_environment_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLPOND_RETRY_INTERVAL_SECS", "soon")
    (problem,) = plan_text(f"CREATE STREAM orders (id INT) FROM kafka://orders; {COPY}", base=tmp_path).errors
    assert problem.message == "Invalid value 'soon' of the environment variable MILLPOND_RETRY_INTERVAL_SECS."


def test_secrets_are_in_no_plan_that_is_shown(tmp_path: Path) -> None:
    login = "'kafka.sasl.jaas.config' = 'user password=\"hunter2\"', 'kafka.ssl.keystore.password' = 'hunter3'"
    sql = f"CREATE STREAM orders (id INT) FROM kafka://b:9092/orders WITH ({login}); {COPY}"
    plan = plan_text(f"{sql} INSERT INTO kafka://b:9092/out WITH ({login}) SELECT id FROM orders;", base=tmp_path)
    assert not plan.errors
    assert "hunter" not in explain_text(plan) + repr(plan.sources)


@pytest.mark.spark
def test_acks_and_linger_reach_the_producer(topic: Callable[..., Any], run: Callable[..., Any]) -> None:
    """Seen by what the producer itself says about values that contradict each other."""
    orders, out = topic(), topic()
    orders.send({"id": 1})
    stream = f"CREATE STREAM orders (id INT) FROM {orders.uri};"
    acks = "'acks' = '1', 'kafka.enable.idempotence' = 'true'"
    with pytest.raises(SinkError, match="acks"):
        run(f"{stream} INSERT INTO {out.uri} WITH ({acks}) SELECT id FROM orders;")
    linger = "'linger' = '1h', 'kafka.delivery.timeout.ms' = '60000'"
    with pytest.raises(SinkError, match=r"linger\.ms"):
        run(f"{stream} INSERT INTO {out.uri} WITH ({linger}) SELECT id FROM orders;")
    with pytest.raises(SinkError) as caught:
        run(f"{stream} INSERT INTO {out.uri} SELECT id, repeat('x', 2000000) AS text FROM orders;")
    assert "'kafka.max.request.size'" in caught.value.hint
    assert out.read() == []


@pytest.mark.spark
def test_starting_offsets_are_per_partition_and_must_be_there(
    topic: Callable[..., Any], run: Callable[..., Any]
) -> None:
    orders = topic(3)
    for partition in range(3):
        orders.send({"id": partition * 10}, {"id": partition * 10 + 1}, partition=partition)

    def app(offsets: str) -> str:
        return f"CREATE STREAM orders (id INT) FROM {orders.uri} WITH ('starting.offsets' = '{offsets}'); {COPY}"

    with pytest.raises(SourceError, match="contains offset 9 of partition 1"):
        run(app('{"1": 9}'))
    with pytest.raises(SourceError, match="contains partition 3"):
        run(app('{"3": 0}'))
    assert run(app('{"0": 1, "2": -1}'), "SELECT id FROM seen ORDER BY id") == [{"id": 1}, {"id": 10}, {"id": 11}]
