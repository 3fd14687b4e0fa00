"""Arrow types and Spark types, one for one: nothing is widened, narrowed or given another zone on the way."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as spark

from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ, Column, Schema

_SIMPLE: tuple[tuple[pa.DataType, spark.DataType], ...] = (
    (pa.bool_(), spark.BooleanType()),
    (pa.int8(), spark.ByteType()),
    (pa.int16(), spark.ShortType()),
    (pa.int32(), spark.IntegerType()),
    (pa.int64(), spark.LongType()),
    (pa.float32(), spark.FloatType()),
    (pa.float64(), spark.DoubleType()),
    (pa.string(), spark.StringType()),
    (pa.binary(), spark.BinaryType()),
    (pa.date32(), spark.DateType()),
    (TIMESTAMP, spark.TimestampType()),
    (TIMESTAMP_NTZ, spark.TimestampNTZType()),
    (pa.null(), spark.NullType()),
)
_TO_SPARK = dict(_SIMPLE)
_TO_ARROW = {type(of_spark): of_arrow for of_arrow, of_spark in _SIMPLE}


def to_spark_type(type_: pa.DataType) -> spark.DataType:
    """The Spark type of an Arrow type."""
    if type_ in _TO_SPARK:
        return _TO_SPARK[type_]
    if pa.types.is_decimal(type_):
        return spark.DecimalType(type_.precision, type_.scale)
    if pa.types.is_map(type_):
        return spark.MapType(to_spark_type(type_.key_type), to_spark_type(type_.item_type))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return spark.ArrayType(to_spark_type(type_.value_type))
    if pa.types.is_struct(type_):
        return spark.StructType([spark.StructField(f.name, to_spark_type(f.type)) for f in type_])
    if pa.types.is_timestamp(type_):
        return spark.TimestampType() if type_.tz else spark.TimestampNTZType()
    if pa.types.is_large_string(type_):
        return spark.StringType()
    raise AssertionError(f"no Spark type for {type_}")


def to_arrow_type(type_: spark.DataType) -> pa.DataType:
    """The Arrow type of a Spark type."""
    if type(type_) in _TO_ARROW:
        return _TO_ARROW[type(type_)]
    if isinstance(type_, spark.DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, spark.MapType):
        return pa.map_(to_arrow_type(type_.keyType), to_arrow_type(type_.valueType))
    if isinstance(type_, spark.ArrayType):
        return pa.list_(to_arrow_type(type_.elementType))
    if isinstance(type_, spark.StructType):
        return pa.struct([pa.field(f.name, to_arrow_type(f.dataType)) for f in type_])
    if isinstance(type_, spark.DayTimeIntervalType):
        return pa.duration("us")
    return pa.string()


def to_spark_schema(schema: pa.Schema) -> spark.StructType:
    """Every field nullable: a batch's rows are checked by us, not promised to Spark."""
    return spark.StructType([spark.StructField(f.name, to_spark_type(f.type), True) for f in schema])


def from_spark_schema(schema: spark.StructType) -> Schema:
    """What a Spark query yields, as a Schema."""
    return Schema.of(Column(f.name, to_arrow_type(f.dataType)) for f in schema)
