"""When the oldest message that waits was written: told by a consumer that reads one message of each partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millpond.kafka.address import Address, client_properties
from millpond.kafka.failures import told
from millpond.sources.topics.reading import COMMITTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Partitions that are asked in one look, and how long each may take to answer.
PLACES_MAX, ANSWER_MS = 16, 500
BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
# One message at a time, and of it as little as brokers hand over.
CONSUMER = {
    "key.deserializer": BYTES,
    "value.deserializer": BYTES,
    "enable.auto.commit": "false",
    "max.poll.records": "1",
    "max.partition.fetch.bytes": "1",
    **{name.removeprefix("kafka."): value for name, value in COMMITTED.items()},
}

# Topic, partition, and the offset of the first message that is not read yet.
Place = tuple[str, int, int]


class Oldest:
    """Used by one thread, inside `looking_for_oldest`; connects when it is first asked."""

    def __init__(self, spark: SparkSession, address: Address, values: Mapping[str, Any]) -> None:
        self._jvm, self._address, self._values = spark._jvm, address, values
        self._consumer: Any = None

    def written_at(self, places: Iterable[Place]) -> float | None:
        """In seconds since the epoch; None when no message was handed over in time."""
        with told(self._address):
            times = [self._time(place) for place in list(places)[:PLACES_MAX]]
        return min((time for time in times if time is not None), default=None)

    def _time(self, place: Place) -> float | None:
        topic, partition, offset = place
        consumer, at = self._connected(), self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        consumer.assign(self._jvm.java.util.Collections.singletonList(at))
        consumer.seek(at, offset)
        found = consumer.poll(self._jvm.java.time.Duration.ofMillis(ANSWER_MS)).iterator()
        return int(found.next().timestamp()) / 1000 if found.hasNext() else None

    def _connected(self) -> Any:
        if self._consumer is None:
            properties = self._jvm.java.util.Properties()
            for name, value in {**client_properties(self._address, self._values), **CONSUMER}.items():
                properties.setProperty(name, value)
            self._consumer = self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
        return self._consumer

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close(self._jvm.java.time.Duration.ofSeconds(1))


@contextmanager
def looking_for_oldest(spark: SparkSession, address: Address, values: Mapping[str, Any]) -> Iterator[Oldest]:
    """One that is closed afterwards."""
    oldest = Oldest(spark, address, values)
    try:
        yield oldest
    finally:
        oldest.close()
