"""Variables: where they are replaced, and what a missing one says."""

import pytest

from millpond.sql.parser import parse_script
from millpond.sql.spark import render
from millpond.sql.statements import CreateStream, Select
from millpond.sql.text import variable_at

VALUES = {"N": "5", "WORD": "it's", "HOST": "kafka-1:9092", "URI": "kafka://h/t", "TAIL": "b, c", "COLS": "a, b"}


def query_of(text: str) -> str:
    script = parse_script(text, variables=VALUES)
    assert script.problems == ()
    statement = script.statements[0]
    assert isinstance(statement, Select)
    return render(statement.query)


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("SELECT ${N} FROM t", "SELECT 5 FROM t"),
        ("SELECT ${COLS} FROM t", "SELECT a, b FROM t"),
        ("SELECT '${WORD}' FROM t", r"SELECT 'it\'s' FROM t"),
        ("SELECT 'a ${N} b' FROM t", "SELECT 'a 5 b' FROM t"),
        ("SELECT `x ${N}` FROM t", "SELECT `x 5` FROM t"),
        ('SELECT "x ${N}" FROM t', "SELECT `x 5` FROM t"),
        ("SELECT * FROM kafka://${HOST}/t", "SELECT * FROM 'kafka://kafka-1:9092/t'"),
        ("SELECT * FROM kafka://${MISSING:-localhost}/t", "SELECT * FROM 'kafka://localhost/t'"),
        ("SELECT * FROM kafka://h/${TAIL}", "SELECT * FROM 'kafka://h/b, c'"),
        ("SELECT * FROM ${URI}", "SELECT * FROM 'kafka://h/t'"),
        ("SELECT * FROM ${URI}/more", "SELECT * FROM 'kafka://h/t/more'"),
        ("SELECT * FROM '${URI}'", "SELECT * FROM 'kafka://h/t'"),
        ("SELECT ${MISSING:-7}, '${MISSING:-a b}', '${MISSING:-}' FROM t", "SELECT 7, 'a b', '' FROM t"),
        (r"SELECT '\${N}' FROM t", "SELECT '${N}' FROM t"),
        ("SELECT '$N', '${', '${1}' FROM t", "SELECT '$N', '${', '${1}' FROM t"),
        ("SELECT 1 -- ${MISSING}\n, 2 /* ${MISSING} */ FROM t", "SELECT 1, 2 FROM t"),
    ],
)
def test_a_variable_is_replaced_where_it_stands(text: str, rendered: str) -> None:
    assert query_of(text) == rendered


def test_a_value_is_not_searched_for_variables() -> None:
    script = parse_script("SELECT '${A}'", variables={"A": "${B}", "B": "no"})
    assert isinstance(script.statements[0], Select)
    assert render(script.statements[0].query) == "SELECT '${B}'"


@pytest.mark.parametrize(
    ("text", "line", "column", "length"),
    [
        ("SELECT ${GONE} FROM t", 1, 8, 7),
        ("SELECT 'ab${GONE}' FROM t", 1, 11, 7),
        ("SELECT 1;\nSELECT * FROM kafka://${GONE}/t", 2, 23, 7),
    ],
)
def test_a_missing_variable_is_an_error_at_its_place(text: str, line: int, column: int, length: int) -> None:
    (problem,) = parse_script(text, file="a.sql").problems
    assert (problem.code, problem.message) == ("MP104", "Variable 'GONE' has no value.")
    assert problem.place is not None
    assert (problem.place.line, problem.place.column, problem.place.length) == (line, column, length)
    assert "--set GONE=" in problem.hint


def test_a_dollar_brace_in_code_that_is_no_variable_is_an_error() -> None:
    (problem,) = parse_script("SELECT ${ } FROM t").problems
    assert (problem.code, problem.message) == ("MP104", "'${' does not start a variable.")


def test_places_behind_a_variable_point_into_the_text_as_written() -> None:
    text = "SELECT ${COLS}, ${N} FROM t extra words"
    (problem,) = parse_script(text, variables=VALUES).problems
    assert problem.place is not None
    assert text[problem.place.column - 1 :] == "words"


def test_what_a_variable_holds_is_placed_at_the_variable() -> None:
    script = parse_script("CREATE STREAM s FROM ${URI}", variables=VALUES)
    assert isinstance(script.statements[0], CreateStream)
    source = script.statements[0].source
    assert source is not None
    assert (source.uri, source.place.column, source.place.length) == ("kafka://h/t", 22, 6)


def test_a_reference_knows_its_ends() -> None:
    found = variable_at("a ${B:-c} d", 2, {})
    assert found is not None
    assert (found.name, found.start, found.end, found.value) == ("B", 2, 9, "c")
    assert variable_at("a $B d", 2, {}) is None
