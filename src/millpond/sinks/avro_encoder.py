"""Encodes rows as Avro with fastavro; without a given schema, one is derived from Spark's types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, Row
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from millpond.kafka.avro import Encoder
from millpond.sinks.file_writers import as_text, quoted

_SIMPLE: dict[type[DataType], Any] = {
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    BooleanType: "boolean",
    BinaryType: "bytes",
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
}
# Avro represents timestamps and dates as numbers: the Spark functions that convert them.
_NUMBERS = {"timestamp-millis": F.unix_millis, "timestamp-micros": F.unix_micros, "date": F.unix_date}


def record_schema(names: Sequence[str], schema: StructType, record: str) -> Any:
    """The Avro schema of some columns, each of which may be NULL."""
    fields = [{"name": n, "type": ["null", _type(schema[n].dataType, f"{record}_{n}")], "default": None} for n in names]
    return {"type": "record", "name": record, "fields": fields}


def key_schema(names: Sequence[str], schema: StructType) -> Any:
    """One column is its bare type, several are a record."""
    return _type(schema[names[0]].dataType, "key") if len(names) == 1 else record_schema(names, schema, "key")


def _type(type_: DataType, name: str) -> Any:
    if isinstance(type_, DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
    if isinstance(type_, ArrayType):
        return {"type": "array", "items": ["null", _type(type_.elementType, f"{name}_item")]}
    if isinstance(type_, MapType):
        return {"type": "map", "values": ["null", _type(type_.valueType, f"{name}_value")]}
    if isinstance(type_, StructType):
        return record_schema(type_.names, type_, name)
    return _SIMPLE.get(type(type_), "string")


def encoded(names: Sequence[str], schema: StructType, encoder: Encoder) -> Column:
    """Columns of a row as Avro bytes; a schema other than a record encodes the only column itself."""
    encode = _function(encoder)
    wanted = encoder.schema
    if not isinstance(wanted, dict) or wanted.get("type") != "record":
        bare = encode(F.struct(_prepared(names[0], schema, wanted)))
        return F.when(F.col(quoted(names[0])).isNotNull(), bare)
    types = {field["name"]: field["type"] for field in wanted["fields"]}
    return encode(F.struct(*(_prepared(n, schema, types[n]) for n in names if n in types)))


def _function(encoder: Encoder) -> Any:
    """Created once per worker and batch, because parsing a schema takes longer than encoding a row."""
    made: list[Any] = []
    whole = isinstance(encoder.schema, dict) and encoder.schema.get("type") == "record"

    def encode(row: Row) -> bytes:
        if not made:
            made.append(encoder.encoder())
        found: bytes = made[0](row.asDict(True) if whole else row[0])
        return found

    return F.udf(encode, BinaryType(), useArrow=False)


def _prepared(name: str, schema: StructType, wanted: Any) -> Column:
    """A column in the Python type that fastavro expects for the Avro type."""
    column, type_ = F.col(quoted(name)), schema[name].dataType
    options = wanted if isinstance(wanted, list) else [wanted]
    kinds = [o.get("logicalType") for o in options if isinstance(o, dict)]
    if isinstance(type_, TimestampType | DateType):
        number = next((_NUMBERS[k] for k in kinds if k in _NUMBERS), None)
        if number is not None:
            return number(column.cast("timestamp") if "timestamp" in str(kinds) else column).alias(name)
        return as_text(column, type_, "csv").cast("string").alias(name)
    if isinstance(type_, TimestampNTZType):
        return as_text(column, type_, "csv").cast("string").alias(name)
    return column.alias(name)
