"""Kafka's administration client, in Spark's JVM: lists and creates topics, and reads their offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millpond.errors import SetupError
from millpond.kafka.address import Address, client_properties, reachable
from millpond.kafka.kafka_errors import translated, unreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The timeout of one request; callers retry it for an unreachable broker.
ANSWER_S = 15
REPLICAS_DEFAULT = 3
INSTALL = "millpond doctor --install kafka"


def require_jars(spark: SparkSession) -> None:
    """MP903 if the session has no Kafka connector."""
    names = ("org.apache.spark.sql.kafka010.KafkaSourceProvider", "org.apache.kafka.clients.admin.AdminClient")
    if not all(_has_class(spark, name) for name in names):
        message = "kafka:// requires Spark's Kafka connector, whose jars are not installed."
        raise SetupError("MP903", message, hint=f"Run: {INSTALL}")


def _has_class(spark: SparkSession, name: str) -> bool:
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        spark._jvm.java.lang.Class.forName(name, False, loader)
    except Exception:
        return False
    return True


class Client:
    """Sends requests to the brokers of an address, and translates every error. Used inside `connected`."""

    def __init__(self, spark: SparkSession, address: Address, admin: Any) -> None:
        self._jvm, self._address, self._admin = spark._jvm, address, admin

    def topics(self) -> tuple[str, ...]:
        """The topics of the address that exist."""
        with translated(self._address):
            there = set(self._wait(self._admin.listTopics().names()))
        pattern = self._address.pattern
        if pattern is None:
            return tuple(t for t in self._address.topics if t in there)
        matches = self._jvm.java.util.regex.Pattern.compile(pattern)
        return tuple(sorted(t for t in there if matches.matcher(t).matches()))

    def partitions(self, topics: tuple[str, ...]) -> list[tuple[str, int]]:
        """Every partition of existing topics."""
        with translated(self._address):
            found = self._wait(self._admin.describeTopics(self._list(topics)).allTopicNames())
            return [(t, p) for t in topics for p in range(found.get(t).partitions().size())]

    def ids(self, topics: tuple[str, ...]) -> dict[str, str]:
        """The ids of topics, which distinguish a topic from an earlier one of the same name; equal for all if brokers
        have no ids."""
        with translated(self._address):
            found = self._wait(self._admin.describeTopics(self._list(topics)).allTopicNames())
            return {topic: str(found.get(topic).topicId().toString()) for topic in topics}

    def ends(self, topics: tuple[str, ...], *, earliest: bool = False) -> dict[str, dict[str, int]]:
        """Topic -> partition -> the offset after its last message, or that of its first one."""
        with translated(self._address):
            wanted = self._jvm.java.util.HashMap()
            places = self.partitions(topics)
            specs = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
            for topic, partition in places:
                place = self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)
                wanted.put(place, specs.earliest() if earliest else specs.latest())
            found = self._wait(self._admin.listOffsets(wanted).all())
            ends: dict[str, dict[str, int]] = {topic: {} for topic in topics}
            for place in found.keySet():
                ends[place.topic()][str(place.partition())] = int(found.get(place).offset())
            return ends

    def create(self, topic: str, partitions: int, replicas: int | None) -> None:
        """Create a topic; by default with the usual number of replicas, at most one per broker."""
        with translated(self._address):
            if replicas is None:
                replicas = min(REPLICAS_DEFAULT, self._wait(self._admin.describeCluster().nodes()).size())
            new = self._jvm.org.apache.kafka.clients.admin.NewTopic(topic, partitions, replicas)
            try:
                self._wait(self._admin.createTopics(self._list((new,))).all())
            except Exception as error:
                # Another process created it first, which is fine.
                if "TopicExistsException" not in str(error):
                    raise

    def makes_topics(self) -> bool:
        """Whether brokers create a topic when it is first written to; True if that cannot be determined."""
        name, configs = "auto.create.topics.enable", self._jvm.org.apache.kafka.common.config.ConfigResource
        try:
            node = self._wait(self._admin.describeCluster().nodes()).iterator().next()
            broker = configs(configs.Type.BROKER, node.idString())
            found = self._wait(self._admin.describeConfigs(self._list((broker,))).all()).get(broker).get(name)
        except Exception:
            # Clients with write access often may not read the configuration.
            return True
        return found is None or str(found.value()) != "false"

    def _wait(self, future: Any) -> Any:
        return future.get(ANSWER_S, self._jvm.java.util.concurrent.TimeUnit.SECONDS)

    def _list(self, values: tuple[Any, ...]) -> Any:
        made = self._jvm.java.util.ArrayList()
        for value in values:
            made.add(value)
        return made


@contextmanager
def connected(spark: SparkSession, address: Address, values: Mapping[str, Any]) -> Iterator[Client]:
    """A client, closed afterwards."""
    require_jars(spark)
    properties = spark._jvm.java.util.Properties()
    for name, value in client_properties(address, values).items():
        properties.setProperty(name, value)
    if not reachable(address):
        raise unreachable(address)
    with translated(address):
        admin = spark._jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    try:
        yield Client(spark, address, admin)
    finally:
        admin.close(spark._jvm.java.time.Duration.ofSeconds(1))
