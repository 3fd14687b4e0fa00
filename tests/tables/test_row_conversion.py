"""Values become exactly what Spark would store, or are refused; decimals never pass through floats."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import ConstraintError
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ, Column
from millpond.tables.row_conversion import to_array
from millpond.tables.value_conversion import cast_array

D = Decimal
NOON = dt.datetime(2026, 5, 6, 12, 0, 0, 1, dt.UTC)
TOKYO = dt.timezone(dt.timedelta(hours=9))

FITTING: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), np.True_, True),
    (pa.int8(), 127, 127),
    (pa.int32(), np.int64(5), 5),
    (pa.int32(), -1.9, -1),
    (pa.int64(), D("99.99"), 99),
    (pa.float64(), 3, 3.0),
    (pa.float64(), D("0.1"), 0.1),
    (pa.decimal128(12, 2), 0.1, D("0.10")),
    (pa.decimal128(12, 2), 1.005, D("1.01")),
    (pa.decimal128(12, 2), D("-1.005"), D("-1.01")),
    (pa.decimal128(12, 2), D("9999999999.994"), D("9999999999.99")),
    (pa.decimal128(38, 0), 10**38 - 1, D(10**38 - 1)),
    (pa.decimal128(38, 38), D("0." + "1" * 38), D("0." + "1" * 38)),
    (pa.decimal128(5, 2), np.float64(2.5), D("2.50")),
    (pa.decimal128(5, 2), 0, D("0.00")),
    (pa.string(), 5, "5"),
    (pa.string(), True, "true"),
    (pa.string(), D("1.50"), "1.50"),
    (pa.string(), dt.date(2026, 1, 2), "2026-01-02"),
    (pa.string(), dt.datetime(2026, 1, 2, 3, 4, 5, 120000), "2026-01-02 03:04:05.12"),
    (pa.string(), NOON.replace(microsecond=0), "2026-05-06 12:00:00"),
    (pa.string(), 1e7, "1.0E7"),
    (pa.string(), 1.5e-5, "1.5E-5"),
    (pa.string(), 123.25, "123.25"),
    (pa.string(), b"abc", "abc"),
    (pa.binary(), bytearray(b"x"), b"x"),
    (pa.date32(), NOON, dt.date(2026, 5, 6)),
    (pa.date32(), dt.datetime(2026, 5, 7, 1, tzinfo=TOKYO), dt.date(2026, 5, 6)),
    (TIMESTAMP, NOON.replace(tzinfo=None), NOON),
    (TIMESTAMP, NOON.astimezone(TOKYO), NOON),
    (TIMESTAMP, dt.date(2026, 5, 6), dt.datetime(2026, 5, 6, tzinfo=dt.UTC)),
    (TIMESTAMP_NTZ, NOON, NOON.replace(tzinfo=None)),
    (pa.list_(pa.decimal128(5, 2)), [1, None, 0.125], [D("1.00"), None, D("0.13")]),
    (pa.struct([("A", pa.int32())]), {"a": 1.0}, {"A": 1}),
]

MISFITS: list[tuple[pa.DataType, Any]] = [
    (pa.bool_(), 1),
    (pa.bool_(), "true"),
    (pa.int8(), 128),
    (pa.int32(), "5"),
    (pa.int32(), True),
    (pa.int32(), float("inf")),
    (pa.int32(), [1]),
    (pa.int64(), 2**63),
    (pa.float64(), "1"),
    (pa.float64(), False),
    (pa.decimal128(5, 2), 1000),
    (pa.decimal128(5, 2), D("999.995")),
    (pa.decimal128(5, 2), "1"),
    (pa.decimal128(5, 2), float("nan")),
    (pa.decimal128(5, 2), True),
    (pa.string(), ["a"]),
    (pa.binary(), "text"),
    (pa.date32(), "2026-01-01"),
    (pa.date32(), 5),
    (TIMESTAMP, 0),
    (TIMESTAMP, "2026-01-01"),
    (pa.list_(pa.int32()), "12"),
    (pa.list_(pa.int32()), ["a"]),
    (pa.map_(pa.string(), pa.int32()), {None: 1}),
    (pa.struct([("a", pa.int32())]), {"b": 1}),
    (pa.struct([("a", pa.int32())]), 5),
]


@pytest.mark.parametrize(("type_", "given", "stored"), FITTING)
def test_a_value_that_fits(type_: pa.DataType, given: Any, stored: Any) -> None:
    value = to_array([given], Column("c", type_))[0].as_py()
    assert value == stored
    assert type(value) is type(stored)


@pytest.mark.parametrize(("type_", "given"), MISFITS)
def test_a_value_that_does_not_fit_is_named(type_: pa.DataType, given: Any) -> None:
    with pytest.raises(ConstraintError, match=r"MP404.*'c'"):
        to_array([None, given], Column("c", type_))


ARRAYS: list[tuple[pa.Array, pa.DataType, list[Any]]] = [
    (pa.array([1, None], pa.int64()), pa.int8(), [1, None]),
    (pa.array([1, 2], pa.int64()), pa.decimal128(12, 2), [D("1.00"), D("2.00")]),
    (pa.array([1], pa.uint64()), pa.decimal128(38, 30), [D("1." + "0" * 30)]),
    (pa.array([1.9, -1.9]), pa.int32(), [1, -1]),
    (pa.array([0.1, 1.005]), pa.decimal128(5, 2), [D("0.10"), D("1.01")]),
    (pa.array([D("1.125"), D("-1.125")]), pa.decimal128(5, 2), [D("1.13"), D("-1.13")]),
    (pa.array([D("1.5")]), pa.decimal128(38, 20), [D("1.5")]),
    (pa.array([D("1.5")]), pa.int32(), [1]),
    (pa.array([D("0.1")]), pa.float64(), [0.1]),
    (pa.array(["a", None], pa.large_string()), pa.string(), ["a", None]),
    (pa.array(["a", "b"], pa.string_view()), pa.string(), ["a", "b"]),
    (pa.array(["a", "a"]).dictionary_encode(), pa.string(), ["a", "a"]),
    (pa.array([None, None]), pa.date32(), [None, None]),
    (pa.array([5]), pa.string(), ["5"]),
    (pa.array([NOON]), pa.date32(), [NOON.date()]),
    (pa.array([dt.date(1960, 1, 1)]), TIMESTAMP, [dt.datetime(1960, 1, 1, tzinfo=dt.UTC)]),
    (pa.array([NOON], pa.timestamp("ns", "Asia/Tokyo")), TIMESTAMP, [NOON]),
    (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("s")), TIMESTAMP, [NOON.replace(microsecond=0)]),
    (pa.array([[1, None]]), pa.list_(pa.int32()), [[1, None]]),
]


@pytest.mark.parametrize(("array", "type_", "stored"), ARRAYS)
def test_an_array_that_fits(array: pa.Array, type_: pa.DataType, stored: list[Any]) -> None:
    cast = cast_array(array, Column("c", type_))
    assert cast.type == type_
    assert cast.to_pylist() == stored
    assert cast_array(pa.chunked_array([array, array]), Column("c", type_)).to_pylist() == stored * 2


@pytest.mark.parametrize(
    ("array", "type_"),
    [
        (pa.array([128]), pa.int8()),
        (pa.array([1e10]), pa.int32()),
        (pa.array([float("nan")]), pa.int32()),
        (pa.array([1000]), pa.decimal128(5, 2)),
        (pa.array([D("999.995")]), pa.decimal128(5, 2)),
        (pa.array(["1"]), pa.int32()),
        (pa.array(["2026-01-01"]), pa.date32()),
        (pa.array([True]), pa.int32()),
        (pa.array([1]), TIMESTAMP),
        (pa.array([1]), pa.bool_()),
        (pa.array([["x"]]), pa.list_(pa.int32())),
    ],
)
def test_an_array_that_does_not_fit_is_refused(array: pa.Array, type_: pa.DataType) -> None:
    with pytest.raises(ConstraintError, match=r"MP404.*'c'"):
        cast_array(array, Column("c", type_))
