"""Kafka as a source: its options; reading comes later."""

from __future__ import annotations

from millpond.contracts.source import (
    HIDDEN_HEADERS,
    HIDDEN_KEY,
    HIDDEN_OFFSET,
    HIDDEN_PARTITION,
    HIDDEN_SOURCE,
    HIDDEN_TIMESTAMP,
    Mode,
    SourcePlugin,
    SourceSpec,
)
from millpond.options import BOOLEAN, DURATION, INTEGER, NAMES, NUMBER, TEXT, Kind, Option, choice
from millpond.units import parse_duration

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
    Option("format", choice("json", "avro", "csv", "raw", "text"), "json", "How message values are written."),
    Option("key", NAMES, None, "The column(s) that the message key holds; none keeps every record."),
    Option("key.format", choice("raw", "json", "avro"), "raw", "How message keys are written."),
    Option("delimiter", TEXT, ",", "What stands between the fields of a CSV message."),
    Option("quote", TEXT, '"', "What stands around a CSV field that holds delimiters."),
    Option("escape", TEXT, None, "What stands before a quote inside a CSV field; by default the quote, doubled."),
    Option("null", TEXT, None, "A CSV field of this text is NULL, as an empty one is."),
    Option("avro.schema", TEXT, None, "The Avro schema of message values, as JSON text."),
    Option("avro.schema.file", TEXT, None, "A file with the Avro schema of message values."),
    Option("schema.registry.url", TEXT, None, "The schema registry that message values refer to."),
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
    Option("topic.create.if.missing", BOOLEAN, "false", "Whether to create a topic that is not there."),
    Option(
        "topic.partitions",
        INTEGER,
        "6",
        "Partitions of a topic that is created.",
        environment="MILLPOND_DEFAULT_PARTITIONS",
    ),
    Option(
        "topic.replication",
        INTEGER,
        "3",
        "Replicas of a topic that is created; at most the brokers there are.",
        environment="MILLPOND_DEFAULT_REPLICATION_FACTOR",
    ),
    Option("max.rows.per.batch", INTEGER, "1000000", "The most rows that one batch takes."),
    Option("group.id.prefix", TEXT, None, "What the consumer group's name starts with."),
    Option("kafka.*", TEXT, None, "Passed on to Kafka's client as it is.", secret=True),
)


def validate(spec: SourceSpec) -> str | None:
    """What is wrong with a URI, as a sentence."""
    topic = spec.uri.path or spec.uri.hosts
    return None if topic else "A Kafka URI names a topic, such as kafka://localhost:9092/trades."


PLUGIN = SourcePlugin(
    name="kafka",
    options=OPTIONS,
    stream_mode=Mode.APPEND,
    table_mode=Mode.CHANGES,
    hidden=(HIDDEN_SOURCE, HIDDEN_PARTITION, HIDDEN_OFFSET, HIDDEN_TIMESTAMP, HIDDEN_KEY, HIDDEN_HEADERS),
    runnable=False,
    counts_every_record=True,
    validate=validate,
)
