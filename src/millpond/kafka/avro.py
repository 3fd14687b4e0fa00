"""Avro message values and keys with fastavro; the schema is given as text or file, or by a number in each message.

With a schema registry, a message begins with a zero byte and the four bytes of its schema's number.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.errors import SetupError, SourceError
from millpond.kafka.schema_registry import number_of, schema_of, wrong_url
from millpond.schema import TIMESTAMP, Column

MAGIC, HEAD_BYTES = b"\x00", 5
# The options for the schema of the value and of the key.
VALUE, KEY = "avro.schema", "key.avro.schema"
SUFFIXES = {VALUE: "value", KEY: "key"}
_SIMPLE = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
}


@dataclass
class Decoder:
    """Decodes the values or the keys of one source; schemas of a registry are fetched once each."""

    schema: Any
    registry: str | None
    _known: dict[int, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any], base: Path, which: str = VALUE) -> Decoder:
        text = schema_text(values, base, which)
        registry = values["schema.registry.url"]
        return cls(None if text is None else parsed(text), registry)

    def json(self, value: bytes) -> str:
        """A message as JSON text; ValueError if it cannot be decoded."""
        schema, body = self._schema_of(value)
        reading = io.BytesIO(body)
        try:
            found = _fastavro().schemaless_reader(reading, schema, None)
        except EOFError as error:
            raise ValueError("not valid for the Avro schema: it ends too early") from error
        except Exception as error:
            raise ValueError("not valid for the Avro schema") from error
        rest = len(body) - reading.tell()
        if rest:
            raise ValueError(f"not valid for the Avro schema: {rest} unexpected bytes at the end")
        return _written(found)

    def _schema_of(self, value: bytes) -> tuple[Any, bytes]:
        if self.registry is None:
            return self.schema, value
        if len(value) < HEAD_BYTES or not value.startswith(MAGIC):
            raise ValueError("the message does not begin with the number of a schema")
        number = int.from_bytes(value[1:HEAD_BYTES], "big")
        if number not in self._known:
            self._known[number] = parsed(schema_of(self.registry, number))
        return self._known[number], value[HEAD_BYTES:]


@dataclass(frozen=True)
class Encoder:
    """Encodes rows for a sink. It is sent to Spark's workers, so it contains only texts and numbers."""

    text: str
    number: int | None

    @classmethod
    def of(cls, values: Mapping[str, Any], base: Path, topic: str, derived: Any, which: str = VALUE) -> Encoder:
        """An encoder by the schema of the options, else by one derived from the columns, which requires a registry."""
        given, registry = schema_text(values, base, which), values["schema.registry.url"]
        text = given if given is not None else json.dumps(derived)
        parsed(text)
        return cls(text, number_of(registry, f"{topic}-{SUFFIXES[which]}", text) if registry else None)

    @property
    def schema(self) -> Any:
        return json.loads(self.text)

    def encoder(self) -> Any:
        """A function from a value to bytes."""
        schema, write = parsed(self.text), _fastavro().schemaless_writer
        head = b"" if self.number is None else MAGIC + self.number.to_bytes(HEAD_BYTES - 1, "big")

        def encode(value: Any) -> bytes:
            out = io.BytesIO()
            out.write(head)
            try:
                write(out, schema, value)
            except Exception as error:
                raise ValueError(f"A row does not match the Avro schema of its messages: {error}") from error
            return out.getvalue()

        return encode


def wrong_schema(values: Mapping[str, Any], format_: str, which: str, *, written: bool) -> str | None:
    """The error of the schema options of an Avro format, as a sentence, or None. Reading takes the schema from exactly
    one of them; for writing, a given schema may be registered in a registry."""
    if values.get(format_) != "avro":
        return None
    text, file, registry = which, f"{which}.file", "schema.registry.url"
    given = [name for name in (text, file, registry) if values.get(name)]
    what = "values" if which == VALUE else "keys"
    if not given:
        options = f"set '{text}', '{file}' or '{registry}'"
        return f"Message {what} are Avro, but no schema is given: {options}."
    if len(given) > 1 and not (written and given != [text, file] and len(given) == 2):
        return f"The schema of message {what} is given twice, by {' and '.join(map(repr, given))}: keep one of them."
    if text in given:
        parsed(values[text])
    return wrong_url(values[registry]) if registry in given else None


def schema_text(values: Mapping[str, Any], base: Path, which: str = VALUE) -> str | None:
    """The text of the schema in the options, or None."""
    file = values[f"{which}.file"]
    if file is None:
        given: str | None = values[which]
        return given
    try:
        return (base / Path(file)).read_text("utf-8")
    except OSError as error:
        message = f"The Avro schema '{file}' cannot be read: {error.strerror}."
        raise SourceError("MP508", message, hint=f"Correct '{which}.file'.") from error


def parsed(text: str) -> Any:
    """A schema parsed by fastavro; MP508 if it is invalid."""
    try:
        return _fastavro().parse_schema(json.loads(text))
    except SetupError:
        raise
    except Exception as error:
        message = f"The Avro schema is invalid: {str(error)[:200]}"
        raise SourceError("MP508", message, hint="Write an Avro schema as JSON.") from error


def columns_of(schema: Any) -> list[Column]:
    """The columns of a record's schema."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise SourceError("MP508", "The Avro schema of messages must be a record.", hint="Declare one record.")
    return [Column(f["name"], column_type(f["type"])) for f in schema["fields"]]


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise SetupError("MP309", "Avro requires fastavro.", hint="Run: pip install 'millpond[avro]'") from error
    return fastavro


def _written(value: Any) -> str:
    """JSON with exact decimals."""
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


def column_type(avro: Any) -> pa.DataType:
    """The column type of an Avro type."""
    if isinstance(avro, list):
        real = [t for t in avro if t != "null"]
        return column_type(real[0]) if len(real) == 1 else pa.string()
    if isinstance(avro, str):
        return _SIMPLE.get(avro, pa.string())
    kind = avro.get("logicalType")
    if kind == "decimal":
        return pa.decimal128(avro["precision"], avro.get("scale", 0))
    if kind in _LOGICAL:
        return _LOGICAL[kind]
    if avro["type"] == "array":
        return pa.list_(column_type(avro["items"]))
    if avro["type"] == "map":
        return pa.map_(pa.string(), column_type(avro["values"]))
    if avro["type"] == "record":
        return pa.struct([pa.field(f["name"], column_type(f["type"])) for f in avro["fields"]])
    return column_type(avro["type"])
