"""Messages that the driver fetches are those that Spark's connector returns for the same range of offsets."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from tests.kafka.broker import Broker
from tests.kafka.topics import WAIT_S, Topic

from millpond.kafka.address import Address
from millpond.options import complete
from millpond.sources.kafka.arrow_messages import COLUMNS
from millpond.sources.kafka.fetch import Fetcher, FetchError, TooLarge
from millpond.sources.kafka.source import OPTIONS

pytestmark = pytest.mark.spark
EVERYTHING = 1 << 30


def fetcher(brokers: str, *topics: str) -> Fetcher:
    found = Fetcher.of(Address(brokers, topics), complete({}, OPTIONS, {}))
    assert found is not None
    return found


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    rows = table.select(list(COLUMNS)).to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def by_spark(spark: Any, brokers: str, start: Any, end: Any) -> list[dict[str, Any]]:
    options = {
        "kafka.bootstrap.servers": brokers,
        "subscribe": ",".join(end),
        "startingOffsets": json.dumps(start),
        "endingOffsets": json.dumps(end),
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
    }
    return sorted_rows(spark.read.format("kafka").options(**options).load().select(*COLUMNS).toArrow())


def in_transaction(topic: Topic, *values: Any, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": topic.brokers, "transactional.id": f"tests-{topic.name}-{commit}"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    topic.send_by(producer, *values)
    producer.flush(WAIT_S)
    (producer.commit_transaction if commit else producer.abort_transaction)(WAIT_S)


def test_the_driver_fetches_what_spark_reads(topic: Callable[..., Any], broker: Broker, spark: Any) -> None:
    first, second = topic(3), topic()
    first.send(*((f"k{i}", {"n": i}) for i in range(50)))
    first.send(("gone", None), (None, b""), b"\xff\x00")
    first.send({"n": 1}, headers=[("a", b"1"), ("a", b"2"), ("b", None)])
    in_transaction(first, *({"n": i} for i in range(100, 120)), commit=True)
    in_transaction(first, *({"n": i} for i in range(200, 220)), commit=False)
    second.send({"n": 1}, {"n": 2})
    in_transaction(second, {"n": 3}, commit=False)
    ends = {t.name: {str(p): high for p, (_, high) in enumerate(t.bounds())} for t in (first, second)}
    whole = {name: dict.fromkeys(places, 0) for name, places in ends.items()}
    middle = {name: {p: min(3, end) for p, end in places.items()} for name, places in ends.items()}
    driver = fetcher(broker.address, first.name, second.name)
    for start, end in ((whole, ends), (middle, ends), (whole, middle), (ends, ends)):
        found = driver.messages(start, end, EVERYTHING)
        assert sorted_rows(found) == by_spark(spark, broker.address, start, end)
        for batch in found.to_batches():
            assert len(set(batch["partition"].to_pylist())) <= 1
            assert batch["offset"].to_pylist() == sorted(batch["offset"].to_pylist())
    with pytest.raises(TooLarge):
        driver.messages(whole, ends, 100)


def test_what_the_topic_no_longer_has_is_left_to_spark_which_reports_it(
    topic: Callable[..., Any], broker: Broker, spark: Any
) -> None:
    orders = topic()
    orders.send(*({"n": i} for i in range(10)))
    orders.truncate(0, 5)
    with pytest.raises(FetchError):
        fetcher(broker.address, orders.name).messages({orders.name: {"0": 0}}, {orders.name: {"0": 10}}, EVERYTHING)
