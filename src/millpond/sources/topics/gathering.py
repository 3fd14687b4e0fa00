"""Messages brought to the driver as they are, and parsed there by Arrow: several times as fast as Spark's parsers.

Spark plans the batch and reads it, so that offsets, transactions and logins are its own; what Arrow does not read
certainly as Spark would (a broken message, a number to be cast, a key that is no plain text) goes back to Spark alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millpond.contracts.source import BAD, RAW, SourceSpec
from millpond.schema import Schema
from millpond.sources.files.formats import FileFormat
from millpond.sources.files.quick import Parse, parsed, quick_parser
from millpond.sources.files.reading import Piece
from millpond.sources.topics.messages import key_columns, records_of
from millpond.sources.topics.places import hidden_columns, in_order
from millpond.sources.topics.tally import Tally, tally

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
# The most bytes of values that are brought to the driver; of a larger batch Spark's own columns are the better way.
BYTES_MAX = 512 << 20
# Above so many messages the bytes are estimated first, from this many messages.
SAMPLED_ABOVE, SAMPLE = 200_000, 100
# Spark parses so many messages that Arrow refused; of more it parses the whole batch.
REFUSED_MAX = 40_000


@dataclass(frozen=True)
class Gathered:
    """The records of a batch in the shape of the contract, and what the source tells about them."""

    records: pa.Table
    tally: Tally


def gather(batch: DataFrame, spec: SourceSpec, size: int) -> Gathered | None:
    """A batch of about `size` messages; None where Spark must parse it. What is decided depends on the batch alone: one
    that comes again after a crash must go the same way, or its messages would leave in another order."""
    parse = parser_of(spec)
    if parse is None or (size > SAMPLED_ABOVE and _bytes_about(batch, size) > BYTES_MAX):
        return None
    try:
        messages = in_order(batch.select(*COLUMNS).toArrow(), spec)
    except Exception as error:
        if "maxResultSize" in str(error):
            return None
        raise
    records = _records(messages, batch, spec, parse)
    if records is None:
        return None
    return Gathered(records, tally(messages, records))


def parser_of(spec: SourceSpec) -> Parse | None:
    """How Arrow parses the values, or None where it cannot."""
    assert spec.columns is not None
    if spec.values["format"] != "json":
        return None
    return quick_parser(FileFormat("jsonl"), "lines", spec.columns, ())


def _bytes_about(batch: DataFrame, size: int) -> int:
    lengths = batch.select(F.octet_length("value").alias("n")).limit(SAMPLE).toArrow()["n"]
    return int((pc.mean(lengths).as_py() or 0) * size)


def _records(messages: pa.Table, batch: DataFrame, spec: SourceSpec, parse: Parse) -> pa.Table | None:
    """Records of raw messages, those that Arrow refuses behind the others."""
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
    return (
        pa.concat_tables([found, _by_spark(messages.take(others), batch, spec, found.schema)]) if len(others) else found
    )


def _pieces(messages: pa.Table) -> Iterator[Piece]:
    """Values that are there and not empty, with the numbers of their messages."""
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
    """What the message key holds, where the value lacks it; and the rows of which only Spark can tell."""
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
    """Message keys as texts, NULL where some are none."""
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
