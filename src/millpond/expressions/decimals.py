"""Exact decimals: Spark's precision, scale and rounding, never through a float."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_CEILING,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    ROUND_HALF_UP,
    Context,
    Decimal,
    DivisionImpossible,
    InvalidOperation,
)

import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.coercion import PRECISION_MAX
from millpond.expressions.failures import NotCompilable, RowError, attempt
from millpond.expressions.frames import Datum
from millpond.expressions.kernels import Run, Site, elementwise
from millpond.expressions.rules import product_digits, quotient_digits, sum_digits

# Spark rounds products and quotients to 39 digits first, then to the scale of the result.
SPARK = Context(prec=PRECISION_MAX + 1, rounding=ROUND_HALF_UP, Emin=MIN_EMIN, Emax=MAX_EMAX)
EXACT = Context(prec=400, rounding=ROUND_HALF_UP, Emin=MIN_EMIN, Emax=MAX_EMAX)
DIGITS_MAX_256 = 76
TIES = {"half_up": ROUND_HALF_UP, "half_even": ROUND_HALF_EVEN}
_ARROW_TIES = {"half_up": "half_towards_infinity", "half_even": "half_to_even"}


def zero(like: Datum) -> pa.Scalar:
    return pa.scalar(Decimal(0).scaleb(-like.type.scale), like.type)


def fitted(value: Decimal, type_: pa.DataType) -> Decimal | None:
    """The value rounded half up to a decimal type; None when it has too many digits."""
    found = value.quantize(Decimal(1).scaleb(-type_.scale), rounding=ROUND_HALF_UP, context=EXACT)
    # abs() would round to the 28 digits of Python's default.
    bound = Decimal(1).scaleb(type_.precision - type_.scale)
    return found if -bound < found < bound else None


def _into(type_: pa.DataType, compute: Callable[..., Decimal]) -> Run:
    """A computation on Python's decimals whose result is fitted into a type, row by row."""

    def one(*values: Decimal) -> Decimal:
        found = fitted(compute(*values), type_)
        if found is None:
            raise RowError(f"the result does not fit DECIMAL({type_.precision},{type_.scale})")
        return found

    return elementwise(one, type_)


NEGATED_DIGITS_MAX = 34


def negatable(value: Datum) -> Datum:
    """The value, unless it has more than 34 digits: Spark's negation rounds those."""
    type_ = value.type
    if type_.precision > NEGATED_DIGITS_MAX:
        bound = pa.scalar(
            Decimal(1).scaleb(NEGATED_DIGITS_MAX - type_.scale), pa.decimal256(PRECISION_MAX + 1, type_.scale)
        )
        if pc.any(pc.greater_equal(pc.abs(value), bound)).as_py():
            raise NotCompilable("the negative of a decimal of more than 34 digits")
    return value


def _digits(site: Site) -> tuple[int, int, int, int]:
    left, right = site.takes
    return left.precision, left.scale, right.precision, right.scale


def _by_arrow(function: Run, site: Site) -> Run:
    """Arrow's own operation, where its result type is Spark's and every result fits."""
    return lambda left, right: pc.cast(function(left, right), site.gives)


def add(site: Site) -> Run:
    exact = sum_digits(*_digits(site))[0] <= PRECISION_MAX
    return _by_arrow(pc.add, site) if exact else _into(site.gives, EXACT.add)


def subtract(site: Site) -> Run:
    exact = sum_digits(*_digits(site))[0] <= PRECISION_MAX
    return _by_arrow(pc.subtract, site) if exact else _into(site.gives, EXACT.subtract)


def multiply(site: Site) -> Run:
    exact = product_digits(*_digits(site))[0] <= PRECISION_MAX
    return _by_arrow(pc.multiply, site) if exact else _into(site.gives, SPARK.multiply)


def divide(site: Site) -> Run:
    """Division; by Arrow where the first of Spark's two roundings cannot make a difference."""
    precision, scale = quotient_digits(*_digits(site))
    if precision + site.takes[1].precision > PRECISION_MAX:
        return _into(site.gives, SPARK.divide)
    dividend, divisor = site.takes
    # Arrow truncates at the scale s1 + p2 - s2 + 1: this s1 gives one digit more than needed, to round by.
    inner_scale = scale - divisor.precision + divisor.scale
    inner = pa.decimal256(dividend.precision + inner_scale - dividend.scale, inner_scale)
    wide = pa.decimal256(divisor.precision, divisor.scale)

    def run(left: Datum, right: Datum) -> Datum:
        quotient = pc.divide(pc.cast(left, inner), pc.cast(right, wide))
        return pc.cast(pc.round(_wider(quotient), scale, "half_towards_infinity"), site.gives)

    return run


def _wider(value: Datum) -> Datum:
    """One more digit before the point, which rounding may need."""
    return pc.cast(value, pa.decimal256(min(DIGITS_MAX_256, value.type.precision + 1), value.type.scale))


def remainder(site: Site) -> Run:
    return _into(site.gives, _remainder)


def _remainder(left: Decimal, right: Decimal) -> Decimal:
    try:
        return SPARK.remainder(left, right)
    except (DivisionImpossible, InvalidOperation) as error:
        raise RowError("the quotient has too many digits for a remainder") from error


def positive_remainder(site: Site) -> Run:
    def compute(left: Decimal, right: Decimal) -> Decimal:
        found = _remainder(left, right)
        return _remainder(EXACT.add(found, right), right) if found < 0 else found

    return _into(site.gives, compute)


def rounder(site: Site, places: int, ties: str) -> Run:
    """ROUND of a decimal to places."""
    unit = Decimal(1).scaleb(-min(places, site.takes[0].scale))
    rounded = _into(site.gives, lambda value: value.quantize(unit, rounding=TIES[ties], context=EXACT))
    return lambda value, *_: rounded(value)


def whole_rounder(site: Site, places: int, ties: str) -> Run:
    """ROUND of a whole number: nothing but for negative places."""
    if places >= 0:
        return lambda value, *_: value
    unit = Decimal(1).scaleb(-places)
    type_ = site.gives
    top = 2 ** (type_.bit_width - 1)

    def one(value: int, _: int) -> int:
        found = int(Decimal(value).quantize(unit, rounding=TIES[ties], context=EXACT))
        if not -top <= found < top:
            raise RowError("the result does not fit its type")
        return found

    return elementwise(one, type_)


def float_rounder(places: int, ties: str) -> Callable[..., float]:
    """ROUND of a double, by its shortest decimal spelling as Spark does it."""
    unit = Decimal(1).scaleb(-places)

    def one(value: float, *_: int) -> float:
        if math.isnan(value) or math.isinf(value):
            return value
        exact = Decimal(repr(value))
        exponent = exact.as_tuple().exponent
        if isinstance(exponent, int) and -exponent > places:
            exact = exact.quantize(unit, rounding=TIES[ties], context=EXACT)
        # Java's BigDecimal has no negative zero.
        return float(exact) or 0.0

    return one


def whole(site: Site, rounding: str) -> Run:
    """CEIL and FLOOR of a decimal."""
    mode = ROUND_CEILING if rounding == "up" else ROUND_FLOOR
    return _into(site.gives, lambda value: value.to_integral_value(rounding=mode, context=EXACT))


def rescale(value: Datum, type_: pa.DataType) -> tuple[Datum, Datum | None]:
    """A decimal in another decimal type, rounded half up, and which rows do not fit."""
    source = value.type
    if type_.scale >= source.scale and type_.precision - type_.scale >= source.precision - source.scale:
        return attempt(pc.cast, value, type_), None
    # One more digit for the rounding, and room for a larger scale.
    wide = pc.cast(value, pa.decimal256(source.precision + max(1, type_.scale - source.scale), source.scale))
    rounded = pc.round(wide, type_.scale, "half_towards_infinity") if type_.scale < source.scale else wide
    bound = pa.scalar(Decimal(1).scaleb(type_.precision - type_.scale), pa.decimal256(PRECISION_MAX + 1, 0))
    too_big = pc.greater_equal(pc.abs(rounded), bound)
    kept = pc.if_else(too_big, pa.scalar(None, rounded.type), rounded)
    return pc.cast(kept, type_), too_big
