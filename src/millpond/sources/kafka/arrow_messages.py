"""Kafka messages fetched to the driver and parsed by Arrow, several times as fast as by Spark."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from millpond.contracts.source import (
    BAD,
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
    RAW,
    SourceSpec,
)
from millpond.kafka.address import Address, address_of
from millpond.observations import counted
from millpond.schema import Schema
from millpond.sources.kafka.fetch import FetchError, TooLarge
from millpond.sources.kafka.messages import key_columns, records_of
from millpond.sources.records.arrow_parsing import Parse, parsed, quick_parser
from millpond.sources.records.formats import FileFormat
from millpond.sources.records.text_parsing import Texts, parse_texts
from millpond.sources.records.text_reader import Piece


@dataclass(frozen=True)
class Tally:
    """Counts of a batch. `newest_us`: the time of the newest message, in microseconds since the epoch; 0 if unknown."""

    rows: int
    skipped: int
    bytes: int
    newest_us: int
    bad: int


def observed(batch: DataFrame, parse: Callable[[DataFrame], DataFrame]) -> tuple[DataFrame, Callable[[], Tally]]:
    """A batch's records, and a function that returns the counts after they were read."""
    raw, parsed = Observation(), Observation()
    messages = batch.observe(
        raw,
        F.count(F.lit(1)).alias("rows"),
        F.count_if(F.col("value").isNull()).alias("skipped"),
        F.coalesce(F.sum(F.octet_length("value")), F.lit(0)).alias("bytes"),
        F.coalesce(F.unix_micros(F.max("timestamp")), F.lit(0)).alias("newest"),
    )
    records = parse(messages).observe(parsed, F.count(BAD).alias("bad"))
    return records, lambda: Tally(*counted(raw, "rows", "skipped", "bytes", "newest"), *counted(parsed, "bad"))


def tally(messages: pa.Table, records: pa.Table) -> Tally:
    """The counts of a batch on the driver."""
    values = messages["value"]
    newest = pc.max(messages["timestamp"]).cast(pa.int64()).as_py()
    bad = records.num_rows - records[BAD].null_count
    return Tally(len(values), values.null_count, pc.sum(pc.binary_length(values)).as_py() or 0, newest or 0, bad)


# Multiplied with the topic's position, so that the partitions of a topic stay together: their numbers are below this.
TOPIC_SHIFT = 31


def hidden_columns(messages: pa.Table, spec: SourceSpec) -> Mapping[str, pa.ChunkedArray]:
    """All columns except the declared ones, computed from Kafka's own columns."""
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
    """The messages in stream order; each record batch has messages of one partition, in their order."""
    batches = [batch for batch in messages.to_batches() if batch.num_rows]
    if len(batches) < 2:
        return messages
    firsts = pa.Table.from_batches([batch.slice(0, 1) for batch in batches])
    majors = _major(firsts, address_of(spec.uri, spec.values)).to_pylist()
    places = sorted(range(len(batches)), key=lambda n: (majors[n], firsts["offset"][n].as_py()))
    return pa.Table.from_batches([batches[n] for n in places])


def _texts(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers as texts, fast for few distinct numbers."""
    known = numbers.combine_chunks().dictionary_encode()
    return pa.chunked_array([pc.take(known.dictionary.cast(pa.string()), known.indices)])


def _major(messages: pa.Table, address: Address) -> pa.ChunkedArray:
    """The partition; of several topics, those listed first come first."""
    partition = messages["partition"].cast(pa.int64())
    if address.pattern is None and len(address.topics) == 1:
        return partition
    known = messages["topic"].combine_chunks().dictionary_encode()
    names = known.dictionary.to_pylist()
    numbers = [zlib.crc32(n.encode()) if address.pattern else address.topics.index(n) + 1 for n in names]
    shifted = pa.array([number << TOPIC_SHIFT for number in numbers], pa.int64())
    return pc.add(pa.chunked_array([pc.take(shifted, known.indices)]), partition)


def _identity(messages: pa.Table) -> pa.ChunkedArray:
    """The message key, or the position of a message without key; the first byte distinguishes the two."""
    keys = pc.binary_join_element_wise(pa.scalar(b"\x01"), messages["key"], pa.scalar(b""))
    if not keys.null_count:
        return keys
    parts = [messages["topic"], messages["partition"].cast(pa.string()), messages["offset"].cast(pa.string())]
    place = pc.binary_join_element_wise(*parts, ":").cast(pa.binary())
    return pc.coalesce(keys, pc.binary_join_element_wise(pa.scalar(b"\x00"), place, pa.scalar(b"")))


def headers_map(headers: pa.ChunkedArray) -> pa.Array:
    """Headers as a map; of several with one name the last counts, and a message without headers has NULL."""
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


COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
# The maximal size of values that are fetched to the driver; a larger batch is faster in Spark.
BYTES_MAX = 512 << 20
# Above this many messages the size is estimated first, from this many messages.
SAMPLED_ABOVE, SAMPLE = 200_000, 100
# The maximal number of messages rejected by Arrow that Spark parses separately; of more it parses the whole batch.
REFUSED_MAX = 40_000


@dataclass(frozen=True)
class Gathered:
    """The records of a batch in the shape of the contract, and their counts."""

    records: pa.Table
    tally: Tally


# Fetches the messages of a batch of at most so many bytes without Spark; raises FetchError if it cannot.
Fetch = Callable[[int], pa.Table]


def gather(batch: DataFrame, spec: SourceSpec, size: int, fetch: Fetch | None = None) -> Gathered | None:
    """A batch of about `size` messages; None if Spark must parse it. The decision depends on the batch alone: when it
    is repeated after a crash it must be parsed in the same way, or its rows would be in another order."""
    parse = parser_of(spec)
    if parse is None:
        return None
    try:
        messages = fetch(BYTES_MAX) if fetch is not None else None
    except TooLarge:
        return None
    except FetchError:
        # Spark reports why the brokers do not return the messages, or has more success.
        messages = None
    if messages is None:
        messages = _by_connector(batch, size)
    records = None if messages is None else _records(in_order(messages, spec), batch, spec, parse)
    if messages is None or records is None:
        return None
    return Gathered(records, tally(messages, records))


def _by_connector(batch: DataFrame, size: int) -> pa.Table | None:
    """The messages by Spark's connector; None if they are too large for the driver."""
    if size > SAMPLED_ABOVE and _bytes_about(batch, size) > BYTES_MAX:
        return None
    try:
        return batch.select(*COLUMNS).toArrow()
    except Exception as error:
        if "maxResultSize" in str(error):
            return None
        raise


def parser_of(spec: SourceSpec) -> Parse | None:
    """The function that parses the values with Arrow, or None if it cannot."""
    assert spec.columns is not None
    if spec.values["format"] != "json":
        return None
    return quick_parser(FileFormat("jsonl"), "lines", spec.columns, ())


def _bytes_about(batch: DataFrame, size: int) -> int:
    lengths = batch.select(F.octet_length("value").alias("n")).limit(SAMPLE).toArrow()["n"]
    return int((pc.mean(lengths).as_py() or 0) * size)


def _records(messages: pa.Table, batch: DataFrame, spec: SourceSpec, parse: Parse) -> pa.Table | None:
    """The records of messages; those that Arrow rejects come after the others."""
    assert spec.columns is not None
    empty = pa.schema([(c.name, c.type) for c in spec.columns]).empty_table()
    tables, places, refused = [empty], [np.array([], np.int64)], [np.array([], np.int64)]
    for piece, table in parsed(_pieces(messages), parse):
        (refused if table is None else places).append(piece.positions)
        if table is not None:
            tables.append(table)
    lengths = pc.binary_length(messages["value"])
    refused.append(np.flatnonzero(pc.equal(lengths, 0).fill_null(False).to_numpy()))
    gone = np.flatnonzero(pc.is_null(lengths).to_numpy())
    tables.append(_nothing(spec.columns, len(gone)))
    columns, place = pa.concat_tables(tables), np.concatenate([*places, gone])
    columns, lacking = _with_keys(columns, _taken(messages, place), spec)
    others = np.concatenate([*refused, place[lacking]])
    if len(others) > REFUSED_MAX:
        return None
    if len(lacking):
        kept = np.delete(np.arange(len(place)), lacking)
        columns, place = columns.take(kept), place[kept]
    found = _shaped(columns, _taken(messages, place), spec)
    if not len(others):
        return found
    rest = messages.take(others)
    slow = _by_value(rest, spec)
    return pa.concat_tables([found, _by_spark(rest, batch, spec, found.schema) if slow is None else slow])


def _by_value(messages: pa.Table, spec: SourceSpec) -> pa.Table | None:
    """The records of messages that Arrow rejects, parsed one by one; None if Spark must parse them."""
    values = messages["value"].to_pylist()
    if key_columns(spec) or not all(values):
        return None
    assert spec.columns is not None
    records = parse_texts(Texts(values, [None] * len(values), [True] * len(values)), spec.columns)
    if records is None:
        return None
    found = dict(zip(records.column_names, records.columns, strict=True))
    bad, raw = found.pop(BAD), found.pop(RAW)
    return pa.table({**found, **hidden_columns(messages, spec), BAD: bad, RAW: raw})


def _pieces(messages: pa.Table) -> Iterator[Piece]:
    """Values that are neither NULL nor empty, with the numbers of their messages."""
    start = 0
    for values in messages["value"].chunks:
        numbers = np.arange(start, start + len(values))
        start += len(values)
        there = pc.fill_null(pc.greater(pc.binary_length(values), 0), False)
        if not pc.all(there, min_count=0).as_py():
            values, numbers = values.filter(there), numbers[there.to_numpy(zero_copy_only=False)]
        if len(values):
            yield Piece(values, numbers, 0)


def _taken(messages: pa.Table, places: np.ndarray) -> pa.Table:
    """Messages by their numbers; nearly always all of them, in their order."""
    if len(places) == messages.num_rows and (np.diff(places) == 1).all():
        return messages
    return messages.take(places)


def _nothing(columns: Schema, rows: int) -> pa.Table:
    return pa.table({c.name: pa.nulls(rows, c.type) for c in columns})


def _with_keys(columns: pa.Table, messages: pa.Table, spec: SourceSpec) -> tuple[pa.Table, np.ndarray]:
    """The columns, completed from the message key where the value lacks them; and the rows that only Spark can
    parse."""
    keys = key_columns(spec)
    lacking = np.zeros(columns.num_rows, bool)
    for column in keys:
        values = columns[column.name]
        if not values.null_count:
            continue
        if len(keys) == 1 and spec.values["key.format"] == "raw" and pa.types.is_string(column.type):
            values = pc.coalesce(values, _as_texts(messages["key"]))
            columns = columns.set_column(columns.column_names.index(column.name), column.name, values)
        lacking |= pc.is_null(values).to_numpy()
    return columns, np.flatnonzero(lacking)


def _as_texts(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Message keys as texts; NULL for keys that are not UTF-8."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.chunked_array([pa.nulls(len(keys), pa.string())])


def _shaped(columns: pa.Table, messages: pa.Table, spec: SourceSpec) -> pa.Table:
    rows = columns.num_rows
    found = {**dict(zip(columns.column_names, columns.columns, strict=True)), **hidden_columns(messages, spec)}
    return pa.table({**found, BAD: pa.nulls(rows, pa.string()), RAW: pa.nulls(rows, pa.binary())})


def _by_spark(messages: pa.Table, batch: DataFrame, spec: SourceSpec, shape: pa.Schema) -> pa.Table:
    """The records of some messages, as Spark reads them."""
    schema = batch.select(*COLUMNS).schema
    rows = batch.sparkSession.createDataFrame(messages.combine_chunks(), schema)
    return records_of(rows, spec).toArrow().select(shape.names).cast(shape)
