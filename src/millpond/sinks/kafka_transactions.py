"""Kafka messages exactly once: the rows of a commit are sent after it, in one transaction of Kafka.

Messages are stored in the outbox before our commit. After it they are sent by a producer of the driver, in a
transaction that also writes the id of the output, as the metadata of an offset of a consumer group without
members. A transaction cannot be continued by another process: after a crash, Kafka aborts the one that was open, and
the id in the group shows whether the last output was committed. What is missing is sent again from the outbox.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.sink import Mark, SinkSpec
from millpond.contracts.stored_json import JsonObject, StoredJson
from millpond.disk import sync_folder, touch_private
from millpond.errors import MillpondError, Problem, SinkError, SourceError
from millpond.faults import reach
from millpond.kafka.address import Address, address_of, reachable
from millpond.kafka.kafka_errors import unreachable
from millpond.kafka.librdkafka import Topics, c_properties, kafka_error, library, meaning, untranslated
from millpond.kafka.producer import Producer
from millpond.sinks.message_parts import HEADERS, KEY, VALUE, are_messages, messages_of
from millpond.sinks.outbox import Outbox, Parcel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millpond.sinks.kafka_messages import Shape

EXACTLY_ONCE = "exactly-once"
# The most messages of a record batch of the outbox.
CHUNK_ROWS = 10_000
# How long the brokers may take for each step of a transaction, and keep one open whose producer has gone.
STEP_S, TRANSACTION_MS = 60.0, 300_000
RETRY_S = 0.2
# The first id, and a file in the folder of the sink as soon as Kafka has it.
BEGUN = "begun"
FENCED = ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")


class Transactions:
    """The transactions of one sink: a producer, whose name is that of the consumer group, too. After any error it is
    replaced by a new one, which first determines what was committed. One thread at a time."""

    def __init__(self, address: Address, values: Mapping[str, Any], name: str) -> None:
        self._address, self._topic, self._name = address, address.topics[0], name
        kafka, given = library(), c_properties(address, values)
        timeout = {"transaction.timeout.ms": values.get("kafka.transaction.timeout.ms", str(TRANSACTION_MS))}
        self._producer = Producer(address, values, {**timeout, "transactional.id": name})
        self._producer.client.init_transactions(STEP_S)
        of_reader = {n: v for n, v in given.items() if n.startswith(("bootstrap.", "security.", "sasl.", "ssl."))}
        reader = kafka.Consumer({**of_reader, "group.id": name, "enable.auto.commit": "false", "log_level": "0"})
        try:
            # The id of the last output that was committed; None if Kafka has none.
            self.last = _last_id(reader, kafka.TopicPartition(self._topic, 0))
            self._group = reader.consumer_group_metadata()
        finally:
            reader.close()

    def send(self, parcel: Parcel) -> int:
        """Send the messages of an output, all or none; returns their number."""
        producer, rows = self._producer, 0
        producer.client.begin_transaction()
        for batch in parcel.rows():
            headers = None
            if HEADERS in batch.schema.names:
                headers = [[(h["key"], h["value"]) for h in found] for found in batch[HEADERS].to_pylist()]
            producer.queue(batch[VALUE].to_pylist(), batch[KEY].to_pylist(), headers)
            rows += batch.num_rows
        producer.flush()
        self._mark(parcel.id)
        reach("sink.sent")
        producer.client.commit_transaction(STEP_S)
        self.last = parcel.id
        return rows

    def begin(self) -> None:
        """Write a first id, so that the lack of one means that Kafka has removed it."""
        self._producer.client.begin_transaction()
        self._mark(BEGUN)
        self._producer.client.commit_transaction(STEP_S)
        self.last = BEGUN

    def _mark(self, id_: str) -> None:
        mark = library().TopicPartition(self._topic, 0, 0, id_)
        self._producer.client.send_offsets_to_transaction([mark], self._group, STEP_S)

    def abandon(self) -> None:
        """After an error: abort what is open, if that is possible. Else Kafka does, when the next producer starts."""
        try:
            self._producer.client.abort_transaction(1.0)
        except Exception:
            self._producer.client.purge()
        self.close()

    def close(self) -> None:
        self._producer.close()


def _last_id(reader: Any, place: Any) -> str | None:
    """The metadata of the offset of a group. The first group of a broker, and one whose broker is replaced, has no
    coordinator for a moment, which the client reports instead of trying again."""
    deadline = time.monotonic() + STEP_S
    while True:
        try:
            (found,) = reader.committed([place], STEP_S)
            if found.error is not None:
                raise library().KafkaException(found.error)
            return found.metadata if found.offset >= 0 else None
        except library().KafkaException as error:
            if "COORDINATOR" not in kafka_error(error).name() or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_S)


class TransactionalKafkaSink:
    """A Sink that is a topic, written in transactions; see the contract. Several flows may write to one."""

    marks_rows = False

    def __init__(self, spec: SinkSpec) -> None:
        assert spec.folder is not None, "the app has a state directory"
        self._spec, self._folder = spec, spec.folder
        self._address = address_of(spec.uri, spec.values)
        self._outbox = Outbox(spec.folder)
        self._transactions: Transactions | None = None
        self._shape: Shape | None = None
        self._checked = False
        # The outputs that may be in Kafka already: those of an earlier process, and those that this one tried to send.
        self._uncertain = {parcel.id for parcel in self._outbox.parcels()}
        self._rows = 0
        self._turn = threading.Lock()
        spec.at_stop(self._close)

    def require(self, spark: Callable[[], SparkSession]) -> None:
        with self._turn:
            try:
                self._require()
            except SourceError as error:
                raise self._refused(error.problems[0]) from error
            self._send_ready()

    def _require(self) -> None:
        if not self._checked:
            Topics(self._address, self._spec.values).require(written=True)
            self._checked = True

    def prepare(self, rows: pa.Table) -> pa.Table:
        return messages_of(rows, self._spec.values)

    def takes_arrow(self, rows: pa.Table) -> bool:
        return are_messages(rows)

    def stage(self, rows: pa.Table | DataFrame, mark: Mark) -> JsonObject | None:
        if isinstance(rows, pa.Table):
            messages = rows
        else:
            from millpond.sinks.kafka_messages import Shape, finished

            self._shape = self._shape or Shape(self._spec, self._address.topics[0])
            messages = finished(rows, self._shape)
        if not messages.num_rows:
            return None
        return {"staged": self._outbox.stage(messages, mark, CHUNK_ROWS), "rows": messages.num_rows}

    def publish(self, staged: dict[str, StoredJson]) -> None:
        with self._turn:
            self._outbox.ready(staged["staged"])
            reach("sink.ready")
            self._send_ready()

    def _send_ready(self) -> None:
        parcels = self._outbox.parcels()
        while parcels:
            parcel = parcels.pop(0)
            self._rows += self._sent(parcel)
            reach("sink.applied")
            # At most one output can be in Kafka and in the outbox after a power failure.
            self._outbox.remove(parcel, durably=bool(parcels))
            self._uncertain.discard(parcel.id)

    def _sent(self, parcel: Parcel) -> int:
        try:
            if not reachable(self._address):
                # The producer would wait for a minute.
                raise unreachable(self._address)
            self._require()
            transactions = self._opened(parcel)
            self._uncertain.add(parcel.id)
            return 0 if transactions.last == parcel.id else transactions.send(parcel)
        except Exception as error:
            if self._transactions is not None:
                self._transactions.abandon()
                self._transactions = None
            if isinstance(error, SourceError):
                raise self._refused(error.problems[0]) from error
            if isinstance(error, MillpondError | OSError | pa.ArrowException):
                raise
            raise self._failed(error) from error

    def _opened(self, parcel: Parcel) -> Transactions:
        """The producer; a new one determines whether the output was committed by an earlier one."""
        if self._transactions is None:
            prefix = self._spec.values["transaction.prefix"]
            self._transactions = Transactions(
                self._address, self._spec.values, f"{prefix}-{self._spec.writer}-{self._spec.id}"
            )
        if self._transactions.last is None:
            if parcel.id in self._uncertain and (self._folder / BEGUN).exists():
                raise self._unknown(parcel)
            self._transactions.begin()
            touch_private(self._folder / BEGUN)
            sync_folder(self._folder)
        return self._transactions

    def _unknown(self, parcel: Parcel) -> SinkError:
        message = (
            f"It is not known whether the output {parcel.mark} was written to {self._spec.shown}: the brokers have"
            " removed the offsets of its consumer group."
        )
        begun = self._folder / BEGUN
        hint = f"If the topic has its messages, remove {parcel.path}; if not, remove {begun}. Then start again."
        return SinkError("MP601", message, hint=hint)

    def _failed(self, error: Exception) -> SinkError:
        found = kafka_error(error)
        if found is not None and found.name() in FENCED:
            message = (
                f"{self._spec.shown} is written by another process with the same state directory, or a copy of it."
            )
            return SinkError("MP601", message, hint="Stop one of them. A copy needs another 'transaction.prefix'.")
        return self._refused(meaning(self._address, error).problems[0])

    def _refused(self, problem: Problem) -> SinkError:
        code = "MP602" if problem.code == "MP506" else "MP601"
        return SinkError(code, f"{self._spec.shown} cannot be written. {problem.message}", hint=problem.hint)

    def discard(self) -> None:
        with self._turn:
            self._outbox.discard()

    def rows_written(self) -> int:
        return self._rows

    def _close(self) -> None:
        with self._turn:
            if self._transactions is not None:
                self._transactions.close()
            self._transactions = None


def wrong_delivery(values: Mapping[str, Any]) -> str | None:
    """The error of options that cannot be combined with exactly once, as a sentence, or None."""
    if values["acks"] != "all" or values.get("kafka.acks", "all") not in ("all", "-1"):
        return "With 'delivery' = 'exactly-once', 'acks' must be 'all'."
    if values.get("kafka.enable.idempotence", "true").lower() != "true":
        return "With 'delivery' = 'exactly-once', 'kafka.enable.idempotence' must be 'true'."
    option = untranslated(values)
    if option is not None:
        return f"'{option}' cannot be used with 'delivery' = 'exactly-once': Kafka's client in C has no equivalent."
    library()
    return None
