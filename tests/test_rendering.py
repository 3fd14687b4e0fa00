"""Values as text."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.rendering import cells, csv_lines, json_lines, json_texts, text_lines

UTC = dt.UTC
MARCH = dt.datetime(2026, 3, 1, 10, 0, 0, tzinfo=UTC)


def one(value: Any, type_: pa.DataType | None = None) -> str:
    return json_texts(pa.array([value], type_))[0]


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (None, pa.null(), "null"),
        (None, pa.int32(), "null"),
        (True, pa.bool_(), "true"),
        (-7, pa.int64(), "-7"),
        (2**63 - 1, pa.int64(), "9223372036854775807"),
        (1.0, pa.float64(), "1.0"),
        (-0.0, pa.float64(), "-0.0"),
        (1e20, pa.float64(), "1e+20"),
        (0.1, pa.float32(), "0.1"),
        (float("nan"), pa.float64(), '"NaN"'),
        (float("-inf"), pa.float64(), '"-Infinity"'),
        (Decimal("1.50"), pa.decimal128(12, 2), '"1.50"'),
        (Decimal("0.00000001"), pa.decimal128(20, 8), '"0.00000001"'),
        (Decimal("9" * 38), pa.decimal128(38, 0), '"' + "9" * 38 + '"'),
        (MARCH, pa.timestamp("us", "UTC"), '"2026-03-01T10:00:00Z"'),
        (MARCH.replace(microsecond=120_000), pa.timestamp("us", "UTC"), '"2026-03-01T10:00:00.12Z"'),
        (MARCH, pa.timestamp("us", "America/New_York"), '"2026-03-01T10:00:00Z"'),
        (MARCH.replace(tzinfo=None), pa.timestamp("us"), '"2026-03-01T10:00:00"'),
        (1, pa.timestamp("ns"), '"1970-01-01T00:00:00.000000001"'),
        (dt.date(2026, 3, 1), pa.date32(), '"2026-03-01"'),
        (dt.time(10, 0, 0, 500_000), pa.time64("us"), '"10:00:00.5"'),
        (b"\x00\xff", pa.binary(), '"AP8="'),
        ('say "no"\nü', pa.string(), '"say \\"no\\"\\nü"'),
        ("large", pa.large_string(), '"large"'),
        ([1, None, 3], pa.list_(pa.int32()), "[1, null, 3]"),
        ([], pa.list_(pa.int32()), "[]"),
        ([1, 2], pa.list_(pa.int32(), 2), "[1, 2]"),
        ({"a": 1, "b": None}, pa.struct({"a": pa.int32(), "b": pa.string()}), '{"a": 1, "b": null}'),
        ([("x", Decimal("0.10"))], pa.map_(pa.string(), pa.decimal128(4, 2)), '{"x": "0.10"}'),
        ([(7, True)], pa.map_(pa.int32(), pa.bool_()), '{"7": true}'),
    ],
)
def test_each_type_has_one_json_text(value: Any, type_: pa.DataType, text: str) -> None:
    assert one(value, type_) == text


def test_a_year_that_python_has_no_date_for_is_still_written() -> None:
    assert one(2_534_023_008_000_000_000, pa.timestamp("us", "UTC")) == '"16733-12-29T00:00:00Z"'


def test_a_decimal_is_an_exact_number_when_asked_for() -> None:
    column = pa.array([[Decimal("1.10")]], pa.list_(pa.decimal128(38, 2)))
    assert json_texts(column, exact_numbers=True) == ["[1.10]"]


def test_nulls_inside_nested_values_stay_where_they_are() -> None:
    type_ = pa.struct({"a": pa.list_(pa.int32())})
    column = pa.array([{"a": [1]}, None, {"a": None}, {"a": [None]}], type_)
    assert json_texts(column) == ['{"a": [1]}', "null", '{"a": null}', '{"a": [null]}']


def test_a_slice_is_written_as_itself() -> None:
    lists = pa.array([[1], [2, 3], None, [4]])[1:3]
    maps = pa.array([[("a", 1)], None, [("b", 2)]], pa.map_(pa.string(), pa.int32()))[2:]
    structs = pa.array([{"a": 1}, {"a": 2}])[1:]
    assert json_texts(lists) == ["[2, 3]", "null"]
    assert json_texts(maps) == ['{"b": 2}']
    assert json_texts(structs) == ['{"a": 2}']


def test_a_dictionary_column_is_written_as_its_values() -> None:
    assert json_texts(pa.array(["x", None, "x"]).dictionary_encode()) == ['"x"', "null", '"x"']


def test_rows_of_several_chunks_come_in_order() -> None:
    table = pa.table({"n": pa.chunked_array([[1, 2], [], [3]])})
    assert list(json_lines(table)) == ['{"n": 1}', '{"n": 2}', '{"n": 3}']


def test_csv_distinguishes_null_from_the_empty_string() -> None:
    table = pa.table({"a": ["", None, 'q"q', "x,y", " b"], "n": pa.array([Decimal("1.0"), None, None, None, None])})
    assert list(csv_lines(table)) == ["a,n", '"",1.0', ",", '"q""q",', '"x,y",', '" b",']


def test_csv_writes_nested_values_as_json() -> None:
    assert list(csv_lines(pa.table({"a": [["x"]]}))) == ["a", '"[""x""]"']


def test_columns_are_aligned_and_cannot_move_the_cursor() -> None:
    table = pa.table({"name": ["Ann", "b\x1b[2J\n", None], "size": [5, 12345, None]})
    assert list(text_lines(table)) == [
        "name         size",
        "----------  -----",
        "Ann             5",
        "b\\x1b[2J\\n  12345",
        "NULL         NULL",
    ]


def test_wide_characters_take_two_cells() -> None:
    assert (cells("abc"), cells("日本"), cells("e\u0301")) == (3, 4, 1)


def test_a_table_without_rows_has_its_header() -> None:
    table = pa.table({"a": pa.array([], pa.int32())})
    assert (list(json_lines(table)), list(csv_lines(table)), list(text_lines(table))) == ([], ["a"], ["a", "-"])


SCALARS = {
    pa.string(): st.text(),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
}


@given(st.data())
def test_what_is_written_reads_back_the_same(data: st.DataObject) -> None:
    type_, values = data.draw(st.sampled_from(list(SCALARS.items())))
    rows = data.draw(st.lists(st.none() | st.lists(st.none() | values, max_size=4), max_size=5))
    column = pa.array(rows, pa.list_(type_))
    assert [json.loads(text) for text in json_texts(column)] == rows
