"""Topics read again from where a stream over them started, up to its position."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.contracts.source import NativePast
from millpond.errors import SourceError
from millpond.kafka.address import address_of
from millpond.kafka.admin import connected
from millpond.kafka.kafka_errors import translated
from millpond.sources.kafka.lag import Identity, offsets_in
from millpond.sources.kafka.offsets import Offsets, began_at, reader_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The messages that are brought to the driver together.
PART_ROWS = 200_000

# Topic, partition, the first offset, and the one behind the last.
Range = tuple[str, str, int, int]


def read_past(past: NativePast) -> Iterator[pa.Table]:
    """The records, partition by partition, as a first batch of all of them would have them."""
    from millpond.sources.kafka.arrow_messages import gather
    from millpond.sources.kafka.messages import records_of

    end = offsets_in(past.offsets)
    if end is None:
        raise past.gone("how far it was read is not known")
    for part in _parts(_ranges(past, end)):
        with translated(address_of(past.spec.uri, past.spec.values)):
            messages = _messages(past, part)
            gathered = gather(messages, past.spec, sum(last - first for _, _, first, last in part))
            yield gathered.records if gathered is not None else records_of(messages, past.spec).toArrow()


def _ranges(past: NativePast, end: Offsets) -> list[Range]:
    """The ranges that were read; MP815 if some of the messages no longer exist."""
    address, topics = address_of(past.spec.uri, past.spec.values), tuple(end)
    with connected(past.spark(), address, past.spec.values) as client:
        absent = [topic for topic in topics if topic not in client.topics()]
        if absent:
            raise past.gone(f"topic '{absent[0]}' no longer exists")
        try:
            Identity(past.folder).require(client.ids(topics), end)
        except SourceError as error:
            raise past.gone(f"topic '{topics[0]}' was deleted and created again") from error
        there = client.ends(topics, earliest=True)
    begun, ranges = began_at(past.folder), []
    for topic, places in end.items():
        for partition, last in sorted(places.items(), key=lambda place: int(place[0])):
            first, oldest = begun.get(topic, {}).get(partition, 0), there[topic].get(partition, last)
            if first < last and oldest > first:
                raise past.gone(f"partition {partition} of '{topic}' no longer has the messages before {oldest}")
            if first < last:
                ranges.append((topic, partition, first, last))
    return ranges


def _parts(ranges: list[Range]) -> Iterator[list[Range]]:
    """The same in parts that fit on the driver."""
    part: list[Range] = []
    room = PART_ROWS
    for topic, partition, first, last in ranges:
        while first < last:
            taken = min(room, last - first)
            part.append((topic, partition, first, first + taken))
            first, room = first + taken, room - taken
            if room == 0:
                yield part
                part, room = [], PART_ROWS
    if part:
        yield part


def _messages(past: NativePast, part: list[Range]) -> DataFrame:
    """The messages of some ranges, in Kafka's own columns."""
    options = reader_options(past.spec, ())
    for name in ("subscribe", "subscribePattern", "maxOffsetsPerTrigger"):
        options.pop(name, None)
    places: dict[str, list[int]] = {}
    starts: Offsets = {}
    ends: Offsets = {}
    for topic, partition, first, last in part:
        places.setdefault(topic, []).append(int(partition))
        starts.setdefault(topic, {})[partition] = first
        ends.setdefault(topic, {})[partition] = last
    options |= {
        "assign": json.dumps(places),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }
    return past.spark().read.format("kafka").options(**options).load()
