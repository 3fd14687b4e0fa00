"""Kafka messages as rows: values parsed by their format, keys as columns, and the position of each message."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.contracts.change_stream import BEFORE, DEBEZIUM, OPERATION
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
from millpond.errors import SourceError
from millpond.kafka.address import address_of
from millpond.schema import Column, Schema, type_name
from millpond.sources.records.column_types import PROBLEM, SUSPECT, VALUE, quoted, table_ddl, type_ddl
from millpond.sources.records.formats import FileFormat
from millpond.sources.records.spark_parsing import marked, parse_csv, parse_json, unmarked

HIDDEN = (HIDDEN_SOURCE, HIDDEN_PARTITION, HIDDEN_OFFSET, HIDDEN_TIMESTAMP, HIDDEN_KEY, HIDDEN_HEADERS)
KEPT = (*(c.name for c in HIDDEN), ORDER_MAJOR, ORDER_MINOR, DELETED, IDENTITY)
# A text with one pair of braces around everything is at most one object; any other must be checked.
_ONE_OBJECT = r"^\s*\{[^{}]*\}\s*$"
_AS_IT_CAME = "_mp_message"
# The message key as text: for Avro as JSON.
_KEY_TEXT = "_mp_key_text"
NONE = "none"


def records_of(batch: DataFrame, spec: SourceSpec) -> DataFrame:
    """A batch of Kafka's own columns in the shape of the contract."""
    assert spec.columns is not None
    keys, kept = key_columns(spec), _kept(spec)
    parsed = _parsed(_with_key_text(_raw(batch, spec), spec, keys), spec)
    columns = [_column(c, keys, spec) for c in spec.columns]
    bad = F.coalesce(F.when(~F.col(DELETED), F.col(BAD)), *_wrong_keys(keys, spec))
    parsed = parsed.select(*columns, *kept, bad.alias(BAD), _AS_IT_CAME)
    good = F.col(BAD).isNull()
    values = [F.when(good, F.col(quoted(c.name))).alias(c.name) for c in spec.columns]
    beside = [_before(spec.columns) if name == BEFORE else F.col(name) for name in kept]
    return parsed.select(*values, *beside, BAD, F.when(~good, F.col(_AS_IT_CAME)).alias(RAW))


def _kept(spec: SourceSpec) -> tuple[str, ...]:
    return (*KEPT, OPERATION, BEFORE) if spec.values["format"] == DEBEZIUM else KEPT


def _before(columns: Schema) -> SparkColumn:
    return F.from_json(F.col(BEFORE), table_ddl(columns)).alias(BEFORE)


def key_format(spec: SourceSpec) -> str:
    """The format of message keys; Debezium's are JSON."""
    found: str = spec.values["key.format"]
    return "json" if spec.values["format"] == DEBEZIUM and found == "raw" else found


def key_columns(spec: SourceSpec) -> tuple[Column, ...]:
    """The columns of the message key."""
    names = spec.values.get("key") or ()
    if spec.columns is None or tuple(n.lower() for n in names) == (NONE,):
        return ()
    return tuple(c for name in names if (c := spec.columns.get(name)) is not None)


def _raw(batch: DataFrame, spec: SourceSpec) -> DataFrame:
    text = F.col("value").cast("string")
    suspect = ~F.is_valid_utf8(text) | ~text.rlike(_ONE_OBJECT)
    deleted = F.col("value").isNull()
    place = F.concat_ws(":", "topic", "partition", "offset").cast("binary")
    identity = F.coalesce(F.concat(F.lit(b"\x01"), F.col("key")), F.concat(F.lit(b"\x00"), place))
    raw = batch.select(
        F.coalesce("value", F.lit(b"{}")).alias(VALUE),
        F.when(deleted, F.lit(False)).otherwise(suspect).alias(SUSPECT),
        F.lit(None).cast("string").alias(PROBLEM),
        F.col("topic").alias(HIDDEN_SOURCE.name),
        F.col("partition").cast("string").alias(HIDDEN_PARTITION.name),
        F.col("offset").alias(HIDDEN_OFFSET.name),
        F.col("timestamp").alias(HIDDEN_TIMESTAMP.name),
        F.col("key").alias(HIDDEN_KEY.name),
        _headers().alias(HIDDEN_HEADERS.name),
        _major(spec).alias(ORDER_MAJOR),
        F.col("offset").alias(ORDER_MINOR),
        deleted.alias(DELETED),
        identity.alias(IDENTITY),
        F.col("value").alias(_AS_IT_CAME),
    )
    if spec.values["format"] != DEBEZIUM:
        return raw
    from millpond.sources.kafka.envelopes import unwrapped

    return unwrapped(raw)


def _with_key_text(raw: DataFrame, spec: SourceSpec, keys: tuple[Column, ...]) -> DataFrame:
    """Raw records with their keys as texts, if they become columns."""
    key = F.col(HIDDEN_KEY.name)
    if keys and spec.values["format"] == DEBEZIUM and key_format(spec) == "json":
        from millpond.sources.kafka.envelopes import key_payload

        return raw.withColumn(_KEY_TEXT, key_payload(key))
    if not keys or spec.values["key.format"] != "avro":
        # A key that is not UTF-8 cannot be a text, so it makes its message a bad record.
        return raw.withColumn(_KEY_TEXT, F.when(F.is_valid_utf8(key.cast("string")), key.cast("string")))
    # Imported here, because only Avro requires the library.
    from millpond.sources.kafka.envelopes import key_as_json

    decoded = raw.withColumn(_KEY_TEXT, key_as_json(key, spec))
    return decoded.withColumns(
        {PROBLEM: F.coalesce(F.col(PROBLEM), F.col(f"{_KEY_TEXT}.problem")), _KEY_TEXT: F.col(f"{_KEY_TEXT}.text")}
    )


def _headers() -> SparkColumn:
    """Headers as a map; of several with one name the last counts."""
    last = F.filter(
        "headers", lambda h, i: ~F.exists(F.slice("headers", i + 2, F.size("headers")), lambda o: o.key == h.key)
    )
    return F.when(F.size("headers") > 0, F.map_from_entries(last))


def _major(spec: SourceSpec) -> SparkColumn:
    """The partition; of several topics those that are named first come first."""
    address = address_of(spec.uri, spec.values)
    partition = F.col("partition").cast("bigint")
    if address.pattern is not None:
        return F.shiftleft(F.crc32(F.col("topic").cast("binary")), 31) + partition
    if len(address.topics) == 1:
        return partition
    names = F.array(*(F.lit(t) for t in address.topics))
    return F.shiftleft(F.array_position(names, F.col("topic")), 31) + partition


def _parsed(raw: DataFrame, spec: SourceSpec) -> DataFrame:
    assert spec.columns is not None
    kept = (*_kept(spec), _AS_IT_CAME, _KEY_TEXT)
    match spec.values["format"]:
        case "csv":
            names = [c.name for c in spec.columns if c not in _not_in_value(spec)]
            columns = Schema.of(c for c in spec.columns if c.name in names)
            rows = parse_csv(raw, columns, kept, names, csv_format(spec))
            return _with_missing(rows, _not_in_value(spec), kept)
        case "raw" | "text" | "bytes":
            return _whole(raw, spec, kept)
        case "avro":
            # Imported here, because only Avro requires the library.
            from millpond.sources.kafka.envelopes import values_as_json

            return parse_json(values_as_json(raw, spec), spec.columns, kept)
        case _:
            return parse_json(raw, spec.columns, kept)


def _not_in_value(spec: SourceSpec) -> tuple[Column, ...]:
    """The columns that the value does not contain: a CSV value has no names, so it cannot leave out a single column,
    and those of the key are never in it."""
    return key_columns(spec)


def _with_missing(rows: DataFrame, columns: tuple[Column, ...], kept: tuple[str, ...]) -> DataFrame:
    nothing = [F.lit(None).cast(type_ddl(c.type)).alias(c.name) for c in columns]
    return rows.select("*", *nothing)


def _whole(raw: DataFrame, spec: SourceSpec, kept: tuple[str, ...]) -> DataFrame:
    """The value as one column, the first that is not part of the key."""
    assert spec.columns is not None
    keys = key_columns(spec)
    value, *others = [c for c in spec.columns if c not in keys] or [spec.columns.columns[0]]
    text = F.col(VALUE).cast("string")
    made = F.col(VALUE) if pa.types.is_binary(value.type) else text.try_cast(type_ddl(value.type))
    wrong = F.when(made.isNull(), F.lit(f"the value is not {type_name(value.type)}"))
    if not pa.types.is_binary(value.type):
        wrong = F.when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8 text; use 'format' = 'bytes'")).otherwise(
            wrong
        )
    nothing = [F.lit(None).cast(type_ddl(c.type)).alias(c.name) for c in (*others, *keys) if c is not value]
    return raw.select(F.when(~F.col(DELETED), made).alias(value.name), *nothing, *kept, wrong.alias(BAD))


def csv_format(spec: SourceSpec) -> FileFormat:
    values = spec.values
    delimiter = "\t" if values["delimiter"] in ("\\t", "tab") else values["delimiter"]
    return FileFormat("csv", False, delimiter, values["quote"], values["escape"] or values["quote"], values["null"])


def _column(column: Column, keys: tuple[Column, ...], spec: SourceSpec) -> SparkColumn:
    value = F.col(quoted(column.name))
    return F.coalesce(value, _from_key(column, spec)).alias(column.name) if column in keys else value


def _from_key(column: Column, spec: SourceSpec) -> SparkColumn:
    text = F.col(_KEY_TEXT)
    if key_format(spec) != "raw" or len(key_columns(spec)) > 1:
        return F.coalesce(_json_field(text, column), _json_scalar(text)).try_cast(type_ddl(column.type))
    if pa.types.is_binary(column.type):
        return F.col(HIDDEN_KEY.name)
    return text.try_cast(type_ddl(column.type))


def _json_field(text: SparkColumn, column: Column) -> SparkColumn:
    return unmarked(F.from_json(marked(text), f"{quoted(column.name)} STRING").getField(column.name))


def _json_scalar(text: SparkColumn) -> SparkColumn:
    """A key that is not an object: a number or a quoted text."""
    wrapped = F.concat(F.lit('{"k":'), text, F.lit("}"))
    scalar = unmarked(F.from_json(marked(wrapped), "k STRING").getField("k"))
    return F.when(~F.startswith(F.ltrim(text), F.lit("{")), scalar)


def _no_text(column: Column) -> SparkColumn:
    """The problem of a key for a text column that is not UTF-8: as NULL it would be lost, and with replacement
    characters two keys could become equal."""
    unread = F.col(HIDDEN_KEY.name).isNotNull() & F.col(_KEY_TEXT).isNull() & F.col(quoted(column.name)).isNull()
    problem = F.concat(
        F.lit(f"column '{column.name}': the message key X'"), F.hex(HIDDEN_KEY.name), F.lit("' is not UTF-8 text")
    )
    return F.when(unread, problem)


def _wrong_keys(keys: tuple[Column, ...], spec: SourceSpec) -> list[SparkColumn]:
    """The problems of keys that cannot be converted to their column, only where the value does not have the column. An
    invalid Avro key was reported before."""
    wrong = []
    is_object = len(keys) > 1 or key_format(spec) != "raw"
    for column in keys:
        if spec.values["key.format"] != "avro" and (is_object or not pa.types.is_binary(column.type)):
            wrong.append(_no_text(column))
        lacks = f"' is not an object with a {type_name(column.type)} of that name"
        lacking = F.col(DELETED) & _from_key(column, spec).isNull()
        reason = F.concat(
            F.lit(f"column '{column.name}': the message key '"),
            F.coalesce(F.col(_KEY_TEXT), F.hex(HIDDEN_KEY.name), F.lit("")),
            F.lit(lacks if is_object else f"' is not {type_name(column.type)}"),
        )
        wrong.append(F.when(lacking, reason))
    return wrong


PLACE = (HIDDEN_SOURCE.name, HIDDEN_PARTITION.name, HIDDEN_OFFSET.name)
LETTER = ("raw", "partition", "position")
# What a dead letter does not contain, in the types of Kafka's own columns.
NOTHING = {"key": "binary", "timestamp": "timestamp", "headers": "array<struct<key: string, value: binary>>"}


def originals(batch: DataFrame, records: pa.Table) -> list[bytes | None]:
    """The values of some messages of a batch."""
    places = list(zip(*(records[name].to_pylist() for name in PLACE), strict=True))
    wanted = batch.where(F.col("offset").isin([offset for _, _, offset in places]))
    rows = wanted.select("topic", F.col("partition").cast("string"), "offset", "value").toArrow()
    topic, partition, offset, value = (column.to_pylist() for column in rows.columns)
    found = dict(zip(zip(topic, partition, offset, strict=True), value, strict=True))
    return [found.get(place) for place in places]


def again(spec: SourceSpec, spark: SparkSession, letters: pa.Table) -> DataFrame:
    """Dead letters as messages without keys; if the key or the topic matters they cannot be replayed."""
    address = address_of(spec.uri, spec.values)
    if spec.values.get("key") or len(address.topics) != 1 or address.pattern is not None:
        message = f"A message of '{spec.shown}' cannot be replayed, because a dead letter contains only its value."
        raise SourceError("MP512", message, hint="Send it to its topic again, with its key.")
    places = zip(*(letters[name].to_pylist() for name in LETTER), strict=True)
    rows = [(address.topics[0], raw, int(partition), int(offset)) for raw, partition, offset in places]
    batch = spark.createDataFrame(rows, "topic string, value binary, partition int, offset bigint")
    return records_of(batch.selectExpr("*", *(f"CAST(NULL AS {t}) `{n}`" for n, t in NOTHING.items())), spec)
