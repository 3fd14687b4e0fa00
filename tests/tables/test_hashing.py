"""Hashes agree with equality, however arrays are sliced and whether one key or many are hashed."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.tables.hashing import equal_rows, hash_columns, hash_key, null_rows

texts = st.lists(st.one_of(st.none(), st.text(max_size=20)), min_size=1, max_size=30)
numbers = st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=30)


@given(texts, st.integers(0, 5))
def test_a_slice_has_the_hashes_of_its_rows(values: list[str | None], start: int) -> None:
    array = pa.array(values, pa.string())
    assert hash_columns([array])[start:].tolist() == hash_columns([array.slice(start)]).tolist()


@given(texts, numbers)
def test_one_key_hashes_as_many_do(left: list[str | None], right: list[int | None]) -> None:
    rows = [(a, b) for a, b in zip(left, right, strict=False) if a is not None and b is not None]
    if rows:
        a, b = zip(*rows, strict=True)
        assert hash_columns([pa.array(a), pa.array(b, pa.int64())]).tolist() == [hash_key(row) for row in rows]
        assert hash_columns([pa.array(a)]).tolist() == [hash_key((x,)) for x in a]
        assert hash_columns([pa.array([x.encode() for x in a])]).tolist() == [hash_key((x.encode(),)) for x in a]
        assert hash_columns([pa.array(b, pa.int64())]).tolist() == [hash_key((x,)) for x in b]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([0.0, -0.0, float("nan"), -float("nan"), None, 1.5]),
        pa.array([0.0, -0.0, 1.5, None], pa.float32()),
        pa.array([Decimal("1.00"), Decimal("1"), Decimal("-1"), None, Decimal(10**35)], pa.decimal128(38, 2)),
        pa.array([True, False, None, True]),
        pa.array(["", "a", None, "a\x00", "a", "aaaaaaaa", "aaaaaaaaa"]),
        pa.array([b"", b"\x00", b"\x00\x00", None]),
        pa.array([1, None, 1, -1, 0], pa.int8()),
        pa.array([[1, 2], [1], None, [1, 2]]),
        pa.array([{"a": 1}, {"a": None}, {"a": 1}]),
    ],
)
def test_equal_values_have_equal_hashes_and_others_not(array: pa.Array) -> None:
    count = len(array)
    left = np.repeat(np.arange(count), count)
    right = np.tile(np.arange(count), count)
    same = equal_rows([array.take(pa.array(left))], [array.take(pa.array(right))])
    hashes = hash_columns([array])
    assert (hashes[left] == hashes[right]).tolist() == same.tolist()
    assert same[left == right].all()


def test_null_equals_null_and_nothing_else() -> None:
    array = pa.array([0, None], pa.int64())
    assert equal_rows([array], [pa.array([None, None], pa.int64())]).tolist() == [False, True]
    assert null_rows([pa.array(["a", None]), pa.array([None, 1])]).tolist() == [True, True]


def test_hashes_spread() -> None:
    for array in (pa.array(np.arange(100_000)), pa.array([f"user-{i:07d}" for i in range(100_000)])):
        hashes = hash_columns([array])
        assert len(np.unique(hashes)) == 100_000
        assert np.bincount((hashes & np.uint64(2**17 - 1)).astype(np.int64)).max() < 16
