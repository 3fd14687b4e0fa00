"""Bytes into records, against parsers that read one byte at a time."""

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.sources.records.boundaries import Split, split_csv, split_elements, split_lines
from millpond.sources.records.formats import FileFormat

CSV = FileFormat("csv")


def texts(data: bytes, split: Split) -> list[bytes]:
    return [data[a:b] for a, b in zip(split.starts.tolist(), split.ends.tolist(), strict=True)]


def test_lines_come_without_their_ends_and_blank_ones_not_at_all() -> None:
    data = b"a\r\n\n  \t\r\nb \nhalf"
    split = split_lines(data)
    assert texts(data, split) == [b"a", b"b "]
    assert data[split.used :] == b"half"


def test_nothing_has_no_lines() -> None:
    assert texts(b"", split_lines(b"")) == []
    assert split_lines(b"half").used == 0


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b'a,"x\ny",b\nc\n', [b'a,"x\ny",b', b"c"]),
        (b'"a ""quoted"" word\n",1\r\n2\n', [b'"a ""quoted"" word\n",1', b"2"]),
        (b'5" pipe,1\n6" pipe,2\n', [b'5" pipe,1', b'6" pipe,2']),
        (b'5" pipe,1\n', [b'5" pipe,1']),
        (b'a,""\n"",b\n', [b'a,""', b'"",b']),
        (b'a, "x"\nb\n', [b'a, "x"', b"b"]),
        (b'"x"y,1\n2\n', [b'"x"y,1', b"2"]),
    ],
)
def test_a_newline_inside_quotes_belongs_to_the_row(data: bytes, rows: list[bytes]) -> None:
    assert texts(data, split_csv(data, CSV)) == rows


def test_a_quote_that_is_not_closed_waits() -> None:
    data = b'a,1\n"b,2\nc,3\n'
    split = split_csv(data, CSV)
    assert texts(data, split) == [b"a,1"]
    assert data[split.used :] == b'"b,2\nc,3\n'


def test_a_backslash_can_escape_a_quote() -> None:
    form = FileFormat("csv", escape="\\")
    data = b'"a \\" \n b",1\n2\n'
    assert texts(data, split_csv(data, form)) == [b'"a \\" \n b",1', b"2"]


def test_other_delimiters_and_quotes_are_respected() -> None:
    form = FileFormat("csv", delimiter="||", quote="'", escape="'")
    data = b"a||'x\n|| y'\nb||it's\n"
    assert texts(data, split_csv(data, form)) == [b"a||'x\n|| y'", b"b||it's"]


FIELDS = st.text(alphabet='ab,"\n\r \té;', max_size=6)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(FIELDS, min_size=2, max_size=3), min_size=1, max_size=6))
def test_what_a_csv_writer_wrote_is_split_into_its_rows(rows: list[list[str]]) -> None:
    data, wanted = b"", []
    for row in rows:
        out = io.StringIO(newline="")
        csv.writer(out).writerow(row)
        wanted.append(out.getvalue().encode().removesuffix(b"\r\n"))
        data += out.getvalue().encode()
    split = split_csv(data, CSV)
    assert texts(data, split) == [text for text in wanted if text.strip(b" \t\r\n")]
    assert split.used == len(data)


JSON_VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\{}[],: \n', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(JSON_VALUES, max_size=5), st.sampled_from([None, 2]))
def test_the_elements_of_a_json_array_are_distinguished(values: list[Any], indent: int | None) -> None:
    data = json.dumps(values, indent=indent).encode()[1:]
    split = split_elements(data)
    assert [json.loads(text) for text in texts(data, split)] == values
    assert split.closed


def test_an_array_that_goes_on_gives_the_elements_that_have_ended() -> None:
    data = b'{"a": 1}, {"b": [1, 2]}, {"c": "x'
    split = split_elements(data)
    assert [json.loads(t) for t in texts(data, split)] == [{"a": 1}, {"b": [1, 2]}]
    assert not split.closed
    assert data[split.used :] == b' {"c": "x'
