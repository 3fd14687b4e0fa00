"""The Kafka source: messages of topics as a stream, or by their keys as a table.

Guarantee: exactly once into tables. Offsets are stored only in Spark's checkpoint, and a batch is committed with its
ledger entry, so that a batch that is repeated after a crash changes nothing. Order: partition, then offset.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.contracts.native_stream import NativeStream
from millpond.contracts.source import (
    HIDDEN_HEADERS,
    HIDDEN_KEY,
    HIDDEN_OFFSET,
    HIDDEN_PARTITION,
    HIDDEN_SOURCE,
    HIDDEN_TIMESTAMP,
    Found,
    Mode,
    NativePast,
    Patience,
    SourcePlugin,
    SourceSpec,
)
from millpond.errors import MillpondError
from millpond.kafka.address import address_of, set_by
from millpond.kafka.avro import KEY, VALUE, wrong_schema
from millpond.kafka.kafka_errors import failure as kafka_failure
from millpond.kafka.kafka_errors import sort_of
from millpond.kafka.options import (
    AVRO,
    BROKERS,
    CREATION,
    CSV,
    DELIMITER,
    KEY_FORMAT,
    PASSED_ON,
    READ_FORMAT,
    not_passed_on,
)
from millpond.options import DURATION, MULTIPLIER, NAMES, POSITIVE, SPAN, TEXT, Beside, Kind, Option, choice
from millpond.sources.kafka.offsets import read_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

EARLIEST, LATEST = "earliest", "latest"


def _reset(text: str) -> str:
    """In upper or lower case; an unknown word means earliest, and `check` warns about it."""
    return LATEST if text.strip().lower() == LATEST else EARLIEST


RESET = Kind("reset", "earliest or latest", _reset)

OPTIONS = (
    READ_FORMAT,
    Option("key", NAMES, None, "The column(s) of the message key; none keeps every record."),
    KEY_FORMAT,
    DELIMITER,
    Option("quote", TEXT, '"', "The quote around a CSV field that contains delimiters.", only_with=CSV),
    Option(
        "escape",
        TEXT,
        None,
        "The escape before a quote inside a CSV field; by default the quote itself.",
        only_with=CSV,
    ),
    Option("null", TEXT, None, "A CSV field of this text is NULL, as an empty one is.", only_with=CSV),
    *AVRO,
    Option("sample.rows", POSITIVE, "1000", "How many messages are read to discover columns that are not declared."),
    Option("auto.offset.reset", RESET, EARLIEST, "Where to start when there is no checkpoint: earliest or latest."),
    Option("starting.offsets", TEXT, None, "Where to start, partition by partition, as JSON."),
    Option("topic.wait.timeout", DURATION, "0s", "How long to wait for a missing topic."),
    Option(
        "topic.retry.interval",
        SPAN,
        "2s",
        "How long to wait before the first retry.",
        environment="MILLPOND_RETRY_INTERVAL_SECS",
        environment_unit="s",
    ),
    Option(
        "topic.retry.strategy",
        choice("fixed", "linear", "exponential"),
        "exponential",
        "How the wait between retries grows.",
        environment="MILLPOND_RETRY_STRATEGY",
    ),
    Option(
        "topic.retry.multiplier",
        MULTIPLIER,
        "1.5",
        "The factor by which the wait grows, for exponential.",
        environment="MILLPOND_RETRY_MULTIPLIER",
        only_with=(Beside("topic.retry.strategy", "exponential"),),
    ),
    Option(
        "topic.retry.increment",
        DURATION,
        None,
        "The amount by which the wait grows, for linear; by default the interval.",
        only_with=(Beside("topic.retry.strategy", "linear"),),
    ),
    Option(
        "topic.retry.max.delay",
        SPAN,
        "120s",
        "The longest wait between two retries.",
        environment="MILLPOND_RETRY_MAX_DELAY_SECS",
        environment_unit="s",
    ),
    *CREATION,
    Option("max.rows.per.batch", POSITIVE, "1000000", "The maximal number of rows of a batch."),
    Option("group.id.prefix", TEXT, None, "The prefix of the consumer group's name."),
    BROKERS,
    PASSED_ON,
)


def validate(spec: SourceSpec) -> str | None:
    """The error of a URI as a sentence, or None."""
    topic = (spec.uri.path or spec.uri.hosts).strip("/")
    if not topic:
        return "A Kafka URI must have a topic, such as kafka://localhost:9092/trades."
    if spec.values.get("starting.offsets"):
        read_offsets(spec.values["starting.offsets"], (topic,))
    return (
        not_passed_on(spec.values)
        or wrong_schema(spec.values, "format", VALUE, written=False)
        or wrong_schema(spec.values, "key.format", KEY, written=False)
    )


def open_native(spec: SourceSpec, folder: Path) -> NativeStream:
    from millpond.sources.kafka.stream import KafkaStream

    return KafkaStream(spec, folder)


def patience(spec: SourceSpec) -> Patience:
    from millpond.kafka.options import Retry

    return Patience(spec.values["topic.wait.timeout"] / 1_000_000, Retry.of(spec.values).delays())


def sample(spec: SourceSpec, spark: Callable[[], SparkSession]) -> Found:
    from millpond.sources.kafka import discovery

    return discovery.sample(spec, spark())


def native_past(wanted: NativePast) -> Iterator[pa.Table]:
    from millpond.sources.kafka.past_messages import read_past

    return read_past(wanted)


def failure(spec: SourceSpec, error: BaseException) -> MillpondError | None:
    """The coded error of a failure of Kafka's client, unless it was translated already."""
    text = str(error)
    if isinstance(error, MillpondError) or sort_of(text) is None or "kafka" not in text.lower():
        return None
    return kafka_failure(address_of(spec.uri, spec.values), text)


PLUGIN = SourcePlugin(
    name="kafka",
    options=OPTIONS,
    stream_mode=Mode.APPEND,
    table_mode=Mode.CHANGES,
    hidden=(HIDDEN_SOURCE, HIDDEN_PARTITION, HIDDEN_OFFSET, HIDDEN_TIMESTAMP, HIDDEN_KEY, HIDDEN_HEADERS),
    counts_every_record=True,
    open_native=open_native,
    sample=sample,
    pace=("topic.*", "bulk.*", "sample.rows", "max.rows.per.batch"),
    patience=patience,
    failure=failure,
    validate=validate,
    set_by=set_by,
    native_past=native_past,
    key_may_be_column=lambda values: not values["key"] and values["key.format"] == "raw",
)
