"""Sums by group are exact, whichever way they are added."""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.expressions.group_inputs import Inputs, Overflow
from millpond.expressions.group_sums import DOUBLE_SUM, sums

GROUPS = 4
# The values near which the way of adding changes, and the largest ones.
LARGE = [DOUBLE_SUM // 3, DOUBLE_SUM - 1, DOUBLE_SUM, 2**62, 2**63 - 1, -(2**63), 10**37]
NUMBERS = st.integers(-500, 500) | st.sampled_from(LARGE)
ROWS = st.lists(st.tuples(st.integers(0, GROUPS - 1), st.none() | NUMBERS), max_size=6)


def exact(rows: list[tuple[int, int | None]]) -> list[int | None]:
    """The sum of each group, NULL if it has no value."""
    own = [[value for group, value in rows if group == number and value is not None] for number in range(GROUPS)]
    return [sum(values) if values else None for values in own]


def inputs(rows: list[tuple[int, int | None]], values: pa.Array, result: pa.DataType) -> Inputs:
    # Behind a value of another column's part, as in a slice of a batch.
    sliced = pa.concat_arrays([values[:0], pa.nulls(1, values.type), values])[1:]
    return Inputs(np.array([group for group, _ in rows], np.int64), GROUPS, (sliced,), result)


@pytest.mark.parametrize("type_", [pa.int16(), pa.int64()], ids=str)
@given(rows=ROWS)
def test_whole_numbers(type_: pa.DataType, rows: list[tuple[int, int | None]]) -> None:
    least = -(2 ** (type_.bit_width - 1))
    rows = [(g, v if v is None or least <= v < -least else None) for g, v in rows]
    wanted = exact(rows)
    asked = inputs(rows, pa.array([v for _, v in rows], type_), pa.int64())
    if any(total is not None and not -(2**63) <= total < 2**63 for total in wanted):
        with pytest.raises(Overflow):
            sums(asked)
        return
    found = sums(asked)
    assert found.type == pa.int64()
    assert found.to_pylist() == wanted


@given(rows=ROWS)
def test_decimals(rows: list[tuple[int, int | None]]) -> None:
    def scaled(value: int | None) -> Decimal | None:
        return None if value is None else Decimal(value).scaleb(-2, Context(prec=60))

    type_ = pa.decimal128(38, 2)
    found = sums(inputs(rows, pa.array([scaled(v) for _, v in rows], type_), type_))
    assert found.type == type_
    assert found.to_pylist() == [scaled(total) for total in exact(rows)]
