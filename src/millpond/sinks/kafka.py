"""The Kafka sink: each row of a result becomes a message.

Guarantee: at least once. Messages are sent before the commit; after a crash the batch is sent again with the same
headers `millpond.app`, `millpond.flow`, `millpond.batch` and `millpond.row`, by which a reader can remove duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.sink import Mark, Sink, SinkPlugin, SinkSpec
from millpond.errors import MillpondError, Problem, SinkError, SourceError
from millpond.kafka.address import Address, address_of, client_properties, said_by
from millpond.kafka.avro import KEY, VALUE, wrong_schema
from millpond.kafka.client import connected
from millpond.kafka.failures import failure, missing, sort_of
from millpond.kafka.options import AVRO, BROKERS, CREATION, DELIMITER, FORMAT, KEY_FORMAT, PASSED_ON, not_passed_on
from millpond.options import DURATION, NAMES, SIZE, Beside, Option, choice
from millpond.sinks.message_parts import messages_of, parts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millpond.sinks.messages import Shape

OPTIONS = (
    FORMAT,
    Option("key", NAMES, None, "The column(s) that become the message key."),
    replace(KEY_FORMAT, only_with=(Beside("key"),)),
    Option("headers", NAMES, None, "The column(s) that become message headers."),
    DELIMITER,
    *AVRO,
    Option("acks", choice("all", "1", "0"), "all", "How many replicas must confirm a message."),
    Option("linger", DURATION, "20ms", "How long a message waits for others, to be sent together."),
    Option("batch.size", SIZE, "256KiB", "The maximal size of messages that are sent to a partition together."),
    *CREATION,
    BROKERS,
    PASSED_ON,
)
# How long the producer waits for a missing topic; its default of a minute is long for a misspelled name.
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
        """Check once that the topic exists, or create it if that is enabled here or in the brokers."""
        if self._checked:
            return
        values, topic = self._spec.values, self._address.topics[0]
        with self._translated(), connected(spark(), self._address, values) as client:
            if not client.topics() and values["topic.create.if.missing"]:
                client.create(topic, values["topic.partitions"], values["topic.replication"])
            elif not client.topics() and not client.makes_topics():
                raise missing(self._address, values["topic.partitions"], waits=False)
        self._checked = True

    def prepare(self, rows: pa.Table) -> pa.Table:
        return messages_of(rows, self._spec.values)

    def stage(self, rows: pa.Table | DataFrame, mark: Mark) -> dict[str, Any] | None:
        from millpond.sinks.messages import Shape, send

        assert not isinstance(rows, pa.Table), "this sink takes no Arrow"

        self._shape = self._shape or Shape(self._spec, self._address.topics[0])
        # For a one-shot statement, `require` was not called before.
        self.require(lambda: rows.sparkSession)
        with self._translated():
            count = send(rows, self._shape, mark, producer_options(self._address, self._spec.values))
        return {"rows": count} if count else None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            refused = self._refused(error)
            if refused is None:
                raise
            raise refused from error

    def _refused(self, error: Exception) -> SinkError | None:
        """The error of Kafka as a SinkError; None for an error of the query."""
        problem = self._problem(error)
        if problem is None:
            return None
        code = "MP602" if problem.code == "MP506" else "MP601"
        return SinkError(code, f"{self._spec.shown} cannot be written. {problem.message}", hint=problem.hint)

    def _problem(self, error: Exception) -> Problem | None:
        """The meaning of an error of Kafka's client, whether it was called by us or by Spark."""
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
        """Nothing to do: sent messages cannot be withdrawn."""

    def rows_written(self) -> int:
        return self._rows


def producer_options(address: Address, values: Mapping[str, Any]) -> dict[str, str]:
    """The options of Spark's writer; `kafka.*` options take precedence."""
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
    """The error of a URI as a sentence, or None."""
    address = address_of(spec.uri, spec.values)
    if not address.topics:
        return "A Kafka URI must have a topic, such as kafka://localhost:9092/enriched."
    if len(address.topics) > 1 or address.pattern is not None:
        return "A Kafka sink is one topic, not a list or a pattern."
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
