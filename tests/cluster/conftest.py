"""One Spark cluster for the tests of a file, an S3 server and a Kafka broker beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cluster.servers import Cluster
from tests.kafka.conftest import broker, topic
from tests.objects.conftest import Bucket
from tests.objects.servers import s3_server

__all__ = ["broker", "topic"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    yield found
    found.remove()


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_server() as server:
        yield Bucket(server.endpoint)
