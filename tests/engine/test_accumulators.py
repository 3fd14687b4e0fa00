"""Averages of decimals are exact and rounded half up, whatever their size."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millpond.engine.accumulators import _average

RESULT = pa.decimal128(30, 6)
SMALL = st.decimals(-(10**6), 10**6, places=2)
LARGE = st.decimals(-(10**20), 10**20, places=2)


@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["64 bits", "128 bits"])
def test_an_average_is_the_exact_quotient_rounded_half_up(values: st.SearchStrategy[Decimal]) -> None:
    @given(st.lists(st.tuples(st.none() | values, st.integers(0, 1000)), min_size=1, max_size=6))
    @example([(Decimal("0.01"), 2), (Decimal("-0.01"), 8), (None, 0), (Decimal("5.00"), 0)])
    def check(rows: list[tuple[Decimal | None, int]]) -> None:
        totals = pa.chunked_array([pa.array([total for total, _ in rows], pa.decimal128(24, 2))])
        counts = pa.chunked_array([pa.array([count for _, count in rows], pa.int64())])
        with localcontext(prec=60):
            wanted = [
                None if total_ is None or not count else (total_ / count).quantize(Decimal("1e-6"), ROUND_HALF_UP)
                for total_, count in rows
            ]
        assert _average(totals, counts, RESULT).to_pylist() == wanted
        sliced = _average(totals.slice(1), counts.slice(1), RESULT)
        assert sliced.to_pylist() == wanted[1:]

    check()
