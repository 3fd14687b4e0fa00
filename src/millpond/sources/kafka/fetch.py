"""The messages of a batch of Spark, fetched to the driver by Kafka's client in C, which needs less processor time."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.kafka.address import Address
from millpond.kafka.librdkafka import is_installed, library, reader_properties, untranslated
from millpond.sources.kafka.lag import Offsets, offsets_in

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
# The most messages of one call, and how long it waits for them.
MESSAGES_MAX, TURN_S = 10_000, 0.02
# How long the brokers may return nothing before Spark reads the batch instead.
PATIENCE_S = 20.0
TUNED = {
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    # The end of a partition may be followed by nothing but the end of a transaction, which is no message.
    "fetch.wait.max.ms": "50",
    "max.partition.fetch.bytes": str(8 << 20),
    "queued.min.messages": "200000",
}

# The rows of a record batch.
BATCH_ROWS = 65_536

Place = tuple[str, int]
Parts = dict[Place, list[pa.Table]]


class FetchError(Exception):
    """The messages cannot be fetched here; Spark reads them, and reports why it cannot, if so."""


class TooLarge(Exception):
    """The messages have more bytes than the driver takes."""


def batch_range(checkpoint: Path) -> tuple[Offsets, Offsets] | None:
    """The first offset of each partition of the newest batch of Spark, and the one after its last; None if unknown."""
    numbers = sorted(int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*") if file.name.isdigit())
    if not numbers:
        return None
    try:
        end = offsets_in((checkpoint / "offsets" / str(numbers[-1])).read_text("utf-8"))
        before = numbers[-1] - 1
        if before >= 0:
            start = offsets_in((checkpoint / "offsets" / str(before)).read_text("utf-8"))
        else:
            # Spark's record of where a stream began.
            text = (checkpoint / "sources" / "0" / "0").read_bytes().decode("utf-8", "replace")
            start = json.loads(text[text.index("{") :])
    except (OSError, ValueError):
        return None
    return None if start is None or end is None else (start, end)


class Fetcher:
    """Fetches ranges of offsets; the connection is kept from batch to batch. One thread at a time."""

    def __init__(self, address: Address, values: Mapping[str, Any]) -> None:
        group = {"group.id": values["group.id.prefix"] or "millpond"}
        self._consumer = library().Consumer({**TUNED, **reader_properties(address, values), **group})

    @classmethod
    def of(cls, address: Address, values: Mapping[str, Any]) -> Fetcher | None:
        """None if the library is not installed, or has no equivalent of an option."""
        return cls(address, values) if is_installed() and untranslated(values) is None else None

    def messages(self, start: Offsets, end: Offsets, bytes_max: int) -> pa.Table:
        """The messages from `start` to before `end`; each record batch has messages of one partition, in their order.
        Raises FetchError or TooLarge."""
        left = {
            (topic, int(partition)): offset
            for topic, places in end.items()
            for partition, offset in places.items()
            if offset > start.get(topic, {}).get(partition, 0)
        }
        begin = {place: start.get(place[0], {}).get(str(place[1]), 0) for place in left}
        if not left:
            return SCHEMA.empty_table()
        try:
            parts = self._read(begin, left, bytes_max)
        except library().KafkaException as error:
            raise FetchError(str(error)) from error
        finally:
            # A partition that is paused would still be paused when it is assigned for the next batch.
            self._consumer.resume([library().TopicPartition(*place) for place in begin])
            self._consumer.unassign()
        # Batches of a size that is parsed by several threads, each of one partition.
        whole = (pa.concat_tables(found).combine_chunks() for found in parts.values())
        batches = [batch for table in whole for batch in table.to_batches(max_chunksize=BATCH_ROWS)]
        return pa.Table.from_batches(batches, SCHEMA)

    def _read(self, begin: Mapping[Place, int], end: Mapping[Place, int], bytes_max: int) -> Parts:
        consumer, kafka = self._consumer, library()
        consumer.assign([kafka.TopicPartition(*place, offset) for place, offset in begin.items()])
        topics = {topic for topic, _ in end}
        single = next(iter(topics)) if len(topics) == 1 else None
        parts: Parts = {}
        left, size, missing = set(end), 0, sum(end[place] - begin[place] for place in end)
        waited = time.monotonic()
        while left:
            # The call waits for as many as it may return; the ends of transactions have offsets, and are no messages.
            found = consumer.consume(max(1, min(MESSAGES_MAX, missing)), TURN_S)
            if not found and time.monotonic() - waited > PATIENCE_S:
                raise FetchError("the brokers do not respond")
            if found:
                waited = time.monotonic()
            good = [message for message in found if message.error() is None]
            done = _ended(found, end) if len(good) < len(found) else set()
            missing -= len(good)
            size += sum(map(len, good))
            if size > bytes_max:
                raise TooLarge
            if good:
                done |= _divide(_table(good, single=single), end, parts)
            if done & left:
                consumer.pause([kafka.TopicPartition(*place) for place in done & left])
                left -= done
        return parts


def _ended(found: Sequence[Any], end: Mapping[Place, int]) -> set[Place]:
    """The partitions whose end was reached without a further message; FetchError for any other event."""
    ended = set()
    for message in found:
        error = message.error()
        if error is None:
            continue
        place = (message.topic(), message.partition())
        if error.name() != "_PARTITION_EOF":
            raise FetchError(error.str())
        if message.offset() >= end.get(place, 0):
            ended.add(place)
    return ended


def _table(found: Sequence[Any], *, single: str | None) -> pa.Table:
    """Messages as columns; `single`: the topic, if there is only one."""
    topics = pa.array([single] if single is not None else [m.topic() for m in found], pa.string())
    if single is not None:
        topics = topics.take(pa.array(np.zeros(len(found), np.int32)))
    millis = np.array([m.timestamp()[1] for m in found], np.int64)
    headers = [m.headers() for m in found]
    columns = [
        topics,
        pa.array([m.partition() for m in found], pa.int32()),
        pa.array([m.offset() for m in found], pa.int64()),
        pa.array(millis * 1000).cast(SCHEMA.field("timestamp").type),
        pa.array([m.key() for m in found], pa.binary()),
        pa.array([m.value() for m in found], pa.binary()),
        pa.array([h and [{"key": k, "value": v} for k, v in h] for h in headers], HEADERS)
        if any(headers)
        else pa.nulls(len(found), HEADERS),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _divide(table: pa.Table, end: Mapping[Place, int], parts: Parts) -> set[Place]:
    """Add the messages before the end of their partitions to those of the partition; returns the partitions whose end
    was reached."""
    partitions, offsets = table["partition"].to_numpy(), table["offset"].to_numpy()
    names = table["topic"].combine_chunks().dictionary_encode()
    codes, ended = names.indices.to_numpy(), set()
    for code, topic in enumerate(names.dictionary.to_pylist()):
        for partition in np.unique(partitions[codes == code]).tolist():
            rows = np.flatnonzero((codes == code) & (partitions == partition))
            last = end.get((topic, partition), 0)
            if offsets[rows[-1]] >= last - 1:
                ended.add((topic, partition))
            kept = rows[offsets[rows] < last]
            found = table if len(kept) == table.num_rows else table.take(kept)
            parts.setdefault((topic, partition), []).append(found)
    return ended
