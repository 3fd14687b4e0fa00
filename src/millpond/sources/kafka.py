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
from millpond.kafka.address import address_of, said_by
from millpond.kafka.avro import KEY, VALUE, wrong_schema
from millpond.kafka.failures import failure as told_failure
from millpond.kafka.failures import sort_of
from millpond.kafka.options import AVRO, BROKERS, CREATION, CSV, DELIMITER, FORMAT, KEY_FORMAT, PASSED_ON, not_passed_on
from millpond.options import DURATION, NAMES, NUMBER, POSITIVE, SPAN, TEXT, Beside, Kind, Option, choice
from millpond.sources.topics.starting import read_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EARLIEST, LATEST = "earliest", "latest"


def _reset(text: str) -> str:
    """Any case; a word that Kafka does not know means earliest, and the check warns of it."""
    return LATEST if text.strip().lower() == LATEST else EARLIEST


def _multiplier(text: str) -> float:
    factor = float(NUMBER.parse(text))
    if factor < 1:
        raise ValueError(text)
    return factor


RESET = Kind("reset", "earliest or latest", _reset)
MULTIPLIER = Kind("number", "a number, at least 1", _multiplier)

OPTIONS = (
    FORMAT,
    Option("key", NAMES, None, "The column(s) that the message key holds; none keeps every record."),
    KEY_FORMAT,
    DELIMITER,
    Option("quote", TEXT, '"', "What stands around a CSV field that holds delimiters.", only_with=CSV),
    Option(
        "escape",
        TEXT,
        None,
        "What stands before a quote inside a CSV field; by default the quote, doubled.",
        only_with=CSV,
    ),
    Option("null", TEXT, None, "A CSV field of this text is NULL, as an empty one is.", only_with=CSV),
    *AVRO,
    Option("sample.rows", POSITIVE, "1000", "How many messages are looked at to find columns that are not declared."),
    Option("auto.offset.reset", RESET, EARLIEST, "Where to start when there is no checkpoint: earliest or latest."),
    Option("starting.offsets", TEXT, None, "Where to start, partition by partition, as JSON."),
    Option("topic.wait.timeout", DURATION, "0s", "How long to wait for a topic that is not there."),
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
        "By what the wait is multiplied, for exponential.",
        environment="MILLPOND_RETRY_MULTIPLIER",
        only_with=(Beside("topic.retry.strategy", "exponential"),),
    ),
    Option(
        "topic.retry.increment",
        DURATION,
        None,
        "What is added to the wait, for linear; by default the interval.",
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
    Option("max.rows.per.batch", POSITIVE, "1000000", "The most rows that one batch takes."),
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
    return (
        not_passed_on(spec.values)
        or wrong_schema(spec.values, "format", VALUE, written=False)
        or wrong_schema(spec.values, "key.format", KEY, written=False)
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
    said_by=said_by,
    key_may_be_column=lambda values: not values["key"] and values["key.format"] == "raw",
)
