"""Waiting for a topic that is not there, as its options say; making it where that is asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millpond.errors import SourceError
from millpond.kafka.address import Address
from millpond.kafka.client import Client, connected
from millpond.kafka.failures import missing
from millpond.kafka.retry import Retry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What may be otherwise in a moment; a wrong login or configuration will not.
WORTH_RETRYING = ("MP501", "MP506")


@dataclass
class Waiting:
    """Looks at one source's topics until they are there; `retries` and `detail` may be read by any thread."""

    address: Address
    values: Mapping[str, Any]
    clock: Callable[[], float] = time.monotonic
    retries: int = 0
    detail: str = ""
    state: str = "missing"
    _never: threading.Event = field(default_factory=threading.Event)

    def topics(self, spark: SparkSession, stopping: threading.Event | None = None, *, wait: bool) -> tuple[str, ...]:
        """The topics that are there; raises what was wrong the last time when the wait is over."""
        limit = self.values["topic.wait.timeout"] / 1_000_000 if wait else 0.0
        started = self.clock()
        for delay in Retry.of(self.values).delays():
            try:
                with self._client(spark) as client:
                    found = self._look(client)
                    self.state, self.detail = "ready", ""
                    return found
            except SourceError as error:
                left = limit - (self.clock() - started)
                if error.code not in WORTH_RETRYING or left <= 0:
                    self.state, self.detail = "failed", error.problems[0].message
                    raise
                self.state, self.detail = "retrying", error.problems[0].message
                self.retries += 1
                if (stopping or self._never).wait(min(delay, left)):
                    raise
        raise AssertionError("delays have no end")

    @contextmanager
    def _client(self, spark: SparkSession) -> Iterator[Client]:
        with connected(spark, self.address, self.values) as client:
            yield client

    def _look(self, client: Client) -> tuple[str, ...]:
        found = client.topics()
        partitions = self.values["topic.partitions"]
        absent = [] if self.address.pattern else [t for t in self.address.topics if t not in found]
        if absent and self.values["topic.create.if.missing"]:
            for topic in absent:
                client.create(topic, partitions, self.values["topic.replication"])
            return self.address.topics
        if absent or not found:
            raise missing(Address(self.address.brokers, tuple(absent) or self.address.topics), partitions)
        return found
