"""Decimal arithmetic with Spark's precision, scale and rounding, never through a float."""

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

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.coercion import PRECISION_MAX
from millpond.expressions.failures import NotCompilable, RowError, attempt
from millpond.expressions.frames import Datum, as_array
from millpond.expressions.rules import product_digits, quotient_digits, sum_digits
from millpond.expressions.signatures import Run, Site, elementwise

# Spark rounds products and quotients to 39 digits first, then to the scale of the result.
SPARK = Context(prec=PRECISION_MAX + 1, rounding=ROUND_HALF_UP, Emin=MIN_EMIN, Emax=MAX_EMAX)
EXACT = Context(prec=400, rounding=ROUND_HALF_UP, Emin=MIN_EMIN, Emax=MAX_EMAX)
TIES = {"half_up": ROUND_HALF_UP, "half_even": ROUND_HALF_EVEN}
_ARROW_TIES = {"half_up": "half_towards_infinity", "half_even": "half_to_even"}


def zero(like: Datum) -> pa.Scalar:
    return pa.scalar(Decimal(0).scaleb(-like.type.scale), like.type)


def fitted(value: Decimal, type_: pa.DataType) -> Decimal | None:
    """The value rounded half up to a decimal type; None if it has too many digits."""
    found = value.quantize(Decimal(1).scaleb(-type_.scale), rounding=ROUND_HALF_UP, context=EXACT)
    # abs() would round to the 28 digits of Python's default context.
    bound = Decimal(1).scaleb(type_.precision - type_.scale)
    return found if -bound < found < bound else None


def _into(type_: pa.DataType, compute: Callable[..., Decimal]) -> Run:
    """A computation on Python decimals, row by row, whose result is rounded to a type."""

    def one(*values: Decimal) -> Decimal:
        found = fitted(compute(*values), type_)
        if found is None:
            raise RowError(f"the result is out of range of DECIMAL({type_.precision},{type_.scale})")
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
    """Arrow's operation, if its result type is Spark's and no result can be out of range."""
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
    """Division; by Arrow if the first of Spark's two roundings cannot make a difference."""
    precision, scale = quotient_digits(*_digits(site))
    if precision + site.takes[1].precision > PRECISION_MAX:
        return _into(site.gives, SPARK.divide)
    dividend, divisor = site.takes
    # Arrow truncates at the scale s1 + p2 - s2 + 1: this s1 gives one additional digit for rounding.
    inner_scale = scale - divisor.precision + divisor.scale
    inner = pa.decimal256(dividend.precision + inner_scale - dividend.scale, inner_scale)
    wide = pa.decimal256(divisor.precision, divisor.scale)

    def run(left: Datum, right: Datum) -> Datum:
        quotient = pc.divide(pc.cast(left, inner), pc.cast(right, wide))
        return pc.cast(_rounded(quotient, scale, "half_up"), site.gives)

    return run


def remainder(site: Site) -> Run:
    left, right = site.takes
    scale = max(left.scale, right.scale)
    digits = max(left.precision - left.scale, right.precision - right.scale) + scale
    slow = _into(site.gives, _remainder)
    if digits > SMALL_PRECISION_MAX:
        return slow
    both = pa.decimal128(digits, scale)

    def run(left: Datum, right: Datum) -> Datum:
        if not isinstance(left, pa.Array):
            return slow(left, right)
        divisor = as_array(right, len(left), right.type)
        valid = pc.and_(left.is_valid(), divisor.is_valid())
        one = np.where(valid.to_numpy(zero_copy_only=False), unscaled(divisor.cast(both)), 1)
        return scaled(np.fmod(unscaled(left.cast(both)), one), valid, both).cast(site.gives)

    return run


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
    source = site.takes[0]
    kept = min(places, source.scale)
    if places >= 0 and site.gives.precision - site.gives.scale > source.precision - source.scale:
        return lambda value, *_: pc.cast(_rounded(value, kept, ties), site.gives)
    unit = Decimal(1).scaleb(-kept)
    rounded = _into(site.gives, lambda value: value.quantize(unit, rounding=TIES[ties], context=EXACT))
    return lambda value, *_: rounded(value)


def whole_rounder(site: Site, places: int, ties: str) -> Run:
    """ROUND of a whole number, which changes it only for negative places."""
    if places >= 0:
        return lambda value, *_: value
    unit = Decimal(1).scaleb(-places)
    type_ = site.gives
    top = 2 ** (type_.bit_width - 1)

    def one(value: int, _: int) -> int:
        found = int(Decimal(value).quantize(unit, rounding=TIES[ties], context=EXACT))
        if not -top <= found < top:
            raise RowError("the result is out of range")
        return found

    return elementwise(one, type_)


# Every whole number of this many digits is exactly representable as a double.
DOUBLE_DIGITS = 15
# Java before 19 writes some doubles beyond these with more digits than necessary.
SPELLED_MIN, SPELLED_MAX = 1e-9, 1e16


def spelled(value: float) -> Decimal:
    """The shortest decimal number that is parsed as this double; Spark uses the digits of a double's spelling."""
    if value and not SPELLED_MIN <= abs(value) < SPELLED_MAX:
        raise NotCompilable("the digits of a very large or very small double")
    return Decimal(repr(value))


def nearest_single(exact: Decimal) -> float:
    """The float nearest to a decimal number; a conversion through a double could round twice."""
    double = float(exact)
    with np.errstate(over="ignore"):
        guess = np.float32(double)
    if Decimal(double) == exact or not np.isfinite(guess):
        return float(guess)
    near = (guess, np.nextafter(guess, np.float32(-np.inf)), np.nextafter(guess, np.float32(np.inf)))

    def distance(one: np.float32) -> tuple[Decimal, int]:
        # Of two that are equally near, the even one.
        return EXACT.abs(EXACT.subtract(Decimal(float(one)), exact)), int(one.view(np.int32)) & 1

    return float(min(near, key=distance))


def float_rounder(places: int, ties: str) -> Callable[..., float]:
    """ROUND of a double, by its spelling."""
    unit = Decimal(1).scaleb(-places)

    def one(value: float, *_: int) -> float:
        if not math.isfinite(value) or (places >= 0 and abs(value) >= SPELLED_MAX):
            return value
        if abs(value) < 10.0 ** -(places + 1):
            return 0.0
        exact = spelled(value)
        exponent = exact.as_tuple().exponent
        if isinstance(exponent, int) and -exponent > places:
            exact = exact.quantize(unit, rounding=TIES[ties], context=EXACT)
        # Java's BigDecimal has no negative zero.
        return float(exact) or 0.0

    return one


def whole(site: Site, rounding: str) -> Run:
    """CEIL and FLOOR of a decimal."""
    source = site.takes[0]
    if source.scale == 0:
        return lambda value: value
    function = pc.ceil if rounding == "up" else pc.floor
    wide = pa.decimal256(source.precision + 1, source.scale)
    return lambda value: pc.cast(function(pc.cast(value, wide)), site.gives)


def to_places(site: Site, places: int, rounding: str) -> Run:
    """CEIL and FLOOR of a decimal to places."""
    unit = Decimal(1).scaleb(-min(places, site.takes[0].scale))
    towards = ROUND_CEILING if rounding == "up" else ROUND_FLOOR
    rounded = _into(site.gives, lambda value: value.quantize(unit, rounding=towards, context=EXACT))
    return lambda value, _: rounded(value)


def rescale(value: Datum, type_: pa.DataType) -> tuple[Datum, Datum | None]:
    """A decimal in another decimal type, rounded half up, and which rows are out of range."""
    source = value.type
    whole_digits = type_.precision - type_.scale
    if type_.scale >= source.scale and whole_digits >= source.precision - source.scale:
        return attempt(pc.cast, value, type_), None
    rounded = _rounded(value, type_.scale, "half_up") if type_.scale < source.scale else value
    if whole_digits >= rounded.type.precision - rounded.type.scale:
        return pc.cast(rounded, type_), None
    too_big = pc.greater_equal(pc.abs(rounded), pa.scalar(Decimal(1).scaleb(whole_digits), rounded.type))
    return pc.cast(pc.if_else(too_big, pa.scalar(None, rounded.type), rounded), type_), too_big


def _rounded(value: Datum, places: int, ties: str) -> Datum:
    """Rounded by Arrow, in a type with room for the digit that rounding may add."""
    wide = pc.cast(value, pa.decimal256(value.type.precision + 1, value.type.scale))
    return pc.round(wide, places, _ARROW_TIES[ties])


# Values of up to 18 digits are 64-bit integers behind the scale.
SMALL_PRECISION_MAX = 18


def unscaled(array: pa.Array) -> npt.NDArray[np.int64]:
    """The integers behind decimals of at most 18 digits; anything where NULL."""
    words = np.frombuffer(array.buffers()[1], dtype=np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    return words[::2]


def scaled(values: npt.NDArray[np.int64], valid: pa.Array, type_: pa.DataType) -> pa.Array:
    """Decimals of a type from the integers behind them."""
    words = np.empty(2 * len(values), dtype=np.int64)
    words[::2], words[1::2] = values, values >> 63
    whole = pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(words)])
    return pc.if_else(valid, whole, pa.scalar(None, type_))
