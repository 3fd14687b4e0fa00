"""Functions of numbers: bits, exact powers, and others whose result is the same in every mathematical library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions import arithmetic
from millpond.expressions.coercion import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    FLOATS,
    INT,
    INTEGERS,
    STRING,
    is_number,
    wider_number,
)
from millpond.expressions.failures import NotCompilable, RowError
from millpond.expressions.frames import Datum, Frame, Node, run_strict
from millpond.expressions.rules import Operands, Signature, same_number_rule, types_of
from millpond.expressions.signatures import (
    Function,
    Functions,
    Kernel,
    Run,
    Site,
    SpecialForm,
    elementwise,
    named,
    on_arrays,
    on_columns,
    takes,
)

M64 = 0xFFFFFFFFFFFFFFFF
# Whole numbers up to here are exactly representable as doubles.
EXACT_MAX = 2**53


def bits_rule(operands: Operands) -> Signature | None:
    types = types_of(operands)
    if any(t not in INTEGERS for t in types):
        return None
    type_ = types[0] if len(types) == 1 else wider_number(*types)
    return Signature((type_,) * len(types), type_)


def shift_rule(operands: Operands) -> Signature | None:
    value, by = types_of(operands)
    if value not in INTEGERS or by not in INTEGERS[:3]:
        return None
    type_ = BIGINT if value == BIGINT else INT
    return Signature((type_, INT), type_)


def _shift(function: Callable[[int, int, int], int]) -> Kernel:
    """A shift as in Java: modulo the number of bits of the type, without overflow errors."""

    def make(site: Site) -> Run:
        width: int = site.takes[0].bit_width

        def one(value: int, by: int) -> int:
            found = function(value, by % width, width) & ((1 << width) - 1)
            return found - (1 << width) if found >> (width - 1) else found

        return elementwise(one, site.gives)

    return Kernel(make)


def bit_count_rule(operands: Operands) -> Signature | None:
    (type_,) = types_of(operands)
    return Signature((type_,), INT) if type_ in INTEGERS or type_ == BOOLEAN else None


def bit_get_rule(operands: Operands) -> Signature | None:
    value, place = types_of(operands)
    return Signature((value, INT), pa.int8()) if value in INTEGERS and place in INTEGERS[:3] else None


def _bit_get(site: Site) -> Run:
    width = site.takes[0].bit_width

    def one(value: int, place: int) -> int:
        if not 0 <= place < width:
            raise RowError(f"bit {place} does not exist")
        return value >> place & 1

    return elementwise(one, site.gives)


def _power(base: float, exponent: float) -> float:
    """Powers whose result is exact, and therefore the same in Java; Spark computes the others."""
    if exponent == 0:
        return 1.0
    if math.isnan(base) or math.isnan(exponent):
        return math.nan
    if math.isinf(base) or math.isinf(exponent) or (base == 0 and (exponent < 0 or math.copysign(1, base) < 0)):
        raise NotCompilable("a power of infinity or negative zero")
    if exponent in (1, 2):
        return base if exponent == 1 else base * base
    if exponent == 0.5 and base >= 0:
        return math.sqrt(base)
    if base == int(base) and exponent == int(exponent) and 0 < exponent < 64:
        found = int(base) ** int(exponent)
        if abs(found) <= EXACT_MAX:
            return float(found)
    raise NotCompilable("a power that is not exact")


def _constant(value: float) -> Kernel:
    return Kernel(lambda _: lambda: pa.scalar(value, DOUBLE))


def _rint(array: pa.Array) -> pa.Array:
    values = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False)
    return pa.array(np.rint(values), mask=array.is_null().to_numpy(zero_copy_only=False))


def _factorial(number: int) -> int | None:
    return math.factorial(number) if 0 <= number <= 20 else None


def _times(factor: float) -> Run:
    return lambda value: pc.multiply(value, pa.scalar(factor, DOUBLE))


def _width_bucket(value: float, start: float, end: float, count: int) -> int | None:
    wrong = math.isnan(value) or math.isnan(start) or math.isnan(end) or math.isinf(start) or math.isinf(end)
    if count <= 0 or count == 2**63 - 1 or wrong or start == end:
        return None
    low, high = min(start, end), max(start, end)
    if start < end:
        distance, before, after = value - low, value < low, value >= high
    else:
        distance, before, after = high - value, value > high, value <= low
    if before or after:
        return 0 if before else count + 1
    return int(float(count) * distance / (high - low)) + 1


def nan_rule(operands: Operands) -> Signature | None:
    (type_,) = types_of(operands)
    if not is_number(type_):
        return None
    return Signature((type_ if type_ in FLOATS else DOUBLE,), BOOLEAN)


def _is_nan(value: Datum) -> Datum:
    return pc.fill_null(pc.is_nan(value), False)


def _tried(name: str) -> Function:
    """An operator that returns NULL instead of failing."""
    operator = arithmetic.FUNCTIONS[name]
    kernel = operator.kernel
    assert isinstance(kernel, Kernel)

    def make(site: Site) -> Run:
        if not all(is_number(type_) for type_ in site.takes):
            raise NotCompilable("a try_ function of other than numbers")
        return on_columns(_row_by_row(kernel.make(site), site.gives))

    words = {"+": "the sum", "-": "the difference", "*": "the product", "/": "the quotient", "%": "the remainder"}
    tried = Kernel(make) if not kernel.first else SpecialForm(_divided(make))
    return Function(operator.rule, operator.gives).by(tried, f"{words[name]}, NULL where it would fail")


def _divided(make: Callable[[Site], Run]) -> Callable[[Sequence[Node], Site], Callable[[Frame], Datum]]:
    """As in Spark, the dividend is evaluated only where the divisor is neither NULL nor 0."""

    def form(nodes: Sequence[Node], site: Site) -> Callable[[Frame], Datum]:
        function = make(site)
        dividend, divisor = nodes
        not_zero = replace(divisor, run=lambda frame: _null_for_zero(divisor.run(frame)), constant=None)

        def run(frame: Frame) -> Datum:
            right, left = run_strict([not_zero, dividend], frame)
            return function(left, right)

        return run

    return form


def _null_for_zero(value: Datum) -> Datum:
    return pc.if_else(pc.equal(value, pa.scalar(0, value.type)), pa.scalar(None, value.type), value)


def _row_by_row(run: Run, type_: pa.DataType) -> Callable[..., pa.Array]:
    """Evaluate all rows at once, or one by one if one of them fails."""

    def evaluate(*columns: pa.Array) -> pa.Array:
        try:
            return run(*columns)
        except RowError:
            parts = [_one(run, [column.slice(row, 1) for column in columns], type_) for row in range(len(columns[0]))]
            return pa.concat_arrays(parts)

    return evaluate


def _one(run: Run, columns: list[pa.Array], type_: pa.DataType) -> pa.Array:
    try:
        return run(*columns)
    except RowError:
        return pa.nulls(1, type_)


_BITS = Function(bits_rule)
_SHIFT = Function(shift_rule)
_DOUBLE = takes(DOUBLE, DOUBLE)


def _random(nodes: Sequence[Node], site: Site) -> Callable[[Frame], Datum]:
    if nodes:
        raise NotCompilable("a random number from a seed, which Spark computes in a way of its own")
    return lambda frame: pa.array(np.random.default_rng().random(frame.length))


_RANDOM = takes(DOUBLE, BIGINT, optional=1).by(SpecialForm(_random), "a random number from 0 up to 1")

FUNCTIONS: Functions = {
    **named(
        takes(DOUBLE, BIGINT, optional=1).by(SpecialForm(_random), "a random number from 0 up to 1"), "rand", "random"
    ),
    "&": _BITS.by_columns(pc.bit_wise_and),
    "|": _BITS.by_columns(pc.bit_wise_or),
    "^": _BITS.by_columns(pc.bit_wise_xor),
    "~": _BITS.by_columns(pc.bit_wise_not),
    "shiftleft": _SHIFT.by(_shift(lambda value, by, _: value << by), "the bits shifted to the left"),
    "shiftright": _SHIFT.by(_shift(lambda value, by, _: value >> by), "the bits shifted to the right, with the sign"),
    "shiftrightunsigned": _SHIFT.by(
        _shift(lambda value, by, width: (value & ((1 << width) - 1)) >> by), "the bits shifted to the right"
    ),
    "bit_count": Function(bit_count_rule, INT).by_rows(
        lambda value: (int(value) & M64).bit_count(), "the number of bits that are set"
    ),
    "bit_get": Function(bit_get_rule).by(Kernel(_bit_get, fallible=True), "one bit, counted from 0 at the right"),
    "bin": takes(STRING, BIGINT).by_rows(lambda value: f"{value & M64:b}", "a whole number in binary digits"),
    "power": takes(DOUBLE, DOUBLE, DOUBLE).by_rows(_power, "the power; evaluated by Spark if it is not exact"),
    "pi": takes(DOUBLE).by(_constant(math.pi), "the number pi"),
    "e": takes(DOUBLE).by(_constant(math.e), "the number e"),
    "degrees": _DOUBLE.by_columns(_times(180.0 / math.pi), "radians as degrees"),
    "radians": _DOUBLE.by_columns(_times(math.pi / 180.0), "degrees as radians"),
    "rint": _DOUBLE.by_columns(on_arrays(_rint), "the nearest whole number as a double, a half to the even one"),
    "factorial": takes(BIGINT, INT).by_rows(_factorial, "the factorial of 0 to 20"),
    "width_bucket": takes(BIGINT, DOUBLE, DOUBLE, DOUBLE, BIGINT).by_rows(
        _width_bucket, "the number of the bucket of equal width that contains a value"
    ),
    "positive": Function(same_number_rule).by_columns(lambda value: value, "the number itself"),
    "isnan": Function(nan_rule, BOOLEAN).by_columns(_is_nan, "whether a number is NaN"),
    "try_add": _tried("+"),
    "try_subtract": _tried("-"),
    "try_multiply": _tried("*"),
    "try_divide": _tried("/"),
    "try_mod": _tried("%"),
}
