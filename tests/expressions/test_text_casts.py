"""Text read as values, by Spark's rules of CAST."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from millpond.expressions import text_casts
from millpond.expressions.failures import NotCompilable
from millpond.expressions.text_casts import Malformed


@pytest.mark.parametrize(("text", "value"), [(" 12 ", 12), ("\t-3\n", -3), ("+5", 5), ("-128", -128)])
def test_whole_numbers_are_trimmed(text: str, value: int) -> None:
    assert text_casts.whole(8)(text) == value


@pytest.mark.parametrize("text", ["", "1.5", "1.", "1e3", "128", "\uff11\uff12", "x", "- 1"])
def test_nothing_else_is_a_tinyint(text: str) -> None:
    with pytest.raises(Malformed):
        text_casts.whole(8)(text)


def test_doubles_may_be_words() -> None:
    assert [text_casts.double(t) for t in (" .5", "5.", "1e2", "+Infinity", "-INF")] == [
        0.5,
        5,
        100,
        float("inf"),
        -float("inf"),
    ]
    assert str(text_casts.double("NaN")) == "nan"
    for text in ("-nan", ".", "1e", ""):
        with pytest.raises(Malformed):
            text_casts.double(text)


def test_a_number_with_javas_suffix_is_sparks_to_read() -> None:
    for text in ("1.5d", "2F", "0x1p3"):
        with pytest.raises(NotCompilable):
            text_casts.double(text)


def test_a_float_is_rounded_once() -> None:
    # Halfway between two floats but for the last digit, which a double does not keep.
    assert text_casts.single("1.00000017881393432617187500001") == 1.0000002384185791
    assert text_casts.single("1.000000178813934326171875") == 1.0000002384185791
    assert text_casts.single("1.00000017881393432617187499999") == 1.0000001192092896


def test_decimals_keep_all_their_digits() -> None:
    assert text_casts.decimal(" 12345678901234567890.123456789 ") == Decimal("12345678901234567890.123456789")
    assert text_casts.decimal("1e-9") == Decimal("0.000000001")
    for text in ("", "1,5", "1.5x"):
        with pytest.raises(Malformed):
            text_casts.decimal(text)


def test_a_boolean_has_five_spellings_of_each() -> None:
    assert [text_casts.boolean(t) for t in ("t", "TRUE", " yes ", "y", "1")] == [True] * 5
    assert [text_casts.boolean(t) for t in ("f", "false", "No", "n", "0")] == [False] * 5
    for text in ("2", "on", "off", ""):
        with pytest.raises(Malformed):
            text_casts.boolean(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024", date(2024, 1, 1)),
        ("2024-3", date(2024, 3, 1)),
        (" 2024-2-9 ", date(2024, 2, 9)),
        ("2024-02-09T", date(2024, 2, 9)),
        ("2024-02-09 whatever", date(2024, 2, 9)),
    ],
)
def test_a_date_may_be_short_and_may_go_on(text: str, value: date) -> None:
    assert text_casts.day(text) == value


@pytest.mark.parametrize("text", ["", "24-01-01", "2024-02-30", "2024-02-09x", "20240209", "x"])
def test_what_is_no_date_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        text_casts.day(text)


def test_a_timestamp_is_utc_unless_it_says_otherwise() -> None:
    assert text_casts.timestamp("2024-02-09 1:2:3.1234567") == datetime(2024, 2, 9, 1, 2, 3, 123456, tzinfo=UTC)
    assert text_casts.timestamp("2024-02-09T10:00:00Z") == datetime(2024, 2, 9, 10, tzinfo=UTC)
    assert text_casts.timestamp("2024-02-09 10:00:00 +01:00") == datetime(2024, 2, 9, 9, tzinfo=UTC)
    with pytest.raises(Malformed):
        text_casts.timestamp("2024-02-09 24:00:00")


@pytest.mark.parametrize("text", ["12:34", "2024-02-09 10:00:00 Europe/Berlin", "2024-02-09 10:00:00 GMT+1"])
def test_a_time_alone_and_a_zone_by_name_are_sparks_to_read(text: str) -> None:
    with pytest.raises(NotCompilable):
        text_casts.timestamp(text)


def test_years_that_python_does_not_have_are_sparks_to_read() -> None:
    for read, text in ((text_casts.day, "12024-01-01"), (text_casts.timestamp, "0000-01-01")):
        with pytest.raises(NotCompilable):
            read(text)
