"""Kafka keeps the source contract."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kafka.topics import Topic

from millpond.testing.sources import BadRecordContract, StreamContract


class TestKafka(StreamContract, BadRecordContract):
    """A topic of one partition."""

    @pytest.fixture(autouse=True)
    def _prepared(self, tmp_path: Path, spark: Any, topic: Callable[..., Topic]) -> None:
        self.folder, self.spark, self.topic = tmp_path, spark, topic()
        self.uri, self.next = self.topic.uri, 0

    def put(self, count: int) -> None:
        self.topic.send(*({"n": n, "text": f"x{n}"} for n in range(self.next, self.next + count)))
        self.next += count

    def put_bad(self) -> bytes:
        self.topic.send(b"rubbish")
        return b"rubbish"
