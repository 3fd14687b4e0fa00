"""PostgreSQL's types as Arrow's, and its texts as values: exact, or with the reason why a value does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.databases.driver_values import UNBOUNDED, Reasons, decimals, in_zone
from millpond.schema import TIMESTAMP, type_name

BOOL, BYTEA, NAME, INT8, INT2, INT4, TEXT = 16, 17, 19, 20, 21, 23, 25
INET, UUID = 869, 2950
FLOAT4, FLOAT8, BPCHAR, VARCHAR, DATE, STAMP, STAMPTZ, NUMERIC = 700, 701, 1042, 1043, 1082, 1114, 1184, 1700

# Types that a binary copy of the server becomes the same in Arrow.
DIRECT: dict[int, pa.DataType] = {
    BOOL: pa.bool_(),
    BYTEA: pa.binary(),
    INT2: pa.int16(),
    INT4: pa.int32(),
    INT8: pa.int64(),
    FLOAT4: pa.float32(),
    FLOAT8: pa.float64(),
    TEXT: pa.string(),
    VARCHAR: pa.string(),
    BPCHAR: pa.string(),
    DATE: pa.date32(),
    STAMP: TIMESTAMP,
    STAMPTZ: TIMESTAMP,
}
# The times that Spark and Python have too.
FIRST_DATE, LAST_DATE = "0001-01-01", "9999-12-31"
FIRST_TIME, LAST_TIME = f"{FIRST_DATE} 00:00:00", f"{LAST_DATE} 23:59:59.999999"
DIGITS_MAX = 38


@dataclass(frozen=True)
class PgType:
    """A column's type on both sides; `element` is that of an array."""

    oid: int
    arrow: pa.DataType
    element: PgType | None = None

    @property
    def is_direct(self) -> bool:
        return self.oid in DIRECT

    @property
    def is_time(self) -> bool:
        return self.oid in (DATE, STAMP, STAMPTZ)

    def is_odd(self, name: str) -> str:
        """A condition on a time that neither Spark nor Python has, such as infinity."""
        first, last = (FIRST_DATE, LAST_DATE) if self.oid == DATE else (FIRST_TIME, LAST_TIME)
        zone = "+00" if self.oid == STAMPTZ else ""
        return f"{name} NOT BETWEEN '{first}{zone}' AND '{last}{zone}'"

    def selected(self, name: str) -> str | None:
        """What is selected for a column; None for the column itself."""
        if self.is_time:
            return f"CASE WHEN {self.is_odd(name)} THEN NULL ELSE {name} END"
        if self.is_direct:
            return None
        if self.oid == NUMERIC and self.arrow == UNBOUNDED:
            return f"trim_scale({name})::text"
        # A cast to text would add the mask of a host, which its output does not have.
        return f"NULLIF(format('%s', {name}), '')" if self.oid == INET else f"{name}::text"


# Types of keys, by which an index can be used; keys of other types are compared as texts.
KEY_TYPES: dict[int, str] = {
    BOOL: "boolean",
    BYTEA: "bytea",
    INT2: "int2",
    INT4: "int4",
    INT8: "int8",
    TEXT: "text",
    VARCHAR: "text",
    BPCHAR: "bpchar",
    DATE: "date",
    STAMPTZ: "timestamptz",
    NUMERIC: "numeric",
    UUID: "uuid",
}


def type_of(oid: int, modifier: int, elements: Mapping[int, int]) -> PgType:
    """The type of a column of a result; `elements` has the type of the elements of each array type."""
    if oid in DIRECT:
        return PgType(oid, DIRECT[oid])
    if oid == NUMERIC:
        return PgType(oid, decimal_type(modifier))
    if oid in elements:
        element = type_of(elements[oid], modifier, {})
        return PgType(oid, pa.list_(element.arrow), element)
    return PgType(oid, pa.string())


def decimal_type(modifier: int) -> pa.DataType:
    """DECIMAL(p,s) of NUMERIC(p,s); of one that has no bounds, or more than 38 digits, the largest there is."""
    if modifier < 4:
        return UNBOUNDED
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, ((modifier - 4) & 0x7FF ^ 1024) - 1024
    if scale < 0:
        precision, scale = precision - scale, 0
    return pa.decimal128(min(max(precision, scale), DIGITS_MAX), min(scale, DIGITS_MAX))


def from_texts(texts: pa.Array, type_: PgType, name: str, reasons: Reasons, zone: str = "UTC") -> pa.Array:
    """The values of PostgreSQL's texts. One that does not fit is NULL, and its reason is added."""
    if pa.types.is_string(type_.arrow):
        return texts
    try:
        return _all(texts, type_, zone)
    except (pa.ArrowInvalid, ValueError, InvalidOperation, OverflowError):
        return _each(texts, type_, name, reasons, zone)


def _all(texts: pa.Array, type_: PgType, zone: str) -> pa.Array:
    """All values at once; raises when one of them does not fit."""
    arrow = type_.arrow
    if type_.element is not None:
        return _lists(texts, type_, zone)
    if pa.types.is_boolean(arrow):
        return pc.equal(texts, "t")
    if pa.types.is_binary(arrow):
        return pa.array([None if text is None else bytes.fromhex(text[2:]) for text in texts.to_pylist()], pa.binary())
    if pa.types.is_decimal(arrow):
        return decimals(texts, arrow)
    if pa.types.is_timestamp(arrow):
        plain = texts if type_.oid == STAMP else pc.replace_substring_regex(texts, r"\+00$", "")
        return in_zone(plain.cast(pa.timestamp("us")), "UTC" if type_.oid == STAMPTZ else zone)
    return texts.cast(arrow)


def _each(texts: pa.Array, type_: PgType, name: str, reasons: Reasons, zone: str) -> pa.Array:
    """One by one: what does not fit is NULL."""
    found: list[Any] = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            found.append(None if text is None else _all(pa.array([text], pa.string()), type_, zone)[0].as_py())
        except (pa.ArrowInvalid, ValueError, InvalidOperation, OverflowError):
            found.append(None)
            shown = text if len(text) <= 60 else text[:57] + "..."
            reasons.setdefault(row, f"column '{name}': '{shown}' is not a {type_name(type_.arrow)}")
    return pa.array(found, type_.arrow)


def _lists(texts: pa.Array, type_: PgType, zone: str) -> pa.Array:
    """Arrays of one dimension; one of several raises."""
    assert type_.element is not None
    lists = [None if text is None else array_elements(text) for text in texts.to_pylist()]
    flat = pa.array([element for elements in lists if elements for element in elements], pa.string())
    values = _all(flat, type_.element, zone) if not pa.types.is_string(type_.element.arrow) else flat
    ends, nulls = [0], []
    for elements in lists:
        ends.append(ends[-1] + len(elements or ()))
        nulls.append(elements is None)
    offsets = pa.array(ends, pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=type_.arrow, mask=pa.array(nulls))


def array_elements(text: str) -> list[str | None]:
    """The elements of an array as PostgreSQL writes it; ValueError for one of several dimensions."""
    if text.startswith("["):
        # Bounds that do not start at 1 stand before it.
        text = text.partition("=")[2]
    inner, found = text[1:-1], list[str | None]()
    if not inner:
        return found
    at = 0
    while at <= len(inner):
        if inner[at : at + 1] == "{":
            raise ValueError("an array of several dimensions")
        if inner[at : at + 1] == '"':
            value, at = _quoted_element(inner, at + 1)
            found.append(value)
        else:
            end = inner.find(",", at)
            end = len(inner) if end < 0 else end
            word, at = inner[at:end], end
            found.append(None if word == "NULL" else word)
        at += 1
    return found


def _quoted_element(inner: str, at: int) -> tuple[str, int]:
    """An element in double quotes, and where it ends."""
    value = []
    while inner[at] != '"':
        at += inner[at] == "\\"
        value.append(inner[at])
        at += 1
    return "".join(value), at + 1
