"""Kafka as a source: messages of topics as a stream, or by their keys as a table.

Guarantee: exactly once into tables. Offsets are in Spark's checkpoint alone, and a batch is committed with its ledger
entry, so a batch that comes again after a crash changes nothing. Order: partition, then offset.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from millpond.contracts.source import (
    HIDDEN_HEADERS,
    HIDDEN_KEY,
    HIDDEN_OFFSET,
    HIDDEN_PARTITION,
    HIDDEN_SOURCE,
    HIDDEN_TIMESTAMP,
    Found,
    Mode,
    Patience,
    SourcePlugin,
    SourceSpec,
    StreamReader,
)
from millpond.errors import MillpondError
from millpond.kafka.address import address_of
from millpond.kafka.avro import KEY, VALUE, lacking_schema
from millpond.kafka.failures import failure as told_failure
from millpond.kafka.failures import sort_of
from millpond.kafka.options import AVRO, BROKERS, CREATION, FORMAT, KEY_FORMAT, PASSED_ON, not_passed_on
from millpond.options import DURATION, INTEGER, NAMES, NUMBER, TEXT, Kind, Option, choice
from millpond.sources.topics.starting import read_offsets
from millpond.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EARLIEST, LATEST = "earliest", "latest"


def _reset(text: str) -> str:
    """Any case; a word that Kafka does not know means earliest, and the check warns of it."""
    return LATEST if text.strip().lower() == LATEST else EARLIEST


def _retry_interval(text: str) -> int:
    """A duration; the environment gives plain seconds."""
    return int(text) * 1_000_000 if text.strip().isdigit() else parse_duration(text)


RESET = Kind("reset", "earliest or latest", _reset)
RETRY_DURATION = Kind("duration", "a duration such as 2s, or plain seconds", _retry_interval)

OPTIONS = (
    FORMAT,
    Option("key", NAMES, None, "The column(s) that the message key holds; none keeps every record."),
    KEY_FORMAT,
    Option("delimiter", TEXT, ",", "What stands between the fields of a CSV message."),
    Option("quote", TEXT, '"', "What stands around a CSV field that holds delimiters."),
    Option("escape", TEXT, None, "What stands before a quote inside a CSV field; by default the quote, doubled."),
    Option("null", TEXT, None, "A CSV field of this text is NULL, as an empty one is."),
    *AVRO,
    Option("sample.rows", INTEGER, "1000", "How many messages are looked at to find columns that are not declared."),
    Option("auto.offset.reset", RESET, EARLIEST, "Where to start when there is no checkpoint: earliest or latest."),
    Option("starting.offsets", TEXT, None, "Where to start, partition by partition, as JSON."),
    Option("topic.wait.timeout", DURATION, "0s", "How long to wait for a topic that is not there."),
    Option(
        "topic.retry.interval",
        RETRY_DURATION,
        "2s",
        "How long to wait before the first retry.",
        environment="MILLPOND_RETRY_INTERVAL_SECS",
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
        NUMBER,
        "1.5",
        "By what the wait is multiplied, for exponential.",
        environment="MILLPOND_RETRY_MULTIPLIER",
    ),
    Option("topic.retry.increment", DURATION, None, "What is added to the wait, for linear; by default the interval."),
    Option(
        "topic.retry.max.delay",
        RETRY_DURATION,
        "120s",
        "The longest wait between two retries.",
        environment="MILLPOND_RETRY_MAX_DELAY_SECS",
    ),
    *CREATION,
    Option("max.rows.per.batch", INTEGER, "1000000", "The most rows that one batch takes."),
    Option("group.id.prefix", TEXT, None, "What the consumer group's name starts with."),
    BROKERS,
    PASSED_ON,
)


def validate(spec: SourceSpec) -> str | None:
    """What is wrong with a URI, as a sentence."""
    topic = (spec.uri.path or spec.uri.hosts).strip("/")
    if not topic:
        return "A Kafka URI names a topic, such as kafka://localhost:9092/trades."
    if spec.values.get("starting.offsets"):
        read_offsets(spec.values["starting.offsets"], (topic,))
    if spec.values.get("max.rows.per.batch") == 0:
        return "A batch has at least one row: 'max.rows.per.batch' cannot be 0."
    return (
        not_passed_on(spec.values)
        or lacking_schema(spec.values, "format", VALUE)
        or lacking_schema(spec.values, "key.format", KEY)
    )


def open_stream(spec: SourceSpec, folder: Path) -> StreamReader:
    from millpond.sources.topics.stream import KafkaStream

    return KafkaStream(spec, folder)


def patience(spec: SourceSpec) -> Patience:
    from millpond.kafka.retry import Retry

    return Patience(spec.values["topic.wait.timeout"] / 1_000_000, Retry.of(spec.values).delays())


def require(reader: StreamReader, spark: SparkSession) -> None:
    from millpond.sources.topics.stream import KafkaStream

    assert isinstance(reader, KafkaStream)
    reader.require(spark)


def sample(spec: SourceSpec, spark: SparkSession) -> Found:
    from millpond.sources.topics import discovery

    return discovery.sample(spec, spark)


def failure(spec: SourceSpec, error: BaseException) -> MillpondError | None:
    """One of ours, where Kafka's client failed and nobody has told it yet."""
    text = str(error)
    if isinstance(error, MillpondError) or sort_of(text) is None or "kafka" not in text.lower():
        return None
    return told_failure(address_of(spec.uri, spec.values), text)


PLUGIN = SourcePlugin(
    name="kafka",
    options=OPTIONS,
    stream_mode=Mode.APPEND,
    table_mode=Mode.CHANGES,
    hidden=(HIDDEN_SOURCE, HIDDEN_PARTITION, HIDDEN_OFFSET, HIDDEN_TIMESTAMP, HIDDEN_KEY, HIDDEN_HEADERS),
    counts_every_record=True,
    open_stream=open_stream,
    sample=sample,
    pace=("topic.*", "bulk.*", "sample.rows", "max.rows.per.batch"),
    patience=patience,
    require=require,
    failure=failure,
    validate=validate,
)
