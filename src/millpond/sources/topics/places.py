"""Where messages stood, their keys and headers, as columns of Arrow: what `messages` does on Spark."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.source import (
    DELETED,
    HIDDEN_HEADERS,
    HIDDEN_KEY,
    HIDDEN_OFFSET,
    HIDDEN_PARTITION,
    HIDDEN_SOURCE,
    HIDDEN_TIMESTAMP,
    IDENTITY,
    ORDER_MAJOR,
    ORDER_MINOR,
    SourceSpec,
)
from millpond.kafka.address import Address, address_of

# Partitions of one topic stand together: their numbers are below this.
TOPIC_SHIFT = 31


def hidden_columns(messages: pa.Table, spec: SourceSpec) -> Mapping[str, pa.ChunkedArray]:
    """Everything but the declared columns of messages in Kafka's own columns."""
    return {
        HIDDEN_SOURCE.name: messages["topic"],
        HIDDEN_PARTITION.name: _texts(messages["partition"]),
        HIDDEN_OFFSET.name: messages["offset"],
        HIDDEN_TIMESTAMP.name: messages["timestamp"].cast(HIDDEN_TIMESTAMP.type),
        HIDDEN_KEY.name: messages["key"],
        HIDDEN_HEADERS.name: headers_map(messages["headers"]),
        ORDER_MAJOR: _major(messages, address_of(spec.uri, spec.values)),
        ORDER_MINOR: messages["offset"],
        DELETED: pc.is_null(messages["value"]),
        IDENTITY: _identity(messages),
    }


def in_order(messages: pa.Table, spec: SourceSpec) -> pa.Table:
    """The messages of whole batches of rows, each of one partition and in its order, in stream order."""
    batches = [batch for batch in messages.to_batches() if batch.num_rows]
    if len(batches) < 2:
        return messages
    firsts = pa.Table.from_batches([batch.slice(0, 1) for batch in batches])
    majors = _major(firsts, address_of(spec.uri, spec.values)).to_pylist()
    places = sorted(range(len(batches)), key=lambda n: (majors[n], firsts["offset"][n].as_py()))
    return pa.Table.from_batches([batches[n] for n in places])


def _texts(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    """A few numbers, each many times, as texts."""
    known = numbers.combine_chunks().dictionary_encode()
    return pa.chunked_array([pc.take(known.dictionary.cast(pa.string()), known.indices)])


def _major(messages: pa.Table, address: Address) -> pa.ChunkedArray:
    """The partition; of several topics those that are named first come first."""
    partition = messages["partition"].cast(pa.int64())
    if address.pattern is None and len(address.topics) == 1:
        return partition
    known = messages["topic"].combine_chunks().dictionary_encode()
    names = known.dictionary.to_pylist()
    numbers = [zlib.crc32(n.encode()) if address.pattern else address.topics.index(n) + 1 for n in names]
    shifted = pa.array([number << TOPIC_SHIFT for number in numbers], pa.int64())
    return pc.add(pa.chunked_array([pc.take(shifted, known.indices)]), partition)


def _identity(messages: pa.Table) -> pa.ChunkedArray:
    """The message key, or where the message stands; the first byte tells which."""
    keys = pc.binary_join_element_wise(pa.scalar(b"\x01"), messages["key"], pa.scalar(b""))
    if not keys.null_count:
        return keys
    parts = [messages["topic"], messages["partition"].cast(pa.string()), messages["offset"].cast(pa.string())]
    place = pc.binary_join_element_wise(*parts, ":").cast(pa.binary())
    return pc.coalesce(keys, pc.binary_join_element_wise(pa.scalar(b"\x00"), place, pa.scalar(b"")))


def headers_map(headers: pa.ChunkedArray) -> pa.Array:
    """Headers as a map; of several with one name the last counts, and none are NULL."""
    if headers.null_count == len(headers):
        return pa.nulls(len(headers), HIDDEN_HEADERS.type)
    lists = headers.combine_chunks()
    rows, entries = pc.list_parent_indices(lists), pc.list_flatten(lists)
    named = pa.table({"row": rows, "name": entries.field("key"), "number": np.arange(len(entries))})
    last = named.group_by(["row", "name"], use_threads=False).aggregate([("number", "max")])["number_max"]
    kept = last.combine_chunks().sort()
    counts = np.bincount(rows.take(kept).to_numpy(), minlength=len(lists))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    found = entries.take(kept)
    made = pa.MapArray.from_arrays(offsets, found.field("key"), found.field("value")).cast(HIDDEN_HEADERS.type)
    return pc.if_else(pa.array(counts > 0), made, pa.scalar(None, HIDDEN_HEADERS.type))
