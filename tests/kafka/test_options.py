"""Options of Kafka's source and sink: each reaches the client it is for, or is refused with what to write instead."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import SinkError, SourceError
from millpond.kafka.address import Address
from millpond.options import Given, complete, read_options
from millpond.plan.explain import explain_text
from millpond.runtime.planning import plan_text
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


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("'starting.offsets' = 'latest'", "'starting.offsets' cannot be read."),
        (
            "'kafka.auto.offset.reset' = 'latest'",
            "'kafka.auto.offset.reset' cannot be passed on: write 'auto.offset.reset'.",
        ),
        ("'max.rows.per.batch' = '0'", "A batch has at least one row: 'max.rows.per.batch' cannot be 0."),
    ],
)
def test_what_can_be_told_before_the_start_is(written: str, told: str, tmp_path: Path) -> None:
    plan = plan_text(
        f"CREATE STREAM orders (id INT) FROM kafka://b:9092/orders WITH ({written}); {COPY}", base=tmp_path
    )
    assert [(p.code, p.message) for p in plan.errors] == [("MP508", told)]


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

    with pytest.raises(SourceError, match="names offset 9 of partition 1"):
        run(app('{"1": 9}'))
    with pytest.raises(SourceError, match="names partition 3"):
        run(app('{"3": 0}'))
    assert run(app('{"0": 1, "2": -1}'), "SELECT id FROM seen ORDER BY id") == [{"id": 1}, {"id": 10}, {"id": 11}]
