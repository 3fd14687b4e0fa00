"""Discovery of the columns of a topic without declared ones, from a sample of its messages."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.contracts.source import Found, SourceSpec
from millpond.errors import SourceError
from millpond.kafka.address import address_of
from millpond.kafka.avro import KEY as AVRO_KEY
from millpond.kafka.avro import VALUE as AVRO_VALUE
from millpond.kafka.avro import columns_of
from millpond.kafka.debezium import envelope_of, payload_of
from millpond.kafka.kafka_errors import translated
from millpond.schema import Column, Schema
from millpond.sources.kafka.offsets import reader_options, topics_there
from millpond.sources.records.type_inference import Guess, csv_guess, json_guess, parse_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUE = "value"
Read = Callable[[bytes], dict[str, Guess]]
WHOLE = {"raw": pa.string(), "text": pa.string(), "bytes": pa.binary()}


def sample(spec: SourceSpec, spark: SparkSession) -> Found:
    """The columns of a topic; does not raise for a missing or empty topic."""
    keys = [n for n in spec.values.get("key") or () if n.lower() != "none"]
    if spec.values["format"] in WHOLE:
        return Found(_with_keys([Column(VALUE, WHOLE[spec.values["format"]])], keys))
    if spec.values["format"] == "avro" and not spec.values["schema.registry.url"]:
        from millpond.sources.kafka.envelopes import decoder_of

        return Found(_with_keys(columns_of(decoder_of(spec).schema), keys))
    try:
        topics = topics_there(spark, address_of(spec.uri, spec.values), spec.values)
    except SourceError as error:
        return Found(missing=True, detail=error.problems[0].message)
    try:
        with translated(address_of(spec.uri, spec.values)):
            keys_seen, values_seen = _messages(spec, spark, topics)
        columns = _columns(_values_read(spec), values_seen)
        if not columns:
            return Found(detail="it contains no messages yet")
        return Found(_with_keys(columns, keys, _columns(_keys_read(spec), keys_seen)))
    except SourceError as error:
        # The brokers, or the schema registry, are unreachable.
        return Found(missing=True, detail=error.problems[0].message)


def _messages(spec: SourceSpec, spark: SparkSession, topics: tuple[str, ...]) -> tuple[list[bytes], list[bytes]]:
    """Keys and values of the first messages, without those that are NULL."""
    options = {**reader_options(spec, topics), "startingOffsets": "earliest"}
    options.pop("maxOffsetsPerTrigger", None)
    rows = spark.read.format("kafka").options(**options).load().where("value IS NOT NULL").select("key", VALUE)
    found = rows.limit(spec.values["sample.rows"]).toArrow()
    keys, values = found["key"].drop_null().to_pylist(), found[VALUE].to_pylist()
    return [bytes(key) for key in keys], [bytes(value) for value in values]


def _columns(read: Read, texts: list[bytes]) -> list[Column]:
    found: dict[str, Guess] = {}
    for text in texts:
        try:
            row = read(text)
        except (ValueError, csv.Error):
            # An invalid message is ignored here; it becomes a dead letter when it is read.
            continue
        for name, guess in row.items():
            found[name] = found.get(name, Guess()).merged(guess)
    return [Column(name, guess.type()) for name, guess in found.items()]


def _values_read(spec: SourceSpec) -> Read:
    match spec.values["format"]:
        case "csv":
            return lambda value: _csv_row(spec, value)
        case "avro":
            return _avro_row(spec, AVRO_VALUE)
        case "debezium":
            return lambda value: _json_row(envelope_of(value).row or "{}")
        case _:
            return _json_row


def _keys_read(spec: SourceSpec) -> Read:
    """How keys are read: the fields of JSON objects have types, any other key is text."""
    if spec.values["format"] == "debezium" and spec.values["key.format"] != "avro":
        return lambda key: _json_row(payload_of(key))
    match spec.values["key.format"]:
        case "json":
            return _json_row
        case "avro":
            return _avro_row(spec, AVRO_KEY)
        case _:
            return lambda key: {}


def _avro_row(spec: SourceSpec, which: str) -> Read:
    from millpond.sources.kafka.envelopes import decoder_of

    decoder = decoder_of(spec, which)
    return lambda text: _json_row(decoder.json(text))


def _json_row(text: bytes | str) -> dict[str, Guess]:
    row = parse_json(text)
    return {name: json_guess(inner) for name, inner in row.items()} if isinstance(row, dict) else {}


def _csv_row(spec: SourceSpec, value: bytes) -> dict[str, Guess]:
    fields = next(csv.reader([value.decode()], delimiter=spec.values["delimiter"], quotechar=spec.values["quote"]), [])
    return {f"c{number + 1}": csv_guess(text) for number, text in enumerate(fields)}


def _with_keys(columns: list[Column], keys: list[str], known: Sequence[Column] = ()) -> Schema:
    """The columns, with those of the message key that the value lacks first."""
    names = {c.name.lower() for c in columns}
    types = {c.name.lower(): c.type for c in known}
    added = [Column(k, types.get(k.lower(), pa.string())) for k in keys if k.lower() not in names]
    return Schema.of([*added, *columns])
