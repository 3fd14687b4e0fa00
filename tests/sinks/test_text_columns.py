"""Lines made by columns are the lines that `millpond.rendering` makes one by one."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.rendering import csv_lines, json_lines
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ
from millpond.sinks.text_columns import BATCH_ROWS, csv_blocks, json_blocks

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(max_size=6),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats(),
    pa.float32(): st.floats(allow_nan=False, allow_infinity=False, width=32),
    pa.decimal128(12, 2): st.decimals(-1000, 1000, places=2),
    pa.decimal128(20, 9): st.decimals(-1, 1, places=9),
    pa.decimal128(38, 18): st.decimals(-1000, 1000, places=18),
    pa.decimal256(40, 2): st.decimals(-1000, 1000, places=2),
    TIMESTAMP: st.datetimes(datetime(1, 1, 1), timezones=st.just(UTC)),
    pa.timestamp("us", tz="Europe/Rome"): st.datetimes(datetime(1990, 1, 1), timezones=st.just(UTC)),
    TIMESTAMP_NTZ: st.datetimes(datetime(1990, 1, 1)).map(lambda t: t.replace(microsecond=0)),
    pa.date32(): st.dates(date(1, 1, 1)),
    pa.binary(): st.binary(max_size=4),
    pa.list_(pa.int32()): st.lists(st.integers(0, 9), max_size=3),
}


def read(line: str) -> Any:
    """A line's names and values, every digit of its numbers kept."""
    return json.loads(line, parse_float=str, parse_int=str)


def text(rows: pa.Table) -> str:
    return b"".join(bytes(block) for block in json_blocks(rows)).decode()


@pytest.mark.parametrize("type_", VALUES, ids=str)
def test_columns_give_the_same_lines(type_: pa.DataType) -> None:
    @given(st.lists(st.none() | VALUES[type_], min_size=1, max_size=8))
    def check(values: list[Any]) -> None:
        rows = pa.table({"a": pa.array(values, type_), "n": pa.array(range(len(values)))})
        wanted = [read(line) for line in json_lines(rows, exact_numbers=True)]
        assert [read(line) for line in text(rows).split("\n")[:-1]] == wanted

    check()


def test_parts_that_are_rendered_concurrently_keep_their_order() -> None:
    count = 5 * BATCH_ROWS + 7
    rows = pa.table({"n": pa.array(range(count)), "t": pa.array(["x", None, 'a"b'] * (count // 3 + 1)).slice(0, count)})
    assert [json.loads(line) for line in text(rows).split("\n")[:-1]] == rows.to_pylist()


@pytest.mark.parametrize("type_", VALUES, ids=str)
def test_columns_give_the_same_lines_of_csv(type_: pa.DataType) -> None:
    @given(st.lists(st.none() | VALUES[type_], min_size=1, max_size=8))
    def check(values: list[Any]) -> None:
        rows = pa.table(
            {"a, b": pa.array(values, type_), "n": pa.array(range(len(values))), "z": pa.array(values, type_)}
        )
        wanted = "".join(f"{line}\n" for line in csv_lines(rows))
        assert b"".join(bytes(block) for block in csv_blocks(rows)).decode() == wanted

    check()


def test_names_are_escaped_and_pieces_of_a_column_count_from_their_start() -> None:
    rows = pa.table({'a "b"': ["x", "y", "z"], "p": pa.array([Decimal("1.10")] * 3)}).slice(1)
    assert text(rows) == '{"a \\"b\\"":"y","p":1.10}\n{"a \\"b\\"":"z","p":1.10}\n'
