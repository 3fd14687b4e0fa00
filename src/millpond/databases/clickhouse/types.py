"""ClickHouse's types as Arrow's: what is selected for a column, and what is made of what is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.source import BAD, RAW
from millpond.databases.driver_values import Reasons, decimals
from millpond.schema import TIMESTAMP, type_name

DIGITS_MAX = 38
WHOLE = {
    "Int8": (pa.int8(), pa.int8()),
    "Int16": (pa.int16(), pa.int16()),
    "Int32": (pa.int32(), pa.int32()),
    "Int64": (pa.int64(), pa.int64()),
    "UInt8": (pa.uint8(), pa.int16()),
    "UInt16": (pa.uint16(), pa.int32()),
    "UInt32": (pa.uint32(), pa.int64()),
    "UInt64": (pa.uint64(), pa.decimal128(20, 0)),
    "Float32": (pa.float32(), pa.float32()),
    "Float64": (pa.float64(), pa.float64()),
}
LARGE = ("Int128", "Int256", "UInt128", "UInt256")
# Nested values without a counterpart, which are sent as JSON.
AS_JSON = ("Map", "Tuple", "Nested", "JSON", "Object", "Variant", "Dynamic")
WRAPPERS = ("Nullable", "LowCardinality", "SimpleAggregateFunction")
DECIMAL_DIGITS = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}
_ERRORS = (pa.ArrowInvalid, ValueError, InvalidOperation, OverflowError)


@dataclass(frozen=True)
class ChType:
    """A type by its name, without wrappers: `sent` is what the server sends for `selected(name)`, `arrow` what is made
    of it."""

    name: str
    sent: pa.DataType
    arrow: pa.DataType
    selected: Callable[[str], str]
    element: ChType | None = None
    is_nullable: bool = False


def type_of(text: str, depth: int = 0) -> ChType:
    """The type that ClickHouse writes so."""
    name, arguments = _parsed(text)
    if name in WRAPPERS:
        inner = type_of(arguments[-1], depth)
        return replace(inner, is_nullable=True) if name == "Nullable" else inner
    if name in WHOLE:
        sent, arrow = WHOLE[name]
        return ChType(name, sent, arrow, _itself)
    if name == "Array":
        return _array(type_of(arguments[0], depth + 1), depth)
    if name.startswith("Decimal"):
        return _decimal(name, arguments)
    if name in LARGE:
        return ChType(name, pa.string(), pa.decimal128(DIGITS_MAX, 0), lambda x: f"toString({x})")
    if name in ("Date", "Date32"):
        return ChType(name, pa.int32(), pa.date32(), lambda x: f"toInt32({x})")
    if name == "DateTime":
        return ChType(name, pa.int64(), TIMESTAMP, lambda x: f"toInt64(toUnixTimestamp({x})) * 1000000")
    if name == "DateTime64":
        return ChType(name, pa.int64(), TIMESTAMP, lambda x: f"toUnixTimestamp64Micro(toDateTime64({x}, 6))")
    if name == "Bool":
        return ChType(name, pa.uint8(), pa.bool_(), lambda x: f"toUInt8({x})")
    if name == "String":
        return ChType(name, pa.binary(), pa.string(), _itself)
    if name in AS_JSON:
        return ChType(name, pa.binary(), pa.string(), lambda x: f"toJSONString({x})")
    return ChType(name, pa.binary(), pa.string(), lambda x: f"toString({x})")


def _itself(name: str) -> str:
    return name


def _array(element: ChType, depth: int) -> ChType:
    item = f"e{depth}"
    inner = element.selected(item)
    plain = inner == item
    return ChType(
        "Array",
        pa.list_(element.sent),
        pa.list_(element.arrow),
        (lambda x: x) if plain else (lambda x: f"arrayMap({item} -> {inner}, {x})"),
        element,
    )


def _decimal(name: str, arguments: Sequence[str]) -> ChType:
    numbers = [int(argument) for argument in arguments]
    digits, scale = (DECIMAL_DIGITS[name], numbers[0]) if name in DECIMAL_DIGITS else (numbers[0], numbers[1])
    arrow = pa.decimal128(min(digits, DIGITS_MAX), min(scale, DIGITS_MAX))
    if digits > DIGITS_MAX:
        return ChType(name, pa.string(), arrow, lambda x: f"toString({x})")
    return ChType(name, arrow, arrow, _itself)


def _parsed(text: str) -> tuple[str, list[str]]:
    """The name of a type, and what stands in its brackets, divided at the outer commas."""
    name, bracket, rest = text.strip().partition("(")
    if not bracket:
        return name, []
    found, depth, start, quoted = [], 0, 0, False
    inner = rest.rstrip()[:-1]
    for at, character in enumerate(inner):
        if character == "'" and inner[at - 1 : at] != "\\":
            quoted = not quoted
        elif not quoted and character in "()":
            depth += 1 if character == "(" else -1
        elif not quoted and character == "," and depth == 0:
            found.append(inner[start:at].strip())
            start = at + 1
    return name, [*found, inner[start:].strip()]


def batch_of_sent(sent: pa.RecordBatch, columns: dict[str, ChType]) -> pa.RecordBatch:
    """What the server has sent in the types of the columns, with BAD and RAW. In a bad row every column is NULL."""
    reasons: Reasons = {}
    found = [_column(sent.column(n), type_, name, reasons) for n, (name, type_) in enumerate(columns.items())]
    count, names = sent.num_rows, [*columns, BAD, RAW]
    if not reasons:
        return pa.RecordBatch.from_arrays([*found, pa.nulls(count, pa.string()), pa.nulls(count, pa.binary())], names)
    keep = pa.array([row not in reasons for row in range(count)])
    found = [pc.if_else(keep, column, pa.scalar(None, column.type)) for column in found]
    bad = pa.array([reasons.get(row) for row in range(count)], pa.string())
    raw = [repr(sent.slice(row, 1).to_pylist()[0]).encode() if row in reasons else None for row in range(count)]
    return pa.RecordBatch.from_arrays([*found, bad, pa.array(raw, pa.binary())], names)


def _column(values: pa.Array, type_: ChType, name: str, reasons: Reasons) -> pa.Array:
    try:
        return _all(values, type_)
    except _ERRORS:
        pass
    found = []
    for row in range(len(values)):
        try:
            found.append(_all(values.slice(row, 1), type_))
        except _ERRORS:
            found.append(pa.nulls(1, type_.arrow))
            shown = str(values[row].as_py())
            shown = shown if len(shown) <= 60 else shown[:57] + "..."
            reasons.setdefault(row, f"column '{name}': '{shown}' is not a {type_name(type_.arrow)}")
    return pa.concat_arrays(found)


def _all(values: pa.Array, type_: ChType) -> pa.Array:
    """All values at once; raises when one of them does not fit."""
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    if type_.element is not None:
        inner = _all(values.flatten(), type_.element)
        lengths = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64())
        ends = pa.concat_arrays([pa.array([0]), pc.cumulative_sum(lengths)]).cast(pa.int32())
        return pa.ListArray.from_arrays(ends, inner, type=type_.arrow)
    if values.type != type_.sent:
        values = values.cast(type_.sent)
    if pa.types.is_decimal(type_.arrow) and pa.types.is_string(type_.sent):
        return decimals(values, type_.arrow)
    if pa.types.is_timestamp(type_.arrow):
        return values.cast(pa.timestamp("us")).cast(TIMESTAMP)
    if type_.name == "FixedString":
        return pc.utf8_rtrim(values.cast(pa.string()), "\0")
    return values if values.type == type_.arrow else values.cast(type_.arrow)
