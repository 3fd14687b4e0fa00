"""The columns of a topic that nobody declared, found in a sample of its messages."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.source import Found, SourceSpec
from millpond.errors import SourceError
from millpond.kafka.address import address_of
from millpond.schema import Column, Schema
from millpond.sources.files.guessing import Guess, csv_guess, json_guess
from millpond.sources.topics.reading import reader_options
from millpond.sources.topics.waiting import Waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUE = "value"
WHOLE = {"raw": pa.string(), "text": pa.string(), "bytes": pa.binary()}


def sample(spec: SourceSpec, spark: SparkSession, wait: bool) -> Found:
    """Never raises for a topic that is missing or empty."""
    keys = [n for n in spec.values.get("key") or () if n.lower() != "none"]
    if spec.values["format"] in WHOLE:
        return Found(_with_keys([Column(VALUE, WHOLE[spec.values["format"]])], keys))
    if spec.values["format"] == "avro" and not spec.values["schema.registry.url"]:
        from millpond.sources.topics.avro import declared_columns

        return Found(_with_keys(declared_columns(spec), keys))
    try:
        topics = Waiting(address_of(spec.uri, spec.values), spec.values).topics(spark, wait=wait)
    except SourceError as error:
        return Found(missing=True, detail=error.problems[0].message)
    values = _values(spec, spark, topics)
    columns = [Column(name, guess.type()) for name, guess in _guesses(spec, values).items()]
    return Found(_with_keys(columns, keys)) if columns else Found(detail="it holds no messages yet")


def _values(spec: SourceSpec, spark: SparkSession, topics: tuple[str, ...]) -> list[bytes]:
    options = {**reader_options(spec, topics), "startingOffsets": "earliest"}
    options.pop("maxOffsetsPerTrigger", None)
    rows = spark.read.format("kafka").options(**options).load().where("value IS NOT NULL").select(VALUE)
    return [bytes(value) for value in rows.limit(spec.values["sample.rows"]).toArrow()[VALUE].to_pylist()]


def _guesses(spec: SourceSpec, values: list[bytes]) -> dict[str, Guess]:
    found: dict[str, Guess] = {}
    for row in _rows(spec, values):
        for name, guess in row.items():
            found[name] = found.get(name, Guess()).merged(guess)
    return found


def _rows(spec: SourceSpec, values: list[bytes]) -> Iterable[dict[str, Guess]]:
    for value in values:
        try:
            yield _csv_row(spec, value) if spec.values["format"] == "csv" else _json_row(spec, value)
        except (ValueError, csv.Error):
            # A message that cannot be read says nothing about columns; it will be a dead letter.
            continue


def _json_row(spec: SourceSpec, value: bytes) -> dict[str, Guess]:
    if spec.values["format"] == "avro":
        from millpond.sources.topics.avro import Decoder

        value = Decoder.of(spec).json(value).encode()
    row: Any = json.loads(value, parse_float=Guess.of_fraction, parse_int=Guess.of_whole)
    return {name: json_guess(inner) for name, inner in row.items()} if isinstance(row, dict) else {}


def _csv_row(spec: SourceSpec, value: bytes) -> dict[str, Guess]:
    fields = next(csv.reader([value.decode()], delimiter=spec.values["delimiter"], quotechar=spec.values["quote"]), [])
    return {f"c{number + 1}": csv_guess(text) for number, text in enumerate(fields)}


def _with_keys(columns: list[Column], keys: list[str]) -> Schema:
    """What the message key holds comes first, where the value lacks it."""
    names = {c.name.lower() for c in columns}
    return Schema.of([*(Column(k, pa.string()) for k in keys if k.lower() not in names), *columns])
