"""The type rules of Spark's functions: the implicit casts of their arguments, and their result types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from millpond.expressions.coercion import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DAY_TIME,
    DOUBLE,
    FLOATS,
    INT,
    INTEGERS,
    STRING,
    VOID,
    YEAR_MONTH,
    adjusted,
    as_decimal,
    bounded,
    common,
    comparable,
    family,
    is_interval,
    is_list,
    is_number,
    wider,
    wider_number,
)
from millpond.expressions.terms import Constant, Interval, Term
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ


@dataclass(frozen=True)
class Operand:
    """An argument of a rule: its type, and its term for rules that depend on literals."""

    type: pa.DataType
    term: Term

    @property
    def is_constant(self) -> bool:
        return isinstance(self.term, Constant)


@dataclass(frozen=True)
class Signature:
    """The types to which the arguments are cast, and the type of the result."""

    takes: tuple[pa.DataType, ...]
    gives: pa.DataType


Operands = Sequence[Operand]
Rule = Callable[[Operands], Signature | None]


def fits(operand: Operand, target: pa.DataType) -> bool:
    """Whether Spark casts an argument implicitly to the type that a function expects."""
    source = operand.type
    if source in (target, VOID):
        return True
    if target == STRING:
        return family(source) in ("number", "boolean", "time")
    if target == DOUBLE:
        return is_number(source) or (source == STRING and operand.is_constant)
    if target in (INT, BIGINT):
        smaller = source in INTEGERS and INTEGERS.index(source) < INTEGERS.index(target)
        return smaller or (source == STRING and operand.is_constant)
    if target in (DATE, TIMESTAMP):
        return source in (DATE, TIMESTAMP) or (source == STRING and operand.is_constant)
    return bool(target == BOOLEAN and source == STRING and operand.is_constant)


def types_of(operands: Operands) -> list[pa.DataType]:
    return [o.type for o in operands]


def _all_as(type_: pa.DataType | None, operands: Operands, gives: pa.DataType | None = None) -> Signature | None:
    if type_ is None:
        return None
    return Signature((type_,) * len(operands), type_ if gives is None else gives)


def comparison_rule(operands: Operands) -> Signature | None:
    left, right = types_of(operands)
    if is_interval(left) or is_interval(right) or not comparable(left, right):
        return None
    return _all_as(wider(left, right), operands, BOOLEAN)


def membership_rule(operands: Operands) -> Signature | None:
    return _all_as(common(types_of(operands)), operands, BOOLEAN) if len(operands) > 1 else None


def logic_rule(operands: Operands) -> Signature | None:
    fit = all(o.type in (BOOLEAN, VOID) or o.type == STRING for o in operands)
    return _all_as(BOOLEAN, operands) if fit else None


def anything_rule(operands: Operands) -> Signature | None:
    return Signature(tuple(types_of(operands)), BOOLEAN)


def case_rule(operands: Operands) -> Signature | None:
    results = [o.type for o in operands[1::2]] + [operands[-1].type]
    type_ = common(results)
    tests = operands[:-1:2]
    if type_ is None or not all(o.type in (BOOLEAN, VOID) for o in tests):
        return None
    return Signature((*(BOOLEAN, type_) * len(tests), type_), type_)


def if_rule(operands: Operands) -> Signature | None:
    test, yes, no = types_of(operands)
    type_ = common([yes, no])
    return Signature((BOOLEAN, type_, type_), type_) if type_ is not None and test in (BOOLEAN, VOID) else None


def nvl2_rule(operands: Operands) -> Signature | None:
    test, yes, no = types_of(operands)
    type_ = common([yes, no])
    return None if type_ is None else Signature((test, type_, type_), type_)


def coalesce_rule(operands: Operands) -> Signature | None:
    return _all_as(common(types_of(operands)), operands) if operands else None


def extreme_rule(operands: Operands) -> Signature | None:
    return _all_as(common(types_of(operands), strings=False), operands) if len(operands) > 1 else None


# --- arithmetic


def _beside_decimal(operand: Operand) -> pa.DataType:
    """The decimal type of an operand; a whole-number literal has its own digits, not those of its type."""
    if operand.type in INTEGERS and isinstance(operand.term, Constant) and operand.term.value is not None:
        return pa.decimal128(max(1, len(str(abs(int(str(operand.term.value)))))), 0)
    return as_decimal(operand.type)


def _numbers(operands: Operands) -> tuple[pa.DataType, pa.DataType] | None:
    """The types of two operands of arithmetic after Spark's promotion; equal unless both are decimals."""
    left, right = types_of(operands)
    if left == VOID and right == VOID:
        return None
    if STRING in (left, right):
        other = wider(left, right)
        return None if other is None or not is_number(other) else (other, other)
    if VOID in (left, right):
        one = right if left == VOID else left
        return (one, one) if is_number(one) else None
    if not (is_number(left) and is_number(right)):
        return None
    decimals = [t for t in (left, right) if pa.types.is_decimal(t)]
    if decimals and not (left in FLOATS or right in FLOATS):
        return _beside_decimal(operands[0]), _beside_decimal(operands[1])
    type_ = wider_number(left, right)
    return type_, type_


DecimalRule = Callable[[int, int, int, int], tuple[int, int]]


def sum_digits(p1: int, s1: int, p2: int, s2: int) -> tuple[int, int]:
    return max(p1 - s1, p2 - s2) + max(s1, s2) + 1, max(s1, s2)


def product_digits(p1: int, s1: int, p2: int, s2: int) -> tuple[int, int]:
    return p1 + p2 + 1, s1 + s2


def quotient_digits(p1: int, s1: int, p2: int, s2: int) -> tuple[int, int]:
    scale = max(6, s1 + p2 + 1)
    return p1 - s1 + s2 + scale, scale


def remainder_digits(p1: int, s1: int, p2: int, s2: int) -> tuple[int, int]:
    return min(p1 - s1, p2 - s2) + max(s1, s2), max(s1, s2)


def arithmetic_rule(digits: DecimalRule) -> Rule:
    def rule(operands: Operands) -> Signature | None:
        found = _numbers(operands)
        if found is None:
            return None
        left, right = found
        if not pa.types.is_decimal(left):
            return Signature(found, left)
        raw = digits(left.precision, left.scale, right.precision, right.scale)
        return Signature(found, adjusted(*raw))

    return rule


def add_rule(operands: Operands) -> Signature | None:
    types = types_of(operands)
    if is_interval(types[0]) and not is_interval(types[1]):
        return _swapped(_moved(operands[1], operands[0]))
    if is_interval(types[1]):
        return _moved(operands[0], operands[1])
    if types[0] == DATE and types[1] in INTEGERS[:3]:
        return Signature((DATE, INT), DATE)
    if types[1] == DATE and types[0] in INTEGERS[:3]:
        return Signature((INT, DATE), DATE)
    return arithmetic_rule(sum_digits)(operands)


def subtract_rule(operands: Operands) -> Signature | None:
    left, right = types_of(operands)
    if is_interval(right):
        return _moved(operands[0], operands[1])
    if left == DATE and right in INTEGERS[:3]:
        return Signature((DATE, INT), DATE)
    if family(left) == family(right) == "time":
        return Signature((left, right), DAY_TIME)
    return arithmetic_rule(sum_digits)(operands)


def _moved(moment: Operand, interval: Operand) -> Signature | None:
    """A date or timestamp with an interval added; hours make a timestamp of a date."""
    if moment.type in (TIMESTAMP, TIMESTAMP_NTZ):
        return Signature((moment.type, interval.type), moment.type)
    if moment.type != DATE:
        return None
    length = interval.term.value if isinstance(interval.term, Constant) else None
    whole = interval.type == YEAR_MONTH or (isinstance(length, Interval) and length.whole_days)
    type_ = DATE if whole else TIMESTAMP
    return Signature((type_, interval.type), type_)


def _swapped(found: Signature | None) -> Signature | None:
    return None if found is None else Signature((found.takes[1], found.takes[0]), found.gives)


def divide_rule(operands: Operands) -> Signature | None:
    found = _numbers(operands)
    if found is None:
        return None
    if pa.types.is_decimal(found[0]):
        return arithmetic_rule(quotient_digits)(operands)
    return Signature((DOUBLE, DOUBLE), DOUBLE)


def whole_division_rule(operands: Operands) -> Signature | None:
    found = _numbers(operands)
    if found is None or found[0] in FLOATS:
        return None
    takes_ = found if pa.types.is_decimal(found[0]) else (BIGINT, BIGINT)
    return Signature(takes_, BIGINT)


def same_number_rule(operands: Operands) -> Signature | None:
    (type_,) = types_of(operands)
    if type_ in (STRING, VOID):
        return Signature((DOUBLE,), DOUBLE)
    return Signature((type_,), type_) if is_number(type_) else None


def round_rule(operands: Operands) -> Signature | None:
    type_ = operands[0].type
    places = 0
    if len(operands) == 2:
        term = operands[1].term
        if not isinstance(term, Constant) or term.type not in INTEGERS or not isinstance(term.value, int):
            return None
        places = term.value
    type_ = DOUBLE if type_ == VOID else type_
    given = (type_, INT)[: len(operands)]
    if not pa.types.is_decimal(type_):
        return Signature(given, type_) if is_number(type_) else None
    whole = type_.precision - type_.scale + 1
    if places < 0:
        return Signature(given, bounded(max(whole, 1 - places), 0))
    scale = min(type_.scale, places)
    return Signature(given, bounded(whole + scale, scale))


# The types to which CEIL and FLOOR with places cast a float.
_FLOAT_DIGITS = {pa.float32(): pa.decimal128(14, 7), DOUBLE: pa.decimal128(30, 15)}


def _to_places(operands: Operands) -> Signature | None:
    """CEIL and FLOOR with places, which exist for decimals only."""
    first = operands[0]
    if not is_number(first.type):
        return None
    return round_rule([Operand(_FLOAT_DIGITS.get(first.type) or as_decimal(first.type), first.term), *operands[1:]])


def whole_rule(operands: Operands) -> Signature | None:
    if len(operands) != 1:
        return _to_places(operands)
    (type_,) = types_of(operands)
    if pa.types.is_decimal(type_):
        gives = type_ if type_.scale == 0 else bounded(type_.precision - type_.scale + 1, 0)
        return Signature((type_,), gives)
    if type_ in INTEGERS:
        return Signature((BIGINT,), BIGINT)
    return Signature((DOUBLE,), BIGINT) if fits(operands[0], DOUBLE) else None


# --- strings, aggregates


def concat_rule(operands: Operands) -> Signature | None:
    types = types_of(operands)
    if types and all(t == BINARY for t in types):
        return Signature(tuple(types), BINARY)
    if types and all(is_list(t) for t in types):
        return _all_as(common(types), operands)
    return Signature((STRING,) * len(types), STRING) if all(fits(o, STRING) for o in operands) else None


def reverse_rule(operands: Operands) -> Signature | None:
    (operand,) = operands
    type_ = operand.type if is_list(operand.type) else STRING
    return Signature((type_,), type_) if is_list(type_) or fits(operand, STRING) else None


def length_rule(operands: Operands) -> Signature | None:
    (operand,) = operands
    takes_ = BINARY if operand.type == BINARY else STRING
    return Signature((takes_,), INT) if fits(operand, takes_) else None


def unix_timestamp_rule(operands: Operands) -> Signature | None:
    # A string is parsed by a pattern, which is stricter than a cast.
    return Signature((TIMESTAMP,), BIGINT) if operands[0].type in (DATE, TIMESTAMP) else None


def sum_rule(operands: Operands) -> Signature | None:
    type_ = operands[0].type
    if pa.types.is_decimal(type_):
        return Signature((type_,), bounded(type_.precision + 10, type_.scale))
    if type_ in INTEGERS:
        return Signature((BIGINT,), BIGINT)
    return Signature((DOUBLE,), DOUBLE) if type_ in FLOATS or type_ in (STRING, VOID) else None


def avg_rule(operands: Operands) -> Signature | None:
    type_ = operands[0].type
    if pa.types.is_decimal(type_):
        return Signature((type_,), bounded(type_.precision + 4, type_.scale + 4))
    return Signature((DOUBLE,), DOUBLE) if is_number(type_) or type_ in (STRING, VOID) else None


def first_type_rule(operands: Operands) -> Signature | None:
    return Signature(tuple(types_of(operands)), operands[0].type)


def list_of_rule(operands: Operands) -> Signature | None:
    return Signature((operands[0].type,), pa.list_(operands[0].type))
