"""The options that Kafka's source and sink have in common, each declared once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.options import BOOLEAN, FILE, TEXT, Beside, Option, choice, whole

BROKERS = Option(
    "brokers", TEXT, None, "The brokers, where the URI names none; by default the setting.", setting="kafka.brokers"
)
FORMAT = Option(
    "format", choice("json", "avro", "csv", "raw", "text", "bytes"), "json", "How message values are written."
)
KEY_FORMAT = Option("key.format", choice("raw", "json", "avro"), "raw", "How message keys are written.")
_AVRO_VALUE, _AVRO_KEY = Beside("format", "avro"), Beside("key.format", "avro")
AVRO = (
    Option("avro.schema", TEXT, None, "The Avro schema of message values, as JSON text.", only_with=(_AVRO_VALUE,)),
    Option("avro.schema.file", FILE, None, "A file with the Avro schema of message values.", only_with=(_AVRO_VALUE,)),
    Option("key.avro.schema", TEXT, None, "The Avro schema of message keys, as JSON text.", only_with=(_AVRO_KEY,)),
    Option("key.avro.schema.file", FILE, None, "A file with the Avro schema of message keys.", only_with=(_AVRO_KEY,)),
    Option(
        "schema.registry.url",
        TEXT,
        None,
        "The schema registry that messages refer to, or are registered with.",
        only_with=(_AVRO_VALUE, _AVRO_KEY),
    ),
)
CSV = (Beside("format", "csv"),)
DELIMITER = Option("delimiter", TEXT, ",", "What stands between the fields of a CSV message.", only_with=CSV)
CREATION = (
    Option("topic.create.if.missing", BOOLEAN, "false", "Whether to create a topic that is not there."),
    Option(
        "topic.partitions",
        whole(1, 2**31 - 1, "a whole number, at least 1"),
        "6",
        "Partitions of a topic that is created.",
        environment="MILLPOND_DEFAULT_PARTITIONS",
    ),
    Option(
        "topic.replication",
        whole(1, 2**15 - 1, "a whole number, at least 1"),
        None,
        "Replicas of a topic that is created; by default 3, at most the brokers there are.",
        environment="MILLPOND_DEFAULT_REPLICATION_FACTOR",
    ),
)
PASSED_ON = Option("kafka.*", TEXT, None, "Passed on to Kafka's client as it is.", secret=True)
# What Spark's connector decides itself -> what to write instead.
_NOT_PASSED_ON = {
    "kafka.auto.offset.reset": "write 'auto.offset.reset'",
    "kafka.enable.auto.commit": "offsets are in the state directory",
    "kafka.key.deserializer": "write 'key.format'",
    "kafka.value.deserializer": "write 'format'",
    "kafka.key.serializer": "write 'key.format'",
    "kafka.value.serializer": "write 'format'",
    "kafka.interceptor.classes": "Spark takes none",
}


def not_passed_on(values: Mapping[str, Any]) -> str | None:
    """What is wrong with an option that Kafka's client cannot be given, as a sentence."""
    for name, instead in _NOT_PASSED_ON.items():
        if name in values:
            return f"'{name}' cannot be passed on: {instead}."
    return None
