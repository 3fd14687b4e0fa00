"""Any text at all: problems with places, never a crash."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.sql.parser import parse_script

PIECES = """
    SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT JOIN LEFT ON USING AS WITH VALUES INSERT INTO UPDATE SET DELETE CREATE
    TABLE STREAM INDEX PRIMARY KEY DEFAULT NOT NULL AND OR IN LIKE BETWEEN CASE WHEN THEN ELSE END EXISTS ANY ALL CAST
    UNION WINDOW TUMBLING OVER PARTITION LATERAL VIEW INTERVAL DATE WATERMARK FOR SHOW DESCRIBE EXPLAIN BEGIN COMMIT
    UPSERT DROP IF PIVOT DISTINCT ROLLUP FILTER IS a b t 1 1.5 30s 'x' "y" `z` ( ) [ ] { } , ; . * ** + - / % = <> <=>
    -> => :: : ? ! ~ | || & ^ @ # $ ${X} ${ ${Y:-1} kafka://x file:///a/*.b -- /* */ /*+ x DECIMAL(1,2) ARRAY<INT> ' " `
"""

SOUP = st.lists(st.sampled_from(PIECES.split()), max_size=14).map(" ".join)


def check(text: str) -> None:
    script = parse_script(text, file="soup.sql", variables={"X": "1"})
    for problem in script.problems:
        assert problem.place is not None
        assert 1 <= problem.place.line <= text.count("\n") + 1
        assert "<Token" not in problem.message
        assert "\x1b" not in str(problem)


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SOUP)
def test_a_soup_of_words_never_crashes(text: str) -> None:
    check(text)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60))
def test_arbitrary_characters_never_crash(text: str) -> None:
    check(text)


def test_a_statement_nested_too_deeply_is_a_problem() -> None:
    (problem,) = parse_script("SELECT " + "(" * 3000 + "1" + ")" * 3000).problems
    assert (problem.code, problem.message) == ("MP101", "This statement is nested too deeply.")
