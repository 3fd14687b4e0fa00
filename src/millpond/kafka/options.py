"""The options that Kafka's source and sink have in common, and the delays between retries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from millpond.options import BOOLEAN, FILE, TEXT, Beside, Option, choice, whole


@dataclass(frozen=True)
class Retry:
    """The `topic.retry.*` options, in seconds; no strategy adds jitter."""

    strategy: str
    interval_s: float
    multiplier: float
    increment_s: float
    delay_max_s: float

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Retry:
        interval = values["topic.retry.interval"] / 1_000_000
        increment = values.get("topic.retry.increment")
        return cls(
            values["topic.retry.strategy"],
            interval,
            values["topic.retry.multiplier"],
            interval if increment is None else increment / 1_000_000,
            values["topic.retry.max.delay"] / 1_000_000,
        )

    def delays(self) -> Iterator[float]:
        """The delay before each retry, infinitely."""
        delay = self.interval_s
        while True:
            yield min(delay, self.delay_max_s)
            if self.strategy == "linear":
                delay += self.increment_s
            elif self.strategy == "exponential":
                delay = min(delay * self.multiplier, self.delay_max_s)


BROKERS = Option(
    "brokers", TEXT, None, "The brokers, if the URI has none; by default those of the setting.", setting="kafka.brokers"
)
FORMAT = Option(
    "format", choice("json", "avro", "csv", "raw", "text", "bytes"), "json", "The format of message values."
)
READ_FORMAT = Option(
    "format",
    choice("json", "avro", "csv", "debezium", "raw", "text", "bytes"),
    "json",
    "The format of message values; debezium: rows in the envelope of Debezium, as JSON.",
)
KEY_FORMAT = Option("key.format", choice("raw", "json", "avro"), "raw", "The format of message keys.")
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
DELIMITER = Option("delimiter", TEXT, ",", "The delimiter of the fields of a CSV message.", only_with=CSV)
CREATION = (
    Option("topic.create.if.missing", BOOLEAN, "false", "Whether to create a missing topic."),
    Option(
        "topic.partitions",
        whole(1, 2**31 - 1, "a whole number, at least 1"),
        "6",
        "The number of partitions of a created topic.",
        environment="MILLPOND_DEFAULT_PARTITIONS",
    ),
    Option(
        "topic.replication",
        whole(1, 2**15 - 1, "a whole number, at least 1"),
        None,
        "The number of replicas of a created topic; by default 3, at most one per broker.",
        environment="MILLPOND_DEFAULT_REPLICATION_FACTOR",
    ),
)
PASSED_ON = Option("kafka.*", TEXT, None, "Passed to Kafka's client unchanged.", secret=True)
# Properties that Spark's connector does not allow -> what to write instead.
_NOT_PASSED_ON = {
    "kafka.auto.offset.reset": "write 'auto.offset.reset'",
    "kafka.enable.auto.commit": "offsets are in the state directory",
    "kafka.key.deserializer": "write 'key.format'",
    "kafka.value.deserializer": "write 'format'",
    "kafka.key.serializer": "write 'key.format'",
    "kafka.value.serializer": "write 'format'",
    "kafka.interceptor.classes": "Spark does not support it",
    "kafka.transactional.id": "write 'delivery' = 'exactly-once'",
}


def not_passed_on(values: Mapping[str, Any]) -> str | None:
    """The error of an option that cannot be passed to Kafka's client, as a sentence, or None."""
    for name, instead in _NOT_PASSED_ON.items():
        if name in values:
            return f"'{name}' cannot be set: {instead}."
    return None
