"""Kafka measured: topics into a join, into a topic and into a table, beside loops of Kafka's client and plain Spark.

    python bench/kafka_figures.py [--json] [--scale 0.1] [--only loop,to_kafka,once]

Used by bench/sources.py, too. A broker is started for it, as for the tests, on the same machine. Messages are JSON of
about 118 bytes with keys. Each is run twice, an app on a new state, and the second run counts, from its start to its
end: what is measured is warm. Beside the rate stand the seconds of processor time of Python and the JVM, without those
of the broker, which other work on the machine changes less.

    consumer     a loop that consumes and parses each message, and does nothing with it
    loop         the loop that somebody would write by hand: parse, look up in a dict, serialize, produce
    loop_once    the same in a transaction for every 10,000 messages, which has the offsets, too
    spark        plain Structured Streaming: from_json, a broadcast join, to_json, into a topic
    in           Millpond: joined, into files
    to_kafka     the same into a topic, at least once
    once         the same into a topic, 'delivery' = 'exactly-once'
    load         into a keyed table
    small        batches of 100 rows into a topic: the median batch, at least once and exactly once
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import os

import pyarrow as pa
from confluent_kafka import Consumer, Message, Producer, TopicPartition
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
# The topic that is written, and the messages of one call and transaction of a loop.
OUT, PORTION = "out", 10_000
SMALL_BATCHES = 40
# As somebody who knows the client sets it up; the defaults of Millpond's sinks.
PRODUCING = {"linger.ms": 20, "batch.size": 256 << 10, "queue.buffering.max.messages": 2_000_000}
JOINED = "SELECT e.*, u.tier FROM events e JOIN users u ON u.user_id = e.user_id;\n"
Figures = dict[str, float]
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

    def figures(self, name: str, statements: str) -> Figures:
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
        started = time.monotonic()
        rows = self.spark.read.format("kafka").options(**self._reading()).load()
        parsed = rows.selectExpr(f"from_json(cast(value AS string), '{COLUMNS}') AS v").select("v.*")
        parsed.write.format("noop").mode("overwrite").save()
        return self.count / (time.monotonic() - started)

    def _reading(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.brokers, "subscribe": "events", "startingOffsets": "earliest"}

    def plain_spark(self, name: str) -> None:
        """The query that somebody who knows Spark would write, as far as the topic is filled."""
        from pyspark.sql import functions as F

        users = self.spark.range(USERS).selectExpr("concat('u', id) AS user_id", "concat('u', id) AS tier").cache()
        users.count()
        rows = self.spark.readStream.format("kafka").options(**self._reading()).load()
        parsed = rows.selectExpr(f"from_json(cast(value AS string), '{COLUMNS}') AS v").select("v.*")
        joined = parsed.join(F.broadcast(users), "user_id").select(F.to_json(F.struct("*")).alias("value"))
        writer = joined.writeStream.format("kafka").option("kafka.bootstrap.servers", self.brokers)
        writer = writer.option("kafka.linger.ms", "20").option("kafka.batch.size", str(256 << 10)).option("topic", OUT)
        query = writer.option("checkpointLocation", str(self.root / name)).trigger(availableNow=True).start()
        query.awaitTermination()

    def peer(self, name: str, work: Callable[[str], None]) -> Figures:
        """The figures of the second run of a peer."""
        work(f"{name}_warm")
        before, started = self.busy_s(), time.monotonic()
        work(f"{name}_run")
        return {f"{name}_rows_s": self.count / (time.monotonic() - started), f"{name}_cpu_s": self.busy_s() - before}

    def messages(self, name: str) -> Iterator[tuple[Consumer, list[Message]]]:
        """The messages of the topic, as many as one call returns at a time."""
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": name, "enable.auto.commit": False})
        consumer.assign([TopicPartition("events", p, 0) for p in range(PARTITIONS)])
        seen = 0
        while seen < self.count:
            found = consumer.consume(PORTION, 0.2)
            seen += len(found)
            yield consumer, found
        consumer.close()

    def consumed(self, name: str) -> None:
        for _, found in self.messages(name):
            for message in found:
                json.loads(message.value())

    def produced(self, name: str) -> None:
        tiers = {f"u{i}": f"u{i}" for i in range(USERS)}
        producer = Producer({**PRODUCING, "bootstrap.servers": self.brokers})
        for _, found in self.messages(name):
            _produce(producer, found, tiers)
        assert producer.flush(WAIT_S) == 0

    def produced_once(self, name: str) -> None:
        tiers = {f"u{i}": f"u{i}" for i in range(USERS)}
        producer = Producer({**PRODUCING, "bootstrap.servers": self.brokers, "transactional.id": name})
        producer.init_transactions(WAIT_S)
        for consumer, found in self.messages(name):
            producer.begin_transaction()
            _produce(producer, found, tiers)
            ends = {m.partition(): m.offset() + 1 for m in found}
            places = [TopicPartition("events", partition, end) for partition, end in ends.items()]
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), WAIT_S)
            producer.commit_transaction(WAIT_S)

    def small_ms(self, delivery: str) -> float:
        """The median batch of 100 rows into a topic."""
        folder = self.root / f"small-{delivery}"
        sink = f"'kafka://{self.brokers}/{OUT}' WITH ('delivery' = '{delivery}', 'linger' = '0s')"
        text = f"CREATE STREAM s (n INT) FROM 'memory://s'; INSERT INTO {sink} SELECT n, n * 2 AS twice FROM s;"
        times = []
        with mp.App(sql=text, state=folder, spark=self.spark) as app:
            app.wait_ready()
            for number in range(SMALL_BATCHES):
                app.feed("memory://s").send([{"n": number * 100 + i} for i in range(100)])
                app.drain()
                times.append(app.progress().flows[0].batch_ms)
        return statistics.median(times[SMALL_BATCHES // 4 :])


def _produce(producer: Producer, found: list[Message], tiers: dict[str, str]) -> None:
    for message in found:
        row = json.loads(message.value())
        row["tier"] = tiers[row["user_id"]]
        producer.produce(OUT, json.dumps(row))
    producer.poll(0)


def _sink(bench: Bench, options: str = "") -> str:
    return f"INSERT INTO 'kafka://{bench.brokers}/{OUT}' {options} {JOINED}"


FIGURES: dict[str, Callable[[Bench], Figures]] = {
    "reader": lambda bench: {"spark_reader_rows_s": max(bench.spark_reader() for _ in range(2))},
    "consumer": lambda bench: bench.peer("consumer_loop", bench.consumed),
    "loop": lambda bench: bench.peer("produce_loop", bench.produced),
    "loop_once": lambda bench: bench.peer("produce_loop_once", bench.produced_once),
    "spark": lambda bench: bench.peer("spark_to_kafka", bench.plain_spark),
    "in": lambda bench: bench.figures("kafka_in", f"INSERT INTO 'file://./out' {JOINED}"),
    "to_kafka": lambda bench: bench.figures("kafka_to_kafka", _sink(bench)),
    "once": lambda bench: bench.figures("kafka_to_kafka_once", _sink(bench, "WITH ('delivery' = 'exactly-once')")),
    "load": lambda bench: bench.figures("kafka_load", "CREATE TABLE kept PRIMARY KEY (id) AS SELECT * FROM events;\n"),
    "small": lambda bench: {
        "kafka_small_ms": bench.small_ms("at-least-once"),
        "kafka_small_once_ms": bench.small_ms("exactly-once"),
    },
}


def kafka_figures(spark: SparkSession, scale: float = 1.0, only: Sequence[str] = tuple(FIGURES)) -> Figures:
    """Figures by name."""
    root = Path(tempfile.mkdtemp(prefix="millpond-bench-kafka-"))
    (root / "broker").mkdir()
    figures: Figures = {}
    with running_broker(root / "broker") as brokers:
        bench = Bench(spark, brokers, root, max(int(MESSAGES * scale), 1000))
        create(brokers, OUT)
        for name in only:
            figures |= FIGURES[name](bench)
            print(f"-- {name}", file=sys.stderr, flush=True)
    shutil.rmtree(root, ignore_errors=True)
    return figures


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--scale", type=float, default=1.0, help="size of the data, 1 is full")
    arguments.add_argument("--only", default=",".join(FIGURES), help="which figures, comma between")
    given = arguments.parse_args()
    only = given.only.split(",")
    if unknown := set(only) - set(FIGURES):
        arguments.error(f"no such figures: {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    figures = kafka_figures(kafka_session(), given.scale, only)
    for name, value in figures.items() if not given.json else ():
        print(f"{name:28s} {value:14,.1f}")
    if given.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
