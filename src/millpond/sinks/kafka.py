"""The Kafka sink: each row of a result becomes a message.

Guarantee: at least once. Messages are sent before the commit; after a crash the batch is sent again with the same
headers `millpond.app`, `millpond.flow`, `millpond.batch` and `millpond.row`, by which a reader can remove duplicates.
With 'delivery' = 'exactly-once' it is exactly once; see kafka_transactions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.sink import Mark, Sink, SinkPlugin, SinkSpec
from millpond.contracts.stored_json import JsonObject, StoredJson
from millpond.errors import MillpondError, Problem, SinkError, SourceError
from millpond.kafka.address import Address, address_of, client_properties, reachable, set_by
from millpond.kafka.admin import connected
from millpond.kafka.avro import KEY, VALUE, wrong_schema
from millpond.kafka.kafka_errors import failure, missing, sort_of, unreachable
from millpond.kafka.librdkafka import Topics, is_installed, kafka_error, meaning, untranslated
from millpond.kafka.options import AVRO, BROKERS, CREATION, DELIMITER, FORMAT, KEY_FORMAT, PASSED_ON, not_passed_on
from millpond.kafka.producer import Producer
from millpond.options import DURATION, NAMES, SIZE, TEXT, Beside, Option, choice
from millpond.sinks.kafka_transactions import EXACTLY_ONCE, TransactionalKafkaSink, wrong_delivery
from millpond.sinks.message_parts import KEY as MESSAGE_KEY
from millpond.sinks.message_parts import VALUE as MESSAGE_VALUE
from millpond.sinks.message_parts import are_messages, mark_headers, messages_of, parts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millpond.sinks.kafka_messages import Shape

OPTIONS = (
    FORMAT,
    Option("key", NAMES, None, "The column(s) that become the message key."),
    replace(KEY_FORMAT, only_with=(Beside("key"),)),
    Option("headers", NAMES, None, "The column(s) that become message headers."),
    DELIMITER,
    *AVRO,
    Option(
        "delivery",
        choice("at-least-once", EXACTLY_ONCE),
        "at-least-once",
        "Whether messages may be repeated after a crash, or are written in transactions of Kafka, once.",
    ),
    Option(
        "transaction.prefix",
        TEXT,
        "millpond",
        "The prefix of the name of transactions and of their consumer group, for access control.",
        only_with=(Beside("delivery", EXACTLY_ONCE),),
    ),
    Option("acks", choice("all", "1", "0"), "all", "How many replicas must confirm a message."),
    Option("linger", DURATION, "20ms", "How long a message waits for others, to be sent together."),
    Option("batch.size", SIZE, "256KiB", "The maximal size of messages that are sent to a partition together."),
    *CREATION,
    BROKERS,
    PASSED_ON,
)
# How long the producer waits for a missing topic; its default of a minute is long for a misspelled name.
BLOCK_MS = 30_000
# The messages that are passed to the producer of the driver at a time.
CHUNK_ROWS = 10_000


class KafkaSink:
    """A Sink that is a topic; see the contract."""

    def __init__(self, spec: SinkSpec) -> None:
        self._spec = spec
        self._address = address_of(spec.uri, spec.values)
        self._checked = False
        self._shape: Shape | None = None
        self._rows = 0
        # Whether rows that are on the driver are sent from there, by Kafka's client in C, or by Spark.
        self._is_direct = is_direct(spec.values)
        self._producer: Producer | None = None
        # Several flows may write here.
        self._turn = threading.Lock()
        spec.at_stop(self._close)

    marks_rows = True

    def require(self, spark: Callable[[], SparkSession]) -> None:
        """Check once that the topic exists, or create it if that is enabled here or in the brokers."""
        if self._checked:
            return
        if self._is_direct:
            with self._translated():
                Topics(self._address, self._spec.values).require(written=True)
            self._checked = True
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

    def takes_arrow(self, rows: pa.Table) -> bool:
        return self._is_direct and are_messages(rows)

    def stage(self, rows: pa.Table | DataFrame, mark: Mark) -> JsonObject | None:
        if isinstance(rows, pa.Table):
            return self._send(rows, mark)
        from millpond.sinks.kafka_messages import Shape, send

        self._shape = self._shape or Shape(self._spec, self._address.topics[0])
        # For a one-shot statement, `require` was not called before.
        self.require(lambda: rows.sparkSession)
        with self._translated():
            count = send(rows, self._shape, mark, producer_options(self._address, self._spec.values))
        return {"rows": count} if count else None

    def _send(self, rows: pa.Table, mark: Mark) -> JsonObject | None:
        """Send finished messages by the producer of the driver."""
        if not rows.num_rows:
            return None
        self.require(_no_session)
        with self._turn, self._translated():
            if not reachable(self._address):
                # The producer would wait for a minute.
                raise unreachable(self._address)
            try:
                self._producer = self._producer or Producer(self._address, self._spec.values)
                for batch in rows.to_batches(max_chunksize=CHUNK_ROWS):
                    headers = mark_headers(batch, mark, self._spec.writer)
                    self._producer.queue(batch[MESSAGE_VALUE].to_pylist(), batch[MESSAGE_KEY].to_pylist(), headers)
                self._producer.flush()
            except BaseException:
                self._close()
                raise
        return {"rows": rows.num_rows}

    def _close(self) -> None:
        if self._producer is not None:
            self._producer.client.purge()
            self._producer.close()
        self._producer = None

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
        if self._is_direct and kafka_error(error) is not None:
            return meaning(self._address, error).problems[0]
        text = str(error)
        if isinstance(error, MillpondError) or sort_of(text) is None:
            return None
        found = failure(self._address, text)
        if found.code == "MP501" or "not present in metadata" in text:
            found = missing(self._address, self._spec.values["topic.partitions"], waits=False)
        return found.problems[0]

    def publish(self, staged: dict[str, StoredJson]) -> None:
        self._rows += staged["rows"]

    def discard(self) -> None:
        """Nothing to do: sent messages cannot be withdrawn."""

    def rows_written(self) -> int:
        return self._rows


def is_direct(values: Mapping[str, Any]) -> bool:
    """Whether rows that are on the driver are sent from there."""
    return is_installed() and untranslated(values) is None


def needs_spark(spec: SinkSpec) -> bool:
    values = spec.values
    return not is_direct(values) or values["format"] != "json" or bool(values["headers"])


def _no_session() -> SparkSession:
    raise AssertionError("messages that are sent from the driver need no Spark")


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
    return TransactionalKafkaSink(spec) if spec.values["delivery"] == EXACTLY_ONCE else KafkaSink(spec)


def guarantee_of(values: Mapping[str, Any]) -> str:
    return "exactly once" if values["delivery"] == EXACTLY_ONCE else "at least once"


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
        or (wrong_delivery(spec.values) if spec.values["delivery"] == EXACTLY_ONCE else None)
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
    set_by=set_by,
    guarantee_of=guarantee_of,
    needs_spark=needs_spark,
)
