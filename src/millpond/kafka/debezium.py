"""Debezium's envelope, with or without its schema: the row, the row before and the operation of a message, as texts.

Texts are cut out of the message and not written again, so that every number stays as it is."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]
from typing import Any

# The letter of an operation -> `_op`.
OPERATIONS = {"r": "snapshot", "c": "insert", "u": "update", "d": "delete"}
_DECODER = JSONDecoder()
_BLANK = " \t\r\n"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Envelope:
    """A change: `row` as JSON text after it, of a delete before it; `before` if the message has it."""

    operation: str
    row: str | None
    before: str | None


def envelope_of(value: bytes) -> Envelope:
    """The content of a message value; ValueError with the reason if it is not an envelope."""
    text = value.decode()
    fields = fields_of(text)
    schema = json.loads(fields["schema"]) if "payload" in fields and "schema" in fields else None
    if "payload" in fields:
        fields = fields_of(fields["payload"])
    operation = json.loads(fields["op"]) if "op" in fields else None
    if operation not in OPERATIONS:
        found = "no 'op'" if operation is None else f"the operation '{operation}'"
        raise ValueError(f"the message has {found}; Debezium writes c, r, u or d")
    after, before = (_row(fields.get(name), name, schema) for name in ("after", "before"))
    word = OPERATIONS[operation]
    row = before if word == "delete" else after
    if row is None and word != "delete":
        raise ValueError("the message has no 'after'")
    return Envelope(word, row, before)


def payload_of(key: bytes) -> str:
    """The text of a message key without its schema."""
    text = key.decode()
    fields = fields_of(text) if text.lstrip(_BLANK).startswith("{") else {}
    return fields["payload"] if {"schema", "payload"} == fields.keys() else text


def fields_of(text: str) -> dict[str, str]:
    """The fields of a JSON object, each with the text of its value; ValueError if it is not an object."""
    at = _skipped(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError("it is not a JSON object")
    found: dict[str, str] = {}
    at = _skipped(text, at + 1)
    while text[at : at + 1] != "}":
        if text[at : at + 1] != '"':
            raise ValueError("it is not a JSON object")
        name, at = scanstring(text, at + 1, True)
        at = _skipped(text, at)
        if text[at : at + 1] != ":":
            raise ValueError("it is not a JSON object")
        start = _skipped(text, at + 1)
        _, at = _DECODER.raw_decode(text, start)
        found[name] = text[start:at]
        at = _skipped(text, at)
        if text[at : at + 1] == ",":
            at = _skipped(text, at + 1)
        elif text[at : at + 1] != "}":
            raise ValueError("it is not a JSON object")
    return found


def _skipped(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _row(text: str | None, name: str, schema: Any) -> str | None:
    """A row, with the values that the schema describes as dates, times and decimals in plain form."""
    if text is None or text == "null":
        return None
    kinds = _kinds(schema, name)
    if not kinds:
        return text
    fields = fields_of(text)
    parts = (f"{json.dumps(field)}: {_plain(value, kinds.get(field))}" for field, value in fields.items())
    return "{" + ", ".join(parts) + "}"


def _kinds(schema: Any, name: str) -> dict[str, Mapping[str, Any]]:
    """The columns of `before` or `after` whose values have a form of their own, with their schemas."""
    fields = schema.get("fields", ()) if isinstance(schema, dict) else ()
    row: Mapping[str, Any] = next((field for field in fields if field.get("field") == name), {})
    return {f["field"]: f for f in row.get("fields", ()) if f.get("name") in _FORMS}


def _plain(text: str, kind: Mapping[str, Any] | None) -> str:
    if kind is None or text == "null":
        return text
    return _FORMS[kind["name"]](json.loads(text), kind)


def _date(value: int, kind: Mapping[str, Any]) -> str:
    return json.dumps((_EPOCH.date() + dt.timedelta(days=value)).isoformat())


def _moment(unit_us: Callable[[int], int]) -> Callable[[int, Mapping[str, Any]], str]:
    return lambda value, kind: json.dumps(
        (_EPOCH + dt.timedelta(microseconds=unit_us(value))).isoformat().replace("+00:00", "Z")
    )


def _decimal(value: str, kind: Mapping[str, Any]) -> str:
    return _scaled(value, int(kind.get("parameters", {}).get("scale", 0)))


def _variable(value: Mapping[str, Any], kind: Mapping[str, Any]) -> str:
    return _scaled(value["value"], int(value["scale"]))


def _scaled(encoded: str, scale: int) -> str:
    unscaled = int.from_bytes(base64.b64decode(encoded), "big", signed=True)
    return f"{Decimal(unscaled).scaleb(-scale):f}" if scale else str(unscaled)


_FORMS: dict[str, Callable[[Any, Mapping[str, Any]], str]] = {
    "io.debezium.time.Date": _date,
    "org.apache.kafka.connect.data.Date": _date,
    "io.debezium.time.Timestamp": _moment(lambda ms: ms * 1000),
    "org.apache.kafka.connect.data.Timestamp": _moment(lambda ms: ms * 1000),
    "io.debezium.time.MicroTimestamp": _moment(lambda us: us),
    "io.debezium.time.NanoTimestamp": _moment(lambda ns: ns // 1000),
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "io.debezium.data.VariableScaleDecimal": _variable,
}
