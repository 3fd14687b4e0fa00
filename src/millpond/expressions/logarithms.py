"""Exponentials and logarithms, with the same bits as Java's StrictMath, which Spark uses.

The C library rounds some results differently. Java prescribes the algorithms of fdlibm: the argument is reduced by a
multiple of ln 2, and a polynomial of fixed coefficients, in a fixed order of operations, gives the rest. NumPy
evaluates the same operations for all values at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.coercion import DOUBLE
from millpond.expressions.signatures import Functions, on_arrays, on_columns, takes

Doubles: TypeAlias = npt.NDArray[np.float64]

# ln 2 in two parts, so that multiples of the first are exact.
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
ONE_BY_LN2 = 1.44269504088896338700e00
ONE_BY_LN10 = 4.34294481903251816668e-01
LOG10_2_HIGH, LOG10_2_LOW = 3.01029995663611771306e-01, 3.69423907715893078616e-13
EXP_MAX, EXP_MIN = 7.09782712893383973096e02, -7.45133219101941108420e02
# Coefficients of the two polynomials, the highest power last.
EXP_TERMS = (
    1.66666666666666019037e-01,
    -2.77777777770155933842e-03,
    6.61375632143793436117e-05,
    -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)
LOG_TERMS = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
TWO_54 = 2.0**54
FRACTION = 0xFFFFF


def _polynomial(terms: tuple[float, ...], at: Doubles) -> Doubles:
    found = np.full_like(at, terms[-1])
    for term in reversed(terms[:-1]):
        found = term + at * found
    return found


def _high_words(values: Doubles) -> npt.NDArray[np.int64]:
    """The sign, exponent and first 20 bits of the fraction of each value."""
    return values.view(np.int64) >> 32


def _with_high_words(values: Doubles, high: npt.NDArray[np.int64]) -> Doubles:
    return ((high << 32) | (values.view(np.int64) & 0xFFFFFFFF)).view(np.float64)


@np.errstate(all="ignore")
def exp(values: Doubles) -> Doubles:
    """e to the power of each value."""
    inside = (values <= EXP_MAX) & (values >= EXP_MIN)
    x = np.where(inside, values, 0.0)
    size = _high_words(np.abs(x))
    sign = np.where(x < 0, -1.0, 1.0)
    near = size < 0x3FF0A2B2
    times = np.where(near, sign, np.trunc(ONE_BY_LN2 * x + 0.5 * sign))
    times = np.where(size > 0x3FD62E42, times, 0.0)
    high, low = x - times * LN2_HIGH, times * LN2_LOW
    rest = high - low
    square = rest * rest
    c = rest - square * _polynomial(EXP_TERMS, square)
    unreduced = 1.0 - ((rest * c) / (c - 2.0) - rest)
    reduced = 1.0 - ((low - (rest * c) / (2.0 - c)) - high)
    found = np.where(times == 0, unreduced, np.ldexp(reduced, times.astype(np.int32)))
    found = np.where(size < 0x3E300000, 1.0 + x, found)
    outside = np.where(np.isnan(values), values, np.where(values > 0, np.inf, 0.0))
    return np.where(inside, found, outside)


@np.errstate(all="ignore")
def log(values: Doubles) -> Doubles:
    """The natural logarithm of each value, which must be positive, infinite or NaN."""
    finite = np.isfinite(values)
    x = np.where(finite, values, 1.0)
    tiny = x < 2.0**-1022
    x = np.where(tiny, x * TWO_54, x)
    high = _high_words(x)
    k = (high >> 20) - 1023 - np.where(tiny, 54, 0)
    fraction = high & FRACTION
    carry = (fraction + 0x95F64) & 0x100000
    exponent = (k + (carry >> 20)).astype(np.float64)
    f = _with_high_words(x, fraction | (carry ^ 0x3FF00000)) - 1.0
    close = (FRACTION & (2 + fraction)) < 3
    found = np.where(close, _log_near_one(f, exponent), _log_away_from_one(f, exponent, fraction))
    return np.where(finite, found, values)


def _log_near_one(f: Doubles, k: Doubles) -> Doubles:
    r = f * f * (0.5 - 0.33333333333333333 * f)
    found = np.where(k == 0, f - r, k * LN2_HIGH - ((r - k * LN2_LOW) - f))
    return np.where(f == 0, k * LN2_HIGH + k * LN2_LOW, found)


def _log_away_from_one(f: Doubles, k: Doubles, fraction: npt.NDArray[np.int64]) -> Doubles:
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    r = z * _polynomial(LOG_TERMS[::2], w) + w * _polynomial(LOG_TERMS[1::2], w)
    half = 0.5 * f * f
    middle = ((fraction - 0x6147A) | (0x6B851 - fraction)) > 0
    in_middle = np.where(
        k == 0, f - (half - s * (half + r)), k * LN2_HIGH - ((half - (s * (half + r) + k * LN2_LOW)) - f)
    )
    beside = np.where(k == 0, f - s * (f - r), k * LN2_HIGH - ((s * (f - r) - k * LN2_LOW) - f))
    return np.where(middle, in_middle, beside)


@np.errstate(all="ignore")
def log10(values: Doubles) -> Doubles:
    """The decimal logarithm of each value, which must be positive, infinite or NaN."""
    finite = np.isfinite(values)
    x = np.where(finite, values, 1.0)
    tiny = x < 2.0**-1022
    x = np.where(tiny, x * TWO_54, x)
    high = _high_words(x)
    k = (high >> 20) - 1023 - np.where(tiny, 54, 0)
    below = (k < 0).astype(np.int64)
    y = (k + below).astype(np.float64)
    rest = _with_high_words(x, (high & FRACTION) | ((0x3FF - below) << 20))
    found = (y * LOG10_2_LOW + ONE_BY_LN10 * log(rest)) + y * LOG10_2_HIGH
    return np.where(finite, found, values)


def _log2(values: Doubles) -> Doubles:
    return log(values) / LN_2


LN_2: float = float(log(np.array([2.0]))[0])


def _of_positive(function: Callable[[Doubles], Doubles]) -> Callable[[pa.Array], pa.Array]:
    """NULL for a number that has no logarithm, as in Spark."""

    def evaluate(column: pa.Array) -> pa.Array:
        values = column.fill_null(1.0).to_numpy(zero_copy_only=False)
        none = column.is_null().to_numpy(zero_copy_only=False) | (values <= 0)
        return pa.array(function(np.where(none, 1.0, values)), mask=none)

    return evaluate


def _exp(column: pa.Array) -> pa.Array:
    values = column.fill_null(0.0).to_numpy(zero_copy_only=False)
    return pa.array(exp(values), mask=column.is_null().to_numpy(zero_copy_only=False))


_ln = _of_positive(log)


def _log_to_base(*columns: pa.Array) -> pa.Array:
    """`log(x)`, or `log(base, x)`."""
    logs = [_ln(column) for column in columns]
    return logs[0] if len(logs) == 1 else pc.divide(logs[1], logs[0])


_DOUBLE = takes(DOUBLE, DOUBLE)
FUNCTIONS: Functions = {
    "exp": _DOUBLE.by_columns(on_arrays(_exp), "e to the power of a number"),
    "ln": _DOUBLE.by_columns(on_arrays(_ln), "the natural logarithm; NULL for 0 and less"),
    "log10": _DOUBLE.by_columns(on_arrays(_of_positive(log10)), "the decimal logarithm"),
    "log2": _DOUBLE.by_columns(on_arrays(_of_positive(_log2)), "the logarithm to base 2"),
    "log": takes(DOUBLE, DOUBLE, DOUBLE, optional=1).by_columns(
        on_columns(_log_to_base), "the natural logarithm, or with a base as first argument"
    ),
}
