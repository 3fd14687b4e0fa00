"""Kafka measured: topics into a join, into a topic and into a table, beside Spark's own reader and a plain consumer.

Used by bench/sources.py; alone: `python bench/kafka_figures.py [--json] [--scale 0.1]`. A broker is started for it, as
for the tests, on the same machine. Messages are JSON of about 118 bytes with keys. Each app is run twice on a new state
and the second run counts, from its start to its end: what is measured is a running app. Beside the rate stand the
seconds of processor time of Python and the JVM, which other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import os

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.kafka.broker import Broker, jars

import millpond as mp
from millpond.engine.spark.java import connector_jars
from millpond.engine.spark.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 1_000_000
USERS = 50_000
PARTITIONS = 4
WAIT_S = 120.0
COLUMNS = "id BIGINT, user_id STRING, symbol STRING, quantity INT, price DECIMAL(12,2), ts TIMESTAMP"


def kafka_session() -> SparkSession:
    """A session with the connector's jars."""
    found = connector_jars("kafka", os.environ)
    return build_session(extra={"spark.jars": ",".join(str(jar) for jar in found)})


@contextmanager
def running_broker(folder: Path) -> Iterator[str]:
    """The address of a broker that is gone afterwards."""
    found = jars()
    assert found is not None, "install Maven to fetch the broker"
    broker = Broker(folder, found)
    broker.start()
    try:
        yield broker.address
    finally:
        broker.stop()


def create(brokers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result(WAIT_S)


def fill(brokers: str, topic: str, count: int) -> None:
    """Messages with keys, each key once."""
    create(brokers, topic)
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000})
    for i in range(count):
        value = (
            f'{{"id": {i}, "user_id": "u{i * 7919 % USERS}", "symbol": "S{i % 500}", "quantity": {i % 100}, '
            f'"price": {i % 9000 / 100:.2f}, "ts": "2026-03-01T{i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d}Z"}}'
        )
        producer.produce(topic, value, str(i))
        if i % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(WAIT_S) == 0


class Bench:
    """One broker, one session, one topic of messages."""

    def __init__(self, spark: SparkSession, brokers: str, root: Path, count: int) -> None:
        self.spark, self.brokers, self.root, self.count = spark, brokers, root, count
        fill(brokers, "events", count)

    def figures(self, name: str, statements: str) -> dict[str, float]:
        """Messages per second of an app that is warm, and what it cost."""
        self.rate(f"{name}_warm", statements)
        before = self.busy_s()
        rate = self.rate(name, statements)
        return {f"{name}_rows_s": rate, f"{name}_cpu_s": self.busy_s() - before}

    def busy_s(self) -> float:
        """Processor time of this process and its JVM so far."""
        jvm = self.spark._jvm.java.lang.ProcessHandle.current().info().totalCpuDuration().get().toMillis() / 1000
        return time.process_time() + float(jvm)

    def rate(self, name: str, statements: str) -> float:
        """Messages per second of an app over the topic, from its start to its end."""
        users = "CREATE TABLE users (user_id STRING PRIMARY KEY, name STRING, tier STRING);\n"
        stream = f"CREATE STREAM events ({COLUMNS}) FROM 'kafka://{self.brokers}/events';\n"
        folder = self.root / name
        folder.mkdir()
        (folder / "app.sql").write_text(stream + users + statements)
        app = mp.App(folder / "app.sql", state=folder / "state", spark=self.spark)
        names = pa.array([f"u{i}" for i in range(USERS)])
        app.table("users").insert(pa.table({"user_id": names, "name": names, "tier": names}))
        started = time.monotonic()
        app.run_once()
        seconds = time.monotonic() - started
        app.stop()
        return self.count / seconds

    def spark_reader(self) -> float:
        """Spark's own reader into nothing, with the JSON parsed."""
        options = {"kafka.bootstrap.servers": self.brokers, "subscribe": "events", "startingOffsets": "earliest"}
        started = time.monotonic()
        rows = self.spark.read.format("kafka").options(**options).load()
        parsed = rows.selectExpr(f"from_json(cast(value AS string), '{COLUMNS}') AS v").select("v.*")
        parsed.write.format("noop").mode("overwrite").save()
        return self.count / (time.monotonic() - started)

    def consumer(self) -> float:
        """A loop in Python that parses each message."""
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": "bench", "enable.auto.commit": False})
        consumer.assign([TopicPartition("events", p, 0) for p in range(PARTITIONS)])
        started, seen = time.monotonic(), 0
        while seen < self.count:
            for message in consumer.consume(10_000, WAIT_S):
                json.loads(message.value())
                seen += 1
        seconds = time.monotonic() - started
        consumer.close()
        return self.count / seconds


def kafka_figures(spark: SparkSession, scale: float = 1.0) -> dict[str, float]:
    """Every figure, by name."""
    root = Path(tempfile.mkdtemp(prefix="millpond-bench-kafka-"))
    (root / "broker").mkdir()
    with running_broker(root / "broker") as brokers:
        bench = Bench(spark, brokers, root, max(int(MESSAGES * scale), 1000))
        create(brokers, "out")
        joined = "SELECT e.*, u.tier FROM events e JOIN users u ON u.user_id = e.user_id;\n"
        keyed = "CREATE TABLE kept PRIMARY KEY (id) AS SELECT * FROM events;\n"
        bench.spark_reader()
        return {
            "spark_reader_rows_s": bench.spark_reader(),
            "consumer_loop_rows_s": bench.consumer(),
            **bench.figures("kafka_in", f"INSERT INTO 'file://./out' {joined}"),
            **bench.figures("kafka_to_kafka", f"INSERT INTO 'kafka://{brokers}/out' {joined}"),
            **bench.figures("kafka_load", keyed),
        }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--scale", type=float, default=1.0)
    given = arguments.parse_args()
    figures = kafka_figures(kafka_session(), given.scale)
    for name, value in figures.items() if not given.json else ():
        print(f"{name:28s} {value:14,.1f}")
    if given.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
