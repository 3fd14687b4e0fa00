"""Moments of one value and of pairs: merged by Chan's formula, and what STDDEV, CORR and their like make of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]
Fields = dict[str, Numbers]


def merge_moments(before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    """n, mean and m2 of both together."""
    a, b = _fields(before), _fields(now)
    n, share = _shares(a["n"], b["n"])
    delta = b["mean"] - a["mean"]
    return _struct(
        now.type, {"n": n, "mean": a["mean"] + delta * share, "m2": a["m2"] + b["m2"] + delta * delta * a["n"] * share}
    )


def merge_pairs(before: pa.ChunkedArray, now: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same for two values and how they move together."""
    a, b = _fields(before), _fields(now)
    n, share = _shares(a["n"], b["n"])
    delta_a, delta_b = b["mean_a"] - a["mean_a"], b["mean_b"] - a["mean_b"]
    weight = a["n"] * share
    return _struct(
        now.type,
        {
            "n": n,
            "mean_a": a["mean_a"] + delta_a * share,
            "mean_b": a["mean_b"] + delta_b * share,
            "m2_a": a["m2_a"] + b["m2_a"] + delta_a * delta_a * weight,
            "m2_b": a["m2_b"] + b["m2_b"] + delta_b * delta_b * weight,
            "c": a["c"] + b["c"] + delta_a * delta_b * weight,
        },
    )


def _fields(values: pa.ChunkedArray) -> Fields:
    """The parts of a struct column; NULL, which is no input, is zero everywhere."""
    parts = {}
    for field in values.type:
        column = pc.struct_field(values, field.name).cast(pa.float64())
        parts[field.name] = pc.fill_null(column, 0.0).to_numpy()
    return parts


def _shares(before: Numbers, now: Numbers) -> tuple[Numbers, Numbers]:
    """How many there are together, and the share of the new ones."""
    n = before + now
    return n, np.divide(now, n, out=np.zeros_like(n), where=n > 0)


def _struct(type_: pa.StructType, fields: Fields) -> pa.ChunkedArray:
    arrays = [pa.array(fields[field.name]).cast(field.type) for field in type_]
    return pa.chunked_array([pa.StructArray.from_arrays(arrays, fields=list(type_))])


def final(how: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The user's value of each group; NULL where there are too few rows, or none that differ."""
    parts = _fields(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        found, known = FINALS[how](parts)
    if how == "regr_count":
        return pa.chunked_array([pa.array(found).cast(pa.int64())])
    return pa.chunked_array([pa.array(found, mask=~known)])


Made = tuple[Numbers, np.ndarray[tuple[int], np.dtype[np.bool_]]]


def _spread(*, sample: bool, root: bool) -> Callable[[Fields], Made]:
    def made(p: Fields) -> Made:
        variance = p["m2"] / (p["n"] - 1 if sample else p["n"])
        return (np.sqrt(variance) if root else variance), p["n"] > (1 if sample else 0)

    return made


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


FINALS: dict[str, Callable[[Fields], Made]] = {
    "var_samp": _spread(sample=True, root=False),
    "var_pop": _spread(sample=False, root=False),
    "stddev_samp": _spread(sample=True, root=True),
    "stddev_pop": _spread(sample=False, root=True),
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
