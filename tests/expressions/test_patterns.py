"""LIKE and RLIKE as regular expressions."""

import pytest

from millpond.expressions.failures import NotCompilable, RowError
from millpond.expressions.patterns import like, rlike


def test_a_like_pattern_covers_the_whole_text() -> None:
    assert like("a.c%_") == r"\Aa\.c(?s:.*)(?s:.)\z"


def test_an_escaped_wildcard_is_itself() -> None:
    assert like(r"\%\_\\") == r"\A%_\\\z"
    assert like("/%//", "/") == r"\A%/\z"


@pytest.mark.parametrize("pattern", ["a\\", "\\a"])
def test_an_escape_before_an_ordinary_character_fails(pattern: str) -> None:
    with pytest.raises(RowError):
        like(pattern)


@pytest.mark.parametrize("pattern", ["^a+b*", "[a-c]{1,3}", "(a|b)?", r"\d\.", "a.b"])
def test_a_pattern_that_means_the_same_everywhere_is_taken(pattern: str) -> None:
    assert rlike(pattern)


@pytest.mark.parametrize(
    "pattern", ["(?i)a", "a$", "(?=a)", r"\p{L}", r"\1", "a++", "[a&&b]", r"\b", "a|^b", "[[a]]", "(?<n>a)", r"\Qa\E"]
)
def test_a_pattern_of_javas_own_is_refused(pattern: str) -> None:
    with pytest.raises(NotCompilable):
        rlike(pattern)


def test_a_dot_is_not_a_line_end_of_java() -> None:
    assert rlike(".") == r"[^\n\r\x{85}\x{2028}\x{2029}]"
