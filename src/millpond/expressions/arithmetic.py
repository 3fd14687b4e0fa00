"""Arithmetic on whole numbers and doubles; decimals are in decimals.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions import decimals
from millpond.expressions.coercion import BIGINT, DATE, DOUBLE, FLOATS, INTEGERS, is_interval
from millpond.expressions.failures import NotCompilable, RowError, attempt, division_by_zero, remainder_by_zero
from millpond.expressions.frames import Datum
from millpond.expressions.rules import (
    add_rule,
    arithmetic_rule,
    divide_rule,
    product_digits,
    remainder_digits,
    round_rule,
    same_number_rule,
    subtract_rule,
    whole_division_rule,
    whole_rule,
)
from millpond.expressions.signatures import Function, Functions, Kernel, Run, Site, elementwise, takes
from millpond.expressions.times import add_days, move


def _operator(checked: Run, plain: Run, exact: Callable[[Site], Run]) -> Callable[[Site], Run]:
    def make(site: Site) -> Run:
        type_ = site.takes[0]
        if pa.types.is_decimal(type_):
            return exact(site)
        if type_ in INTEGERS:
            return lambda left, right: attempt(checked, left, right)
        if type_ in FLOATS:
            return plain
        raise NotCompilable(f"no arithmetic on {type_}")

    return make


def _add(site: Site) -> Run:
    left, right = site.takes
    if is_interval(right):
        return move(site, 1)
    if is_interval(left):
        flipped = move(Site((right, left), site.gives, site.constants[::-1]), 1)
        return lambda interval, moment: flipped(moment, interval)
    if left == DATE:
        return add_days(1)
    if right == DATE:
        return lambda days, date: add_days(1)(date, days)
    return _operator(pc.add_checked, pc.add, decimals.add)(site)


def _subtract(site: Site) -> Run:
    left, right = site.takes
    if is_interval(right):
        return move(site, -1)
    if left == DATE and right in INTEGERS:
        return add_days(-1)
    return _operator(pc.subtract_checked, pc.subtract, decimals.subtract)(site)


def refuse_zero(left: Datum, right: Datum, error: Callable[[], RowError] = division_by_zero) -> None:
    """Raise if both sides are not NULL and the divisor is zero."""
    zero = pc.equal(right, pa.scalar(0, right.type) if not pa.types.is_decimal(right.type) else decimals.zero(right))
    if pc.any(pc.and_(pc.fill_null(zero, False), pc.is_valid(left))).as_py():
        raise error()


def _divide(site: Site) -> Run:
    divide = decimals.divide(site) if pa.types.is_decimal(site.takes[0]) else pc.divide

    def run(left: Datum, right: Datum) -> Datum:
        refuse_zero(left, right)
        return divide(left, right)

    return run


def _whole_division(site: Site) -> Run:
    if pa.types.is_decimal(site.takes[0]):
        raise NotCompilable("DIV of decimals")
    return lambda left, right: attempt(pc.divide_checked, left, right)


def _numpy(function: Callable[..., Any], type_: pa.DataType) -> Run:
    """A numpy function of two arrays; rows with a NULL are computed with 1 and masked afterwards."""

    def run(left: Datum, right: Datum) -> Datum:
        if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
            return run(pa.array([left.as_py()], left.type), right)[0]
        length = len(left) if isinstance(left, pa.Array) else len(right)
        known = pc.and_(pc.is_valid(left), pc.is_valid(right))
        if isinstance(known, pa.Scalar):
            known = pa.repeat(known, length)
        one = pa.scalar(1, type_)
        sides = [pc.if_else(known, side, one).to_numpy(zero_copy_only=False) for side in (left, right)]
        return pa.array(function(*sides), type_, mask=~known.to_numpy(zero_copy_only=False))

    return run


def _remainder(left: Any, right: Any) -> Any:
    if left.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            return np.fmod(left, right)
    # The smallest number divided by -1 is out of range, which would trap in numpy.
    return np.fmod(left, np.where(right == -1, 1, right))


def _positive(left: Any, right: Any) -> Any:
    found = _remainder(left, right)
    with np.errstate(over="ignore", invalid="ignore"):
        again = _remainder(found + right, right)
    return np.where(found < 0, again, found)


def _modulo(function: Callable[..., Any], exact: Callable[[Site], Run]) -> Callable[[Site], Run]:
    def make(site: Site) -> Run:
        type_ = site.takes[0]
        compute = exact(site) if pa.types.is_decimal(type_) else _numpy(function, type_)

        def run(left: Datum, right: Datum) -> Datum:
            refuse_zero(left, right, remainder_by_zero)
            return compute(left, right)

        return run

    return make


def _unary(checked: Run, plain: Run) -> Callable[[Site], Run]:
    def make(site: Site) -> Run:
        type_ = site.takes[0]
        if type_ in INTEGERS:
            return lambda value: attempt(checked, value)
        if pa.types.is_decimal(type_):
            return lambda value: plain(decimals.negatable(value))
        return plain

    return make


def _sign(value: Datum) -> Datum:
    """SIGN of a double, which keeps the sign of a zero."""
    return pc.if_else(pc.equal(value, pa.scalar(0.0)), value, pc.sign(value))


def _round(ties: str) -> Callable[[Site], Run]:
    def make(site: Site) -> Run:
        type_ = site.takes[0]
        places = site.constant(1) if len(site.takes) == 2 else 0
        if places is None:
            raise NotCompilable("the number of places is NULL")
        if type_ == pa.float32():
            raise NotCompilable("ROUND of a float goes by Java's spelling of it")
        if type_ in FLOATS:
            return elementwise(decimals.float_rounder(places, ties), type_)
        if pa.types.is_decimal(type_):
            return decimals.rounder(site, places, ties)
        return decimals.whole_rounder(site, places, ties)

    return make


def _whole(rounding: str) -> Callable[[Site], Run]:
    def make(site: Site) -> Run:
        type_ = site.takes[0]
        if len(site.takes) > 1:
            return decimals.to_places(site, site.constant(1), rounding)
        if pa.types.is_decimal(type_):
            return decimals.whole(site, rounding)
        if type_ in INTEGERS:
            return lambda value: value
        return _saturating(np.ceil if rounding == "up" else np.floor)

    return make


def _saturating(function: Callable[..., Any]) -> Run:
    """CEIL and FLOOR of a double: beyond BIGINT the nearest one, and zero for NaN, as Java converts doubles."""
    low, high = -(2**63), 2**63 - 1

    def one(value: float) -> int:
        if value != value:
            return 0
        if abs(value) == float("inf"):
            return high if value > 0 else low
        return max(low, min(high, int(function(value))))

    return elementwise(one, pa.int64())


_ROUNDED = Function(round_rule)
_WHOLE = Function(whole_rule)
_REMAINDER = Function(arithmetic_rule(remainder_digits))
_SAME_NUMBER = Function(same_number_rule)
_TIMES = Kernel(_operator(pc.multiply_checked, pc.multiply, decimals.multiply), fallible=True)

FUNCTIONS: Functions = {
    "+": Function(add_rule).by(Kernel(_add, fallible=True)),
    "-": Function(subtract_rule).by(Kernel(_subtract, fallible=True)),
    "*": Function(arithmetic_rule(product_digits)).by(_TIMES),
    "/": Function(divide_rule).by(Kernel(_divide, fallible=True, first=1)),
    "div": Function(whole_division_rule, BIGINT).by(Kernel(_whole_division, fallible=True, first=1)),
    "%": _REMAINDER.by(Kernel(_modulo(_remainder, decimals.remainder), fallible=True, first=1)),
    "pmod": _REMAINDER.by(
        Kernel(_modulo(_positive, decimals.positive_remainder), fallible=True, first=1), "the remainder, never negative"
    ),
    "negative": _SAME_NUMBER.by(Kernel(_unary(pc.negate_checked, pc.negate), fallible=True), "the number negated"),
    "abs": _SAME_NUMBER.by(Kernel(_unary(pc.abs_checked, pc.abs), fallible=True), "the number without its sign"),
    "sign": takes(DOUBLE, DOUBLE).by_columns(_sign, "-1, 0 or 1 by the sign of a number"),
    "sqrt": takes(DOUBLE, DOUBLE).by_columns(pc.sqrt, "the square root"),
    "round": _ROUNDED.by(Kernel(_round("half_up"), fallible=True), "rounded to places, a half away from zero"),
    "bround": _ROUNDED.by(Kernel(_round("half_even"), fallible=True), "rounded to places, a half to the even digit"),
    "ceil": _WHOLE.by(Kernel(_whole("up"), fallible=True), "rounded up to a whole number or to places"),
    "floor": _WHOLE.by(Kernel(_whole("down"), fallible=True), "rounded down to a whole number or to places"),
}
