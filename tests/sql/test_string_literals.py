"""String literals: decoding and writing back by Spark's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.sql.string_literals import decode, encode


@pytest.mark.parametrize(
    ("inner", "value"),
    [
        ("plain", "plain"),
        ("it''s", "it's"),
        (r"it\'s", "it's"),
        (r"a\nb\tc\\d", "a\nb\tc\\d"),
        (r"100\%", "100\\%"),
        (r"a\_b", "a\\_b"),
        (r"\u0041\101\x", "AAx"),
        (r"\U0001F600", "\U0001f600"),
        (r"\uD83D\uDE00", "\U0001f600"),
        (r"\0", "\0"),
        ("", ""),
    ],
)
def test_escapes_stand_for_what_spark_says(inner: str, value: str) -> None:
    assert decode(inner, "'") == value


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_what_is_written_is_read_back(value: str) -> None:
    written = encode(value)
    assert written[0] == written[-1] == "'"
    assert decode(written[1:-1], "'") == value
