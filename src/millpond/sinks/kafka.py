"""Kafka as a sink: each row of a result becomes a message.

Guarantee: at least once. Messages go out before the commit; after a crash the batch goes out again with the same
headers `millpond.flow`, `millpond.batch` and `millpond.row`, so that a reader can drop what it has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millpond.contracts.sink import Mark, Sink, SinkPlugin, SinkSpec
from millpond.errors import MillpondError, Problem, SinkError, SourceError
from millpond.kafka.address import Address, address_of, client_properties, said_by
from millpond.kafka.avro import KEY, VALUE, wrong_schema
from millpond.kafka.client import connected
from millpond.kafka.failures import failure, missing, sort_of
from millpond.kafka.options import AVRO, BROKERS, CREATION, DELIMITER, FORMAT, KEY_FORMAT, PASSED_ON, not_passed_on
from millpond.options import DURATION, NAMES, SIZE, Beside, Option, choice
from millpond.sinks.prepared import messages_of
from millpond.sinks.shaping import parts_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from millpond.sinks.messages import Shape

OPTIONS = (
    FORMAT,
    Option("key", NAMES, None, "The column(s) that become the message key."),
    replace(KEY_FORMAT, only_with=(Beside("key"),)),
    Option("headers", NAMES, None, "The column(s) that become headers of the message."),
    DELIMITER,
    *AVRO,
    Option("acks", choice("all", "1", "0"), "all", "How many brokers must have a message before it counts as sent."),
    Option("linger", DURATION, "20ms", "How long a message waits for others to go with it."),
    Option("batch.size", SIZE, "256KiB", "The bytes that go to a partition together."),
    *CREATION,
    BROKERS,
    PASSED_ON,
)
# How long the producer looks for a topic before it gives up; its own minute is long for a misspelt name.
BLOCK_MS = 30_000


class KafkaSink:
    """A Sink that is a topic; see the contract."""

    def __init__(self, spec: SinkSpec) -> None:
        self._spec = spec
        self._address = address_of(spec.uri, spec.values)
        self._checked = False
        self._shape: Shape | None = None
        self._rows = 0

    takes_arrow, marks_rows = False, True

    def require(self, spark: Callable[[], SparkSession]) -> None:
        """Once: see that the topic is there, or make it where that is asked; brokers that make it themselves may."""
        if self._checked:
            return
        values, topic = self._spec.values, self._address.topics[0]
        with self._told_as_ours(), connected(spark(), self._address, values) as client:
            if not client.topics() and values["topic.create.if.missing"]:
                client.create(topic, values["topic.partitions"], values["topic.replication"])
            elif not client.topics() and not client.makes_topics():
                raise missing(self._address, values["topic.partitions"], waits=False)
        self._checked = True

    def prepare(self, rows: pa.Table) -> pa.Table:
        return messages_of(rows, self._spec.values)

    def stage(self, rows: DataFrame, mark: Mark) -> dict[str, Any] | None:
        from millpond.sinks.messages import Shape, send

        self._shape = self._shape or Shape(self._spec, self._address.topics[0])
        # A statement without a stream has no other start.
        self.require(lambda: rows.sparkSession)
        with self._told_as_ours():
            count = send(rows, self._shape, mark, producer_options(self._address, self._spec.values))
        return {"rows": count} if count else None

    @contextmanager
    def _told_as_ours(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            refused = self._refused(error)
            if refused is None:
                raise
            raise refused from error

    def _refused(self, error: Exception) -> SinkError | None:
        """What Kafka refused as ours; None for what the query did wrong."""
        told = self._told(error)
        if told is None:
            return None
        code = "MP602" if told.code == "MP506" else "MP601"
        return SinkError(code, f"{self._spec.shown} cannot be written. {told.message}", hint=told.hint)

    def _told(self, error: Exception) -> Problem | None:
        """What Kafka's client means, whether it was asked by us or by Spark."""
        if isinstance(error, SourceError):
            return error.problems[0]
        text = str(error)
        if isinstance(error, MillpondError) or sort_of(text) is None:
            return None
        found = failure(self._address, text)
        if found.code == "MP501" or "not present in metadata" in text:
            found = missing(self._address, self._spec.values["topic.partitions"], waits=False)
        return found.problems[0]

    def publish(self, staged: dict[str, Any]) -> None:
        self._rows += staged["rows"]

    def discard(self) -> None:
        """Nothing is staged: what went out is out."""

    def rows_written(self) -> int:
        return self._rows


def producer_options(address: Address, values: Mapping[str, Any]) -> dict[str, str]:
    """What Spark's writer is told; the `kafka.*` options win."""
    tuned = {
        "acks": values["acks"],
        "linger.ms": str(values["linger"] // 1000),
        "batch.size": str(values["batch.size"]),
        "max.block.ms": str(BLOCK_MS),
    }
    client = {**tuned, **client_properties(address, values)}
    return {"topic": address.topics[0], **{f"kafka.{name}": value for name, value in client.items()}}


def open_sink(spec: SinkSpec) -> Sink:
    return KafkaSink(spec)


def validate(spec: SinkSpec) -> str | None:
    """What is wrong with a URI, as a sentence."""
    address = address_of(spec.uri, spec.values)
    if not address.topics:
        return "A Kafka URI names a topic, such as kafka://localhost:9092/enriched."
    if len(address.topics) > 1 or address.pattern is not None:
        return "A Kafka sink is one topic; a list or a pattern names several."
    return (
        not_passed_on(spec.values)
        or wrong_schema(spec.values, "format", VALUE, written=True)
        or wrong_schema(spec.values, "key.format", KEY, written=True)
    )


def fits(spec: SinkSpec, columns: tuple[str, ...]) -> None:
    parts_of(spec.values, columns)


PLUGIN = SinkPlugin(
    name="kafka",
    options=OPTIONS,
    guarantee="at least once",
    open=open_sink,
    validate=validate,
    fits=fits,
    said_by=said_by,
)
