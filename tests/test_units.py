"""Durations and sizes."""

import pytest

from millpond.errors import SqlError
from millpond.units import parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("500ms", 500_000),
        ("30s", 30_000_000),
        ("5m", 300_000_000),
        ("5 minutes", 300_000_000),
        ("1h", 3_600_000_000),
        ("2 days", 172_800_000_000),
        ("2D", 172_800_000_000),
        ("1 MINUTE", 60_000_000),
        ("0s", 0),
        ("1.5s", 1_500_000),
        (" 10 Seconds ", 10_000_000),
        ("1 week", 604_800_000_000),
        ("3 milliseconds", 3_000),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, microseconds: int) -> None:
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize("text", ["", "5", "s", "5 parsecs", "-5s", "1e3s", "5 s s", "5mm", "1h30m", "0.0000001s"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_duration(text)
    assert caught.value.code == "MP106"
    assert caught.value.problems[0].message == f"'{text}' is not a duration."


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MB", 512_000_000),
        ("2GiB", 2 * 1024**3),
        ("10 kb", 10_000),
        ("1KiB", 1024),
        ("7B", 7),
        ("1.5 MiB", 1_572_864),
    ],
)
def test_a_size_is_a_number_and_a_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "512", "MB", "5 MBs", "-1MB", "1.5B", "1M"])
def test_anything_else_is_no_size(text: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_size(text)
    assert caught.value.code == "MP107"
