"""Codes of values: equal values have equal numbers, and groups are numbered by their first rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.relational.codes import group_codes, places_in

VALUES: dict[pa.DataType, list[Any]] = {
    pa.string(): ["a", "b", "", "é", None],
    pa.binary(): [b"", b"\x00", b"a", None],
    pa.int8(): [0, 1, -1, None],
    pa.int64(): [0, 2**62, -1, None],
    pa.bool_(): [True, False, None],
    pa.decimal128(12, 2): [Decimal("1.10"), Decimal("-2.00"), Decimal(0), None],
    pa.date32(): [date(1, 1, 1), date(2026, 3, 1), None],
    pa.timestamp("us", "UTC"): [datetime(2026, 3, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC), None],
    pa.list_(pa.int64()): [[], [1], [1, 2], None],
    pa.null(): [None],
}


@pytest.mark.parametrize("type_", VALUES, ids=str)
@given(data=st.data())
def test_groups_are_numbered_by_their_first_rows(type_: pa.DataType, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.sampled_from(VALUES[type_]), max_size=8))
    cut = data.draw(st.integers(0, len(rows)))
    column = pa.chunked_array([pa.array(rows[:cut], type_), pa.array(rows[cut:], type_)], type_)
    firsts = [place for place, value in enumerate(rows) if rows.index(value) == place]
    groups, found = group_codes([column], len(rows))
    assert found.tolist() == firsts
    assert groups.tolist() == [firsts.index(rows.index(value)) for value in rows]


@pytest.mark.parametrize("type_", VALUES, ids=str)
@given(data=st.data())
def test_places_of_values_among_distinct_ones(type_: pa.DataType, data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.sampled_from(VALUES[type_]), max_size=8))
    held = data.draw(st.lists(st.sampled_from(VALUES[type_]), max_size=8, unique_by=repr))
    found = places_in(pa.array(wanted, type_), pa.chunked_array([pa.array(held, type_)], type_))
    if pa.types.is_nested(type_) or pa.types.is_null(type_):
        assert found is None
        return
    assert found is not None
    assert found.to_pylist() == [held.index(value) if value in held else None for value in wanted]


def test_floats_are_not_compared_by_their_bits() -> None:
    column = pa.array([0.0, -0.0, float("nan"), float("nan")])
    assert places_in(column, column) is None
    assert group_codes([column], 4)[0].tolist() == [0, 0, 1, 1]
