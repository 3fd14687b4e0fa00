"""The topics and first offsets of a Kafka source, and the options of Spark's connector."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.contracts.source import SourceSpec
from millpond.disk import read_sealed, write_sealed
from millpond.errors import SourceError
from millpond.kafka.address import Address, address_of, client_properties
from millpond.kafka.admin import Client, connected
from millpond.kafka.kafka_errors import missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def topics_there(spark: SparkSession, address: Address, values: Mapping[str, Any]) -> tuple[str, ...]:
    """The existing topics; MP501 if one is missing and must not be created."""
    with connected(spark, address, values) as client:
        return topics_found(client, address, values)


def topics_found(client: Client, address: Address, values: Mapping[str, Any]) -> tuple[str, ...]:
    """The same with a connected client."""
    found = client.topics()
    partitions = values["topic.partitions"]
    absent = [] if address.pattern else [t for t in address.topics if t not in found]
    if absent and values["topic.create.if.missing"]:
        for topic in absent:
            client.create(topic, partitions, values["topic.replication"])
        return address.topics
    if absent or not found:
        raise missing(Address(address.brokers, tuple(absent) or address.topics), partitions)
    return found


# Messages of aborted transactions are not read by default.
COMMITTED = {"kafka.isolation.level": "read_committed"}
# While brokers are unreachable, Spark's query cannot be stopped, so it must not retry by itself: the flow does, by its
# retry options.
IMPATIENT = {"fetchOffset.numRetries": "1"}
# The number of messages of one poll and the bytes of one response: with the defaults of Kafka's client a large batch
# takes nearly twice the time.
LARGE_POLLS = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
}


def reader_options(spec: SourceSpec, topics: tuple[str, ...]) -> dict[str, str]:
    """The options of Spark's connector, except the first offsets."""
    address = address_of(spec.uri, spec.values)
    client = {f"kafka.{name}": value for name, value in client_properties(address, spec.values).items()}
    options = {**COMMITTED, **IMPATIENT, **LARGE_POLLS, **client, "includeHeaders": "true", "failOnDataLoss": "true"}
    options["maxOffsetsPerTrigger"] = str(max(1, spec.values["max.rows.per.batch"]))
    if address.pattern is not None:
        options["subscribePattern"] = address.pattern
    else:
        options["subscribe"] = ",".join(topics)
    if spec.values["group.id.prefix"]:
        options["groupIdPrefix"] = spec.values["group.id.prefix"]
    return options


EARLIEST_OFFSET, LATEST_OFFSET = -2, -1
LATEST = "latest"
MEMORY = "starting-offsets.json"

Offsets = dict[str, dict[str, int]]


def starting_offsets(client: Client, topics: tuple[str, ...], values: Mapping[str, Any], folder: Path) -> str:
    """The option startingOffsets. The end is read once and stored: Spark alone would use the current end at each start
    until its first batch, and lose messages in between. A partition that is added later is read from its beginning."""
    known = first_offsets(client, topics, values, folder)
    return "earliest" if known is None else json.dumps(_filled(known, client.partitions(topics)))


# Where the partitions began when a stream that reads all of them was first started.
BEGINNING = "first-offsets.json"


def remember_beginning(client: Client, topics: tuple[str, ...], folder: Path) -> None:
    """Store the first offsets of topics, once: they show which messages a topic has removed since then."""
    file = folder / BEGINNING
    known: Offsets = read_sealed(file) if file.exists() else {}
    if not all(topic in known for topic in topics):
        write_sealed(file, {**client.ends(topics, earliest=True), **known})


def began_at(folder: Path) -> Offsets:
    """Where a stream started, by topic and partition; a partition that is not listed was read from offset 0."""
    file = folder / MEMORY if (folder / MEMORY).exists() else folder / BEGINNING
    known: Offsets = read_sealed(file) if file.exists() else {}
    return known


def first_offsets(client: Client, topics: tuple[str, ...], values: Mapping[str, Any], folder: Path) -> Offsets | None:
    """The first offsets of this state directory, by topic and partition; None for the beginning of all."""
    if values["auto.offset.reset"] != LATEST and not values["starting.offsets"]:
        return None
    file = folder / MEMORY
    if not file.exists():
        write_sealed(file, _first(client, topics, values))
    known: Offsets = read_sealed(file)
    return known


def _first(client: Client, topics: tuple[str, ...], values: Mapping[str, Any]) -> Offsets:
    offsets: Offsets = client.ends(topics) if values["auto.offset.reset"] == LATEST else {}
    if not values["starting.offsets"]:
        return offsets
    named, ends = read_offsets(values["starting.offsets"], topics), client.ends(topics)
    _require_there(named, client.ends(topics, earliest=True), ends)
    for topic, places in named.items():
        offsets.setdefault(topic, {}).update(places)
    return {
        topic: {p: ends[topic][p] if o == LATEST_OFFSET else o for p, o in places.items()}
        for topic, places in offsets.items()
    }


def _require_there(named: Offsets, starts: Offsets, ends: Offsets) -> None:
    """MP508 for an offset outside of its partition, because Spark would wait for it for minutes."""
    for topic, places in named.items():
        for partition, offset in places.items():
            first, behind = starts.get(topic, {}).get(partition), ends.get(topic, {}).get(partition)
            if first is None or behind is None:
                message = f"'starting.offsets' contains partition {partition} of '{topic}', which does not exist."
                there = ", ".join(f"{name}: {', '.join(sorted(found, key=int))}" for name, found in ends.items())
                raise SourceError("MP508", message, hint=f"Existing partitions: {there}.")
            if offset >= 0 and not first <= offset <= behind:
                message = (
                    f"'starting.offsets' contains offset {offset} of partition {partition} of '{topic}': out of range."
                )
                raise SourceError("MP508", message, hint=f"Use {first} to {behind}; -2 is earliest, -1 is latest.")


def _filled(known: Offsets, places: list[tuple[str, int]]) -> Offsets:
    filled: Offsets = {}
    for topic, partition in places:
        offset = known.get(topic, {}).get(str(partition), EARLIEST_OFFSET)
        filled.setdefault(topic, {})[str(partition)] = offset
    return filled


def read_offsets(text: str, topics: tuple[str, ...]) -> Offsets:
    """`{"orders": {"0": 23}}`, or `{"0": 23}` where there is one topic; MP508 when it is neither."""
    try:
        found = json.loads(text)
        if all(isinstance(offset, int) for offset in found.values()):
            found = {topics[0]: found}
        return {str(t): {str(int(p)): int(o) for p, o in places.items()} for t, places in found.items()}
    except (ValueError, AttributeError, TypeError, IndexError) as error:
        hint = (
            """Write {"orders": {"0": 23, "1": -2}}: topic, partition, offset; -2 is earliest and -1 is latest."""
            " For all partitions, use 'auto.offset.reset'."
        )
        raise SourceError(
            "MP508", "'starting.offsets' is not valid JSON of topics, partitions and offsets.", hint=hint
        ) from error
