"""A producer of Kafka's client in C, on the driver: messages from Arrow columns into one topic, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from millpond.kafka.address import Address
from millpond.kafka.librdkafka import c_properties, library

# The most messages that wait in the queue, and how long a message may wait for a broker.
QUEUED_MAX, DELIVERY_MS = 100_000, 60_000

Headers = Sequence[tuple[str, bytes | None]]


class Producer:
    """Sends messages to the topic of an address. One thread at a time."""

    def __init__(self, address: Address, values: Mapping[str, Any], more: Mapping[str, str] | None = None) -> None:
        self._topic = address.topics[0]
        self._failed: list[Any] = []
        tuned = {
            "linger.ms": str(values["linger"] // 1000),
            "batch.size": str(values["batch.size"]),
            "acks": values["acks"],
            "delivery.timeout.ms": str(DELIVERY_MS),
            "queue.buffering.max.messages": str(2 * QUEUED_MAX),
            "queue.buffering.max.kbytes": str(2**31 - 1),
            # As Kafka's client in Java chooses partitions.
            "partitioner": "murmur2_random",
        }
        # Retried requests must not change the order of messages.
        ordered = {"enable.idempotence": "true"} if values["acks"] == "all" else {"max.in.flight": "1"}
        reports = {"delivery.report.only.error": True, "on_delivery": self._report}
        given = c_properties(address, values)
        self.client = library().Producer({**tuned, **ordered, **given, **(more or {}), **reports})

    def _report(self, error: Any, message: Any) -> None:
        if error is not None and not self._failed:
            self._failed.append(error)

    def queue(
        self, values: Sequence[bytes | None], keys: Sequence[bytes | None], headers: Sequence[Headers] | None = None
    ) -> None:
        """Add some thousand messages; waits while the queue is full."""
        client, topic = self.client, self._topic
        while len(client) > QUEUED_MAX:
            client.poll(0.1)
        if headers is None:
            deque(map(client.produce, repeat(topic), values, keys), maxlen=0)
        else:
            for value, key, own in zip(values, keys, headers, strict=True):
                client.produce(topic, value, key, headers=own)
        client.poll(0)
        self._require()

    def flush(self) -> None:
        """Wait until all messages were delivered; raises the first error."""
        self.client.flush()
        self._require()

    def _require(self) -> None:
        if self._failed:
            raise library().KafkaException(self._failed[0])

    def close(self) -> None:
        self.client.close()
