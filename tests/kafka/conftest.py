"""What the Kafka tests share: a broker, topics with names of their own, and apps on the shared Spark session."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kafka.broker import Broker, jars
from tests.kafka.topics import Topic

from millpond.engine.spark.java import connector_jars

NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests; skipped, loudly, where its jars or the connector's cannot be had."""
    import os

    folder = jars()
    if folder is None or not connector_jars("kafka", os.environ):
        pytest.skip("no jars: install Maven and run `millpond doctor --install kafka`")
    made = Broker(tmp_path_factory.mktemp("broker"), folder)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def topic(broker: Broker) -> Callable[..., Topic]:
    """Makes topics that no other test has."""

    def make(partitions: int = 1, *, create: bool = True) -> Topic:
        found = Topic(broker.address, f"t{next(NUMBERS)}")
        if create:
            found.create(partitions)
        return found

    return make


@pytest.fixture
def run(spark: Any, tmp_path: Path) -> Callable[..., Any]:
    """Runs a text once, on a state directory that a later run of the same test finds again; gives a query's rows."""
    import millpond as mp

    def go(sql: str, ask: str | None = None) -> list[dict[str, Any]]:
        app = mp.App(sql=sql, state=tmp_path / "state", spark=spark)
        app.run_once()
        try:
            return list(app.query(ask).rows()) if ask else []
        finally:
            app.stop()

    return go
