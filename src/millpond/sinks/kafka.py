"""Kafka as a sink: its options; writing comes later. Guarantee: at least once, every message marked."""

from __future__ import annotations

from millpond.contracts.sink import SinkPlugin, SinkSpec
from millpond.options import BOOLEAN, DURATION, INTEGER, NAMES, SIZE, TEXT, Option, choice

OPTIONS = (
    Option("format", choice("json", "avro", "csv", "raw", "text"), "json", "How message values are written."),
    Option("key", NAMES, None, "The column(s) that become the message key."),
    Option("key.format", choice("raw", "json", "avro"), "raw", "How message keys are written."),
    Option("avro.schema", TEXT, None, "The Avro schema of message values, as JSON text."),
    Option("avro.schema.file", TEXT, None, "A file with the Avro schema of message values."),
    Option("schema.registry.url", TEXT, None, "The schema registry that message values refer to."),
    Option("acks", choice("all", "1", "0"), "all", "How many brokers must have a message before it counts as sent."),
    Option("linger", DURATION, "20ms", "How long a message waits for others to go with it."),
    Option("batch.size", SIZE, "256KiB", "The bytes that go to a partition together."),
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
    Option("kafka.*", TEXT, None, "Passed on to Kafka's client as it is.", secret=True),
)


def validate(spec: SinkSpec) -> str | None:
    """What is wrong with a URI, as a sentence."""
    topic = spec.uri.path or spec.uri.hosts
    return None if topic else "A Kafka URI names a topic, such as kafka://localhost:9092/enriched."


PLUGIN = SinkPlugin(name="kafka", options=OPTIONS, guarantee="at least once", runnable=False, validate=validate)
