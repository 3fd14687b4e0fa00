"""STDDEV, VARIANCE, CORR and their like: moments of one value and of pairs, updated row by row as in Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.expressions.coercion import DOUBLE, is_number
from millpond.expressions.group_inputs import Aggregate, Inputs, by_group

Floats = npt.NDArray[np.float64]
Fields = dict[str, Floats]
Made = tuple[Floats, npt.NDArray[np.bool_]]

ONE = ("n", "mean", "m2")
PAIR = ("n", "mean_a", "mean_b", "m2_a", "m2_b", "c")


def _doubles(values: pa.Array) -> Floats:
    return np.asarray(values.cast(DOUBLE, safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def _moments(inputs: Inputs) -> Fields:
    known = inputs.known()
    rows = by_group(known)
    values = _doubles(known.values)[rows.rows].tolist()
    found = np.zeros((inputs.count, len(ONE)))
    for group in np.flatnonzero(rows.sizes).tolist():
        start = int(rows.starts[group])
        n = mean = m2 = 0.0
        for value in values[start : start + int(rows.sizes[group])]:
            n += 1.0
            delta = value - mean
            step = delta / n
            mean += step
            m2 += delta * (delta - step)
        found[group] = n, mean, m2
    return dict(zip(ONE, found.T, strict=True))


def _pairs(inputs: Inputs) -> Fields:
    """The same for two values and how they move together: `a` is the first argument, `b` the second."""
    known = inputs.known()
    rows = by_group(known)
    both = [_doubles(values)[rows.rows].tolist() for values in known.arguments]
    found = np.zeros((inputs.count, len(PAIR)))
    for group in np.flatnonzero(rows.sizes).tolist():
        start, end = int(rows.starts[group]), int(rows.starts[group] + rows.sizes[group])
        n = mean_a = mean_b = m2_a = m2_b = c = 0.0
        for a, b in zip(both[0][start:end], both[1][start:end], strict=True):
            n += 1.0
            delta_a, delta_b = a - mean_a, b - mean_b
            mean_a += delta_a / n
            mean_b += delta_b / n
            m2_a += delta_a * (a - mean_a)
            m2_b += delta_b * (b - mean_b)
            c += delta_a * (b - mean_b)
        found[group] = n, mean_a, mean_b, m2_a, m2_b, c
    return dict(zip(PAIR, found.T, strict=True))


def made(how: str, fields: Fields) -> pa.Array:
    """The value of each group; NULL where there are too few rows, or none that differ."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found, known = FINALS[how](fields)
    if how == "regr_count":
        return pa.array(found).cast(pa.int64())
    return pa.array(found, mask=~known)


def _spread(*, sample: bool, root: bool) -> Callable[[Fields], Made]:
    def final(p: Fields) -> Made:
        variance = p["m2"] / (p["n"] - 1 if sample else p["n"])
        return (np.sqrt(variance) if root else variance), p["n"] > (1 if sample else 0)

    return final


def _correlation(p: Fields) -> Made:
    square = p["m2_a"] * p["m2_b"]
    return p["c"] / np.sqrt(square), (p["n"] > 1) & (square > 0)


def _slope(p: Fields) -> Made:
    return p["c"] / p["m2_b"], (p["n"] > 1) & (p["m2_b"] > 0)


def _intercept(p: Fields) -> Made:
    slope, known = _slope(p)
    return p["mean_a"] - slope * p["mean_b"], known


def _r2(p: Fields) -> Made:
    square = p["c"] * p["c"] / (p["m2_a"] * p["m2_b"])
    return np.where(p["m2_a"] > 0, square, 1.0), (p["n"] > 1) & (p["m2_b"] > 0)


def _part(name: str) -> Callable[[Fields], Made]:
    return lambda p: (p[name], p["n"] > 0)


_OF_ONE: dict[str, Callable[[Fields], Made]] = {
    "var_samp": _spread(sample=True, root=False),
    "var_pop": _spread(sample=False, root=False),
    "stddev_samp": _spread(sample=True, root=True),
    "stddev_pop": _spread(sample=False, root=True),
}
_OF_PAIRS: dict[str, Callable[[Fields], Made]] = {
    "covar_pop": lambda p: (p["c"] / p["n"], p["n"] > 0),
    "covar_samp": lambda p: (p["c"] / (p["n"] - 1), p["n"] > 1),
    "corr": _correlation,
    "regr_slope": _slope,
    "regr_intercept": _intercept,
    "regr_r2": _r2,
    "regr_count": _part("n"),
    "regr_avgy": _part("mean_a"),
    "regr_avgx": _part("mean_b"),
    "regr_syy": _part("m2_a"),
    "regr_sxx": _part("m2_b"),
    "regr_sxy": _part("c"),
}
FINALS = {**_OF_ONE, **_OF_PAIRS}


def _one_number(types: Sequence[pa.DataType], ordered: bool) -> bool:
    return len(types) == 1 and not ordered and is_number(types[0])


def _two_numbers(types: Sequence[pa.DataType], ordered: bool) -> bool:
    return len(types) == 2 and not ordered and all(is_number(type_) for type_ in types)


def _of_one(how: str) -> Aggregate:
    return Aggregate(lambda inputs: made(how, _moments(inputs)), _one_number)


def _of_two(how: str) -> Aggregate:
    return Aggregate(lambda inputs: made(how, _pairs(inputs)), _two_numbers)


AGGREGATES: dict[str, Aggregate] = {
    **{name: _of_one(name) for name in _OF_ONE},
    **{name: _of_two(name) for name in _OF_PAIRS},
}
