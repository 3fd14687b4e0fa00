"""Sends rows as Kafka messages: Spark builds key, value and headers, and its connector sends them in one job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructType

from millpond.contracts.sink import BATCH, ROW, Mark, SinkSpec
from millpond.kafka import avro
from millpond.kafka.avro import Encoder
from millpond.observations import counted
from millpond.sinks.avro_encoder import encoded, key_schema, record_schema
from millpond.sinks.file_writers import as_text, json_options, quoted
from millpond.sinks.message_parts import HEADERS, KEY, VALUE, Parts, parts_of


@dataclass
class Shape:
    """How the rows of a sink are converted to messages. Avro schemas are registered once for each set of columns."""

    spec: SinkSpec
    topic: str
    _encoders: dict[str, Encoder] = field(default_factory=dict)

    def encoder(self, which: str, derived: Any) -> Encoder:
        known = f"{which} {derived}"
        if known not in self._encoders:
            self._encoders[known] = Encoder.of(self.spec.values, self.spec.base, self.topic, derived, which)
        return self._encoders[known]


def send(rows: DataFrame, shape: Shape, mark: Mark, producer: dict[str, str]) -> int:
    """Send every row; returns their number."""
    schema, observed = rows.schema, Observation()
    if rows.columns[:2] == [KEY, VALUE]:
        parts, key, value = Parts([], [], []), F.col(KEY), F.col(VALUE)
    else:
        parts = parts_of(shape.spec.values, [name for name in rows.columns if name not in (ROW, BATCH)])
        key, value = key_and_value(schema, shape, parts)
    headers = F.array(*_own_headers(parts.headers, schema), *_marks(schema, mark, shape.spec.writer))
    messages = rows.select(key.alias("key"), value.alias("value"), headers.alias("headers"))
    messages = messages.observe(observed, F.count(F.lit(1)).alias("rows"))
    # By default Spark uses its older writer for Kafka, in which observations are not counted.
    rows.sparkSession.conf.set("spark.sql.sources.useV1SourceList", "avro,csv,json,orc,parquet,text")
    messages.write.mode("append").format("kafka").options(**producer, includeHeaders="true").save()
    return counted(observed, "rows")[0]


def finished(rows: DataFrame, shape: Shape) -> pa.Table:
    """The messages of rows, on the driver: key, value and, if the sink has any, the user's headers, without marks."""
    parts, schema = parts_of(shape.spec.values, rows.columns), rows.schema
    key, value = key_and_value(schema, shape, parts)
    columns = [key.alias(KEY), value.alias(VALUE)]
    if parts.headers:
        columns.append(F.array(*_own_headers(parts.headers, schema)).alias(HEADERS))
    return rows.select(*columns).toArrow()


def key_and_value(schema: StructType, shape: Shape, parts: Parts) -> tuple[Column, Column]:
    """The key and the value of the message of a row."""
    return _key(parts.key, schema, shape), _value(parts.value, schema, shape)


def _key(names: list[str], schema: StructType, shape: Shape) -> Column:
    """One column is its text, or its bytes; several are a JSON object."""
    format_ = shape.spec.values["key.format"]
    if not names:
        return F.lit(None).cast("binary")
    if format_ == "avro":
        return encoded(names, schema, shape.encoder(avro.KEY, key_schema(names, schema)))
    if len(names) > 1 or format_ == "json":
        return _json(names, schema).cast("binary")
    return _bytes(names[0], schema)


def _value(names: list[str], schema: StructType, shape: Shape) -> Column:
    format_, delimiter = shape.spec.values["format"], shape.spec.values["delimiter"]
    if format_ == "avro":
        return encoded(names, schema, shape.encoder(avro.VALUE, record_schema(names, schema, "row")))
    if format_ == "csv":
        columns = [as_text(F.col(quoted(n)), schema[n].dataType, "csv").alias(n) for n in names]
        options = {"sep": delimiter, "nullValue": "", "emptyValue": '""', "escape": '"'}
        return F.to_csv(F.struct(*columns), options).cast("binary")
    if format_ == "json":
        return _json(names, schema).cast("binary")
    return _bytes(names[0], schema)


def _json(names: list[str], schema: StructType) -> Column:
    columns = [as_text(F.col(quoted(n)), schema[n].dataType, "json").alias(n) for n in names]
    return F.to_json(F.struct(*columns), json_options())


def _bytes(name: str, schema: StructType) -> Column:
    column = F.col(quoted(name))
    if isinstance(schema[name].dataType, BinaryType):
        return column
    return as_text(column, schema[name].dataType, "csv").cast("string").cast("binary")


def _own_headers(names: list[str], schema: StructType) -> list[Column]:
    return [F.struct(F.lit(n).alias("key"), _bytes(n, schema).alias("value")) for n in names]


def _marks(schema: StructType, mark: Mark, writer: str) -> list[Column]:
    """The headers by which a reader recognizes a message that was sent twice."""
    row = F.concat(F.lit(f"{mark.statement}-".encode()), F.col(ROW).cast("binary"))
    batch = F.col(BATCH) if BATCH in schema.names else F.lit(str(mark.batch))
    marks = {"app": F.lit(writer), "flow": F.lit(mark.flow), "batch": batch, "row": row}
    return [F.struct(F.lit(f"millpond.{n}").alias("key"), v.cast("binary").alias("value")) for n, v in marks.items()]
