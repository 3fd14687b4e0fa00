"""Literals and type names: their values, and their types in Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from millpond.expressions.coercion import BIGINT, DAY_TIME, DOUBLE, INT, YEAR_MONTH
from millpond.expressions.terms import Constant, Interval, Term, unknown
from millpond.schema import SIMPLE_TYPES, TIMESTAMP

INT_MAX, BIGINT_MAX = 2**31 - 1, 2**63 - 1


def number(text: str, expr: exp.Expression) -> Term:
    """The constant of a number as written, including its sign."""
    digits = text.lstrip("-")
    if digits.isascii() and digits.isdigit():
        value = int(text)
        for type_, most in ((INT, INT_MAX), (BIGINT, BIGINT_MAX)):
            if -most - 1 <= value <= most:
                return Constant(value, type_)
    if "e" in digits.lower():
        found = float(text)
        return Constant(found, DOUBLE) if found not in (float("inf"), float("-inf")) else unknown(expr)
    try:
        return decimal_constant(Decimal(text))
    except (ArithmeticError, ValueError):
        return unknown(expr)


def decimal_constant(value: Decimal) -> Constant:
    """A decimal literal; its type has exactly the digits that were written. More than 38 are an error."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(value)
    if exponent > 0:
        value = Decimal(int(value))
        digits, exponent = value.as_tuple()[1], 0
    scale = -exponent
    return Constant(value, pa.decimal128(max(len(digits), scale), scale))


_UNITS = {"MONTH": (1, 0), "QUARTER": (3, 0), "YEAR": (12, 0)} | {
    word: (0, size)
    for word, size in {
        "MICROSECOND": 1,
        "MILLISECOND": 1_000,
        "SECOND": 1_000_000,
        "MINUTE": 60_000_000,
        "HOUR": 3_600_000_000,
        "DAY": 86_400_000_000,
        "WEEK": 604_800_000_000,
    }.items()
}
_COUNT_AND_UNIT = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def interval(expr: exp.Expression) -> Term:
    unit = expr.args.get("unit")
    match = _COUNT_AND_UNIT.fullmatch(expr.this.name if isinstance(expr.this, exp.Literal) else "")
    if isinstance(expr.this, exp.Neg) and isinstance(expr.this.this, exp.Literal):
        match = _COUNT_AND_UNIT.fullmatch(f"-{expr.this.this.name}")
    if match is None or (unit is not None and (match[2] or not isinstance(unit, exp.Var))):
        return unknown(expr)
    word = (unit.name if unit is not None else match[2]).upper()
    return _interval_constant(Decimal(match[1]), word.removesuffix("S"), expr)


def _interval_constant(count: Decimal, word: str, expr: exp.Expression) -> Term:
    months, microseconds = _UNITS.get(word, (0, 0))
    if not (months or microseconds) or (count != count.to_integral_value() and word != "SECOND"):
        return unknown(expr)
    if months:
        return Constant(Interval(months=int(count) * months), YEAR_MONTH)
    exact = count * microseconds
    if exact != exact.to_integral_value():
        return unknown(expr)
    return Constant(Interval(microseconds=int(exact), whole_days=word in ("DAY", "WEEK")), DAY_TIME)


_TYPE_NAMES = {
    "TEXT": "STRING",
    "VARCHAR": None,
    "TIMESTAMPTZ": "TIMESTAMP",
    "TIMESTAMPLTZ": "TIMESTAMP",
    "TIMESTAMPNTZ": "TIMESTAMP_NTZ",
    "NULL": "VOID",
}


def sql_type(node: exp.Expression) -> pa.DataType | None:
    """The Arrow type of a sqlglot type; None when there is none."""
    name = node.this.value if isinstance(node.this, exp.DType) else str(node.this)
    parts = node.expressions
    if name == "DECIMAL":
        numbers = [int(p.name) for p in parts]
        return pa.decimal128(*(numbers or [10]), *([0] if len(numbers) < 2 else []))
    if name == "ARRAY" and len(parts) == 1:
        inner = sql_type(parts[0])
        return pa.list_(inner) if inner is not None else None
    if name == "MAP" and len(parts) == 2:
        key, item = sql_type(parts[0]), sql_type(parts[1])
        return pa.map_(key, item) if key is not None and item is not None else None
    if name == "STRUCT":
        return _struct_type(parts)
    if parts:
        return None
    if name == "TIMESTAMP":
        return TIMESTAMP
    return SIMPLE_TYPES.get(_TYPE_NAMES.get(name, name) or "")


def _struct_type(parts: Sequence[exp.Expression]) -> pa.DataType | None:
    fields = [(p.name, sql_type(p.args["kind"])) for p in parts if isinstance(p, exp.ColumnDef)]
    if len(fields) != len(parts) or any(type_ is None for _, type_ in fields):
        return None
    return pa.struct(fields)
