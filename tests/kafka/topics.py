"""A topic as another program sees it: what it sends and what it reads, through a client that is not ours."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

WAIT_S = 120
PATIENCE_S = 120.0
# Errors of a broker that is starting.
NOT_YET = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE")


@dataclass(frozen=True)
class Topic:
    """One topic of the test broker."""

    brokers: str
    name: str

    @property
    def uri(self) -> str:
        return f"kafka://{self.brokers}/{self.name}"

    def create(self, partitions: int = 1) -> None:
        admin = self._admin()
        for future in admin.create_topics([NewTopic(self.name, partitions, 1)]).values():
            future.result(WAIT_S)
        self.partitions()

    def grow(self, partitions: int) -> None:
        admin = self._admin()
        for future in admin.create_partitions([NewPartitions(self.name, partitions)]).values():
            future.result(WAIT_S)

    def delete(self) -> None:
        admin = self._admin()
        for future in admin.delete_topics([self.name]).values():
            future.result(WAIT_S)

    def truncate(self, partition: int, offset: int) -> None:
        """Remove the messages before an offset, as retention does."""
        admin = self._admin()
        for future in admin.delete_records([TopicPartition(self.name, partition, offset)]).values():
            future.result(WAIT_S)

    def partitions(self) -> int:
        return len(self._admin().list_topics(self.name, timeout=WAIT_S).topics[self.name].partitions)

    def exists(self) -> bool:
        return self.name in self._admin().list_topics(timeout=WAIT_S).topics

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.brokers})

    def send(self, *messages: Any, **how: Any) -> None:
        """Values: bytes as they are, None for none, anything else as JSON; (key, value) for one with a key."""
        producer = Producer({"bootstrap.servers": self.brokers, "linger.ms": 0})
        self.send_by(producer, *messages, **how)
        assert producer.flush(WAIT_S) == 0

    def send_by(self, producer: Producer, *messages: Any, **how: Any) -> None:
        for message in messages:
            key, value = message if isinstance(message, tuple) else (None, message)
            producer.produce(self.name, encoded(value), key, **how)

    def read(self, *, committed: bool = False) -> list[Message]:
        """Every message there is, by partition and offset; `committed`: as far as open transactions allow."""
        level = "read_committed" if committed else "read_uncommitted"
        options = {"enable.auto.commit": False, "isolation.level": level, "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": "test", **options})
        found = []
        try:
            for partition in range(self.partitions()):
                low, _ = offsets(consumer, TopicPartition(self.name, partition))
                consumer.assign([TopicPartition(self.name, partition, low)])
                while True:
                    message = consumer.poll(WAIT_S)
                    assert message is not None, "a message that is there was not delivered"
                    if message.error() is not None:
                        assert message.error().name() == "_PARTITION_EOF", message.error()
                        break
                    found.append(message)
        finally:
            consumer.close()
        return found

    def bounds(self) -> list[tuple[int, int]]:
        """The first offset of each partition, and the one after its last."""
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": "test"})
        try:
            places = [TopicPartition(self.name, partition) for partition in range(self.partitions())]
            return [offsets(consumer, place) for place in places]
        finally:
            consumer.close()

    def values(self, *, committed: bool = False) -> list[Any]:
        return [json.loads(m.value()) for m in self.read(committed=committed)]

    def groups(self) -> list[str]:
        """The consumer groups that there are."""
        # A client that nothing refers to ends before it is answered.
        admin = self._admin()
        return [g.group_id for g in admin.list_consumer_groups().result(WAIT_S).valid]

    def forget_group(self, group: str) -> None:
        """Remove the offsets of a group, as its retention does, after those of open transactions are written."""
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": group})
        try:
            (found,) = consumer.committed([TopicPartition(self.name, 0)], WAIT_S)
            assert found.error is None, found
            assert found.offset >= 0, found
        finally:
            consumer.close()
        admin = self._admin()
        admin.delete_consumer_groups([group])[group].result(WAIT_S)


def offsets(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """The first offset of a partition, and the one after its last; waits until a broker that has just started leads it
    again."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            first, end = consumer.get_watermark_offsets(place, WAIT_S)
            return first, end
        except KafkaException as error:
            if error.args[0].name() not in NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def encoded(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


def until(condition: Callable[[], Any], what: str) -> None:
    """Wait for a condition, with a bound."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
