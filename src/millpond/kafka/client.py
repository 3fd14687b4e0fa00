"""Kafka's own administration client, in Spark's JVM: which topics there are, how far they reach, and making one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millpond.errors import SetupError
from millpond.kafka.address import Address, client_properties
from millpond.kafka.failures import told, unreachable
from millpond.kafka.reaching import reachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long one question may take; a broker that is away is asked again by whoever asked.
ANSWER_S = 15
REPLICAS_DEFAULT = 3
INSTALL = "millpond doctor --install kafka"


def require_jars(spark: SparkSession) -> None:
    """MP903 when the session has no Kafka connector."""
    names = ("org.apache.spark.sql.kafka010.KafkaSourceProvider", "org.apache.kafka.clients.admin.AdminClient")
    if not all(_has_class(spark, name) for name in names):
        message = "kafka:// needs Spark's Kafka connector, and its jars are not there."
        raise SetupError("MP903", message, hint=f"Run: {INSTALL}")


def _has_class(spark: SparkSession, name: str) -> bool:
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        spark._jvm.java.lang.Class.forName(name, False, loader)
    except Exception:
        return False
    return True


class Client:
    """Asks the brokers of one address; every error is one of ours. Used inside `connected`."""

    def __init__(self, spark: SparkSession, address: Address, admin: Any) -> None:
        self._jvm, self._address, self._admin = spark._jvm, address, admin

    def topics(self) -> tuple[str, ...]:
        """Those of the address that are there."""
        with told(self._address):
            there = set(self._wait(self._admin.listTopics().names()))
        pattern = self._address.pattern
        if pattern is None:
            return tuple(t for t in self._address.topics if t in there)
        matches = self._jvm.java.util.regex.Pattern.compile(pattern)
        return tuple(sorted(t for t in there if matches.matcher(t).matches()))

    def partitions(self, topics: tuple[str, ...]) -> list[tuple[str, int]]:
        """Every partition of topics that are there."""
        with told(self._address):
            found = self._wait(self._admin.describeTopics(self._list(topics)).allTopicNames())
            return [(t, p) for t in topics for p in range(found.get(t).partitions().size())]

    def ids(self, topics: tuple[str, ...]) -> dict[str, str]:
        """What tells a topic from another one that had its name before; the same of all where brokers have no ids."""
        with told(self._address):
            found = self._wait(self._admin.describeTopics(self._list(topics)).allTopicNames())
            return {topic: str(found.get(topic).topicId().toString()) for topic in topics}

    def ends(self, topics: tuple[str, ...], *, earliest: bool = False) -> dict[str, dict[str, int]]:
        """Topic -> partition -> the offset behind its last message, or that of its first one."""
        with told(self._address):
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
        """Make a topic; without a wish for replicas as many as usual, at most the brokers there are."""
        with told(self._address):
            if replicas is None:
                replicas = min(REPLICAS_DEFAULT, self._wait(self._admin.describeCluster().nodes()).size())
            new = self._jvm.org.apache.kafka.clients.admin.NewTopic(topic, partitions, replicas)
            try:
                self._wait(self._admin.createTopics(self._list((new,))).all())
            except Exception as error:
                # Another process was faster: what counts is that it is there.
                if "TopicExistsException" not in str(error):
                    raise

    def makes_topics(self) -> bool:
        """Whether brokers make a topic when somebody writes to it; True where they do not say."""
        name, configs = "auto.create.topics.enable", self._jvm.org.apache.kafka.common.config.ConfigResource
        try:
            node = self._wait(self._admin.describeCluster().nodes()).iterator().next()
            broker = configs(configs.Type.BROKER, node.idString())
            found = self._wait(self._admin.describeConfigs(self._list((broker,))).all()).get(broker).get(name)
        except Exception:
            # Many who may write may not ask this.
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
    with told(address):
        admin = spark._jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    try:
        yield Client(spark, address, admin)
    finally:
        admin.close(spark._jvm.java.time.Duration.ofSeconds(1))
