"""Avro messages as JSON text, so that they take the same way into columns as every other message.

The schema is given as text or file, or named by each message (a zero byte and four bytes of a registry's number).
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.source import DELETED, SourceSpec
from millpond.errors import SetupError, SourceError
from millpond.schema import TIMESTAMP, Column
from millpond.sources.raw import PROBLEM, VALUE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAGIC, HEAD_BYTES = b"\x00", 5
REGISTRY_S = 10
_SIMPLE = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
}


@dataclass
class Decoder:
    """Decodes messages of one source; schemas of a registry are fetched once each."""

    schema: Any
    registry: str | None
    _known: dict[int, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: SourceSpec) -> Decoder:
        text = schema_text(spec)
        registry = spec.values["schema.registry.url"]
        if text is None and not registry:
            hint = "Give 'avro.schema', 'avro.schema.file' or 'schema.registry.url'."
            raise SourceError("MP508", f"{spec.shown} is Avro, and nothing says its schema.", hint=hint)
        return cls(None if text is None else _fastavro().parse_schema(json.loads(text)), registry)

    def json(self, value: bytes) -> str:
        """A message as JSON text; ValueError for one that cannot be read."""
        schema, body = self._schema_of(value)
        try:
            found = _fastavro().schemaless_reader(io.BytesIO(body), schema, None)
        except Exception as error:
            raise ValueError(f"not Avro of this schema: {type(error).__name__}") from error
        return _written(found)

    def _schema_of(self, value: bytes) -> tuple[Any, bytes]:
        if self.registry is None:
            return self.schema, value
        if len(value) < HEAD_BYTES or not value.startswith(MAGIC):
            raise ValueError("the message does not begin with the number of a schema")
        number = int.from_bytes(value[1:HEAD_BYTES], "big")
        if number not in self._known:
            self._known[number] = _fastavro().parse_schema(json.loads(_fetched(self.registry, number)))
        return self._known[number], value[HEAD_BYTES:]


def schema_text(spec: SourceSpec) -> str | None:
    """The schema that the options give."""
    file = spec.values["avro.schema.file"]
    if file is None:
        given: str | None = spec.values["avro.schema"]
        return given
    try:
        return (spec.base / Path(file)).read_text("utf-8")
    except OSError as error:
        message = f"The Avro schema '{file}' cannot be read: {error.strerror}."
        raise SourceError("MP508", message, hint="Correct 'avro.schema.file'.") from error


def declared_columns(spec: SourceSpec) -> list[Column]:
    """The columns of the schema that the options give."""
    schema = Decoder.of(spec).schema
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise SourceError("MP508", "The Avro schema of messages must be a record.", hint="Declare one record.")
    return [Column(f["name"], _type(f["type"])) for f in schema["fields"]]


def as_json(raw: DataFrame, spec: SourceSpec) -> DataFrame:
    """Raw records with their values decoded; one that cannot be is a problem."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    decoder = Decoder.of(spec)

    def decode(value: bytes | None) -> tuple[str | None, str | None]:
        try:
            return (None if value is None else decoder.json(bytes(value))), None
        except (ValueError, OSError) as error:
            return None, str(error)

    made = StructType([StructField("text", StringType()), StructField("problem", StringType())])
    decoded = F.udf(decode, made)(F.when(~F.col(DELETED), F.col(VALUE)))
    rows = raw.withColumn("_mp_avro", decoded)
    text = F.coalesce(F.col("_mp_avro.text"), F.lit("{}")).cast("binary")
    return rows.withColumns({VALUE: text, PROBLEM: F.col("_mp_avro.problem")}).drop("_mp_avro")


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise SetupError("MP309", "Avro needs fastavro.", hint="Run: pip install 'millpond[avro]'") from error
    return fastavro


def _fetched(registry: str, number: int) -> str:
    try:
        with urllib.request.urlopen(f"{registry.rstrip('/')}/schemas/ids/{number}", timeout=REGISTRY_S) as answer:
            return str(json.load(answer)["schema"])
    except urllib.error.HTTPError as error:
        raise ValueError(f"the schema registry knows no schema {number} ({error.code})") from error


def _written(value: Any) -> str:
    """JSON in which decimals stand exactly."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(str(k))}:{_written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_written(v) for v in value) + "]"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    if isinstance(value, dt.date | dt.time):
        return json.dumps(value.isoformat())
    return json.dumps(value, default=str)


def _type(avro: Any) -> pa.DataType:
    """The column type of an Avro type."""
    if isinstance(avro, list):
        real = [t for t in avro if t != "null"]
        return _type(real[0]) if len(real) == 1 else pa.string()
    if isinstance(avro, str):
        return _SIMPLE.get(avro, pa.string())
    kind = avro.get("logicalType")
    if kind == "decimal":
        return pa.decimal128(avro["precision"], avro.get("scale", 0))
    if kind in _LOGICAL:
        return _LOGICAL[kind]
    if avro["type"] == "array":
        return pa.list_(_type(avro["items"]))
    if avro["type"] == "map":
        return pa.map_(pa.string(), _type(avro["values"]))
    if avro["type"] == "record":
        return pa.struct([pa.field(f["name"], _type(f["type"])) for f in avro["fields"]])
    return _type(avro["type"]) if not isinstance(avro["type"], str) else _SIMPLE.get(avro["type"], pa.string())
