"""Type inference: the type of a value by its form, and the common type of several values.

Whole numbers are BIGINT, `10.50` is DECIMAL(38, most digits seen), an exponent makes DOUBLE, ISO dates and times are
DATE and TIMESTAMP, objects STRUCT, lists ARRAY, all else STRING. In CSV a number with leading zeros or a plus sign
stays STRING: it is an article number, a postal code or a phone number.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from millpond.schema import TIMESTAMP

PRECISION_MAX = 38
# Deeper values are STRING, their JSON as text: no query reads that deep, and unbounded types exhaust Spark.
DEPTH_MAX = 20
BIGINT_MAX = 2**63 - 1
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?")
_WHOLE = re.compile(r"-?(0|[1-9]\d*)")
_FRACTION = re.compile(r"-?(0|[1-9]\d*)\.\d+")
_EXPONENT = re.compile(r"-?\d+(\.\d*)?[eE][+-]?\d+")

# The common kind of two different kinds; any other pair is text.
_COMMON = {
    frozenset(("whole", "fraction")): "fraction",
    frozenset(("whole", "double")): "double",
    frozenset(("fraction", "double")): "double",
    frozenset(("date", "time")): "time",
}
_SIMPLE = {
    "nothing": pa.string(),
    "text": pa.string(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": TIMESTAMP,
}


@dataclass(frozen=True)
class Guess:
    """The inferred type of a column so far; `digits` and `scale` are the most digits before and after the point."""

    kind: str = "nothing"
    digits: int = 0
    scale: int = 0
    item: Guess | None = None
    fields: dict[str, Guess] = field(default_factory=dict)

    @classmethod
    def of_whole(cls, text: str) -> Guess:
        return cls("whole", digits=len(text.lstrip("-")))

    @classmethod
    def of_fraction(cls, text: str) -> Guess:
        """A number with a point or an exponent."""
        if "e" in text or "E" in text:
            return cls("double")
        before, _, behind = text.lstrip("-").partition(".")
        return cls("fraction", len(before), len(behind))

    def merged(self, other: Guess) -> Guess:
        """The guess for the values of both."""
        if "nothing" in (self.kind, other.kind):
            return other if self.kind == "nothing" else self
        if self.kind != other.kind:
            kind = _COMMON.get(frozenset((self.kind, other.kind)), "text")
            return Guess(kind, max(self.digits, other.digits), max(self.scale, other.scale))
        item = self.item.merged(other.item) if self.item and other.item else self.item or other.item
        names = [*self.fields, *(name for name in other.fields if name not in self.fields)]
        fields = {n: self.fields.get(n, Guess()).merged(other.fields.get(n, Guess())) for n in names}
        return Guess(self.kind, max(self.digits, other.digits), max(self.scale, other.scale), item, fields)

    def type(self) -> pa.DataType:
        """The column type for all values so far."""
        if self.kind in ("whole", "fraction"):
            return self._number()
        if self.kind == "list":
            return pa.list_((self.item or Guess()).type())
        if self.kind == "struct":
            # Spark has no struct without fields.
            found = [pa.field(name, guess.type()) for name, guess in self.fields.items()]
            return pa.struct(found) if found else pa.string()
        return _SIMPLE[self.kind]

    def _number(self) -> pa.DataType:
        if self.kind == "whole" and self.digits < len(str(BIGINT_MAX)):
            return pa.int64()
        if self.digits + self.scale > PRECISION_MAX:
            return pa.float64()
        return pa.decimal128(PRECISION_MAX, self.scale)


def parse_json(text: bytes | str) -> Any:
    """A JSON value whose numbers are guesses; ValueError if it is invalid or nested too deeply."""
    try:
        return json.loads(text, parse_float=Guess.of_fraction, parse_int=Guess.of_whole)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def json_guess(value: Any, depth: int = 0) -> Guess:
    """The guess for a JSON value; its numbers are already guesses."""
    if depth >= DEPTH_MAX and isinstance(value, list | dict):
        return Guess("text")
    if isinstance(value, Guess):
        return value
    if value is None:
        return Guess()
    if isinstance(value, bool):
        return Guess("boolean")
    if isinstance(value, str):
        return Guess(_text_kind(value))
    if isinstance(value, list):
        item = Guess()
        for element in value:
            item = item.merged(json_guess(element, depth + 1))
        return Guess("list", item=item)
    if isinstance(value, dict):
        return Guess("struct", fields={name: json_guess(inner, depth + 1) for name, inner in value.items()})
    # NaN and Infinity, which the parser returns as floats.
    return Guess("double")


def csv_guess(text: str) -> Guess:
    """The guess for a CSV field."""
    if text == "":
        return Guess()
    if _WHOLE.fullmatch(text):
        return Guess.of_whole(text)
    if _FRACTION.fullmatch(text) or _EXPONENT.fullmatch(text):
        return Guess.of_fraction(text)
    if text.lower() in ("true", "false"):
        return Guess("boolean")
    return Guess(_text_kind(text))


def _text_kind(text: str) -> str:
    if _DATE.fullmatch(text):
        return "date" if _is_real(text) else "text"
    if _TIME.fullmatch(text):
        return "time" if _is_real(text[:16]) else "text"
    return "text"


def _is_real(text: str) -> bool:
    """Whether a date or time exists in the calendar."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
