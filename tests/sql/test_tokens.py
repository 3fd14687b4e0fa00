"""Lexing: URIs, comments, quotes, hints, and what is never closed."""

import pytest

from millpond.sql.dialect import MILLPOND
from millpond.sql.parser import parse_script
from millpond.sql.tokens import URI, lex


def words(text: str) -> list[str]:
    return [token.text for token in lex(text, "t.sql", {}, MILLPOND.tokenizer()).tokens]


def uris(text: str) -> list[str]:
    return [t.text for t in lex(text, "t.sql", {}, MILLPOND.tokenizer()).tokens if t.token_type == URI]


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("FROM file:///logs/*.json WHERE", "file:///logs/*.json"),
        ("FROM kafka://a--b t", "kafka://a--b"),
        ("FROM kafka://Orders;", "kafka://Orders"),
        ("(SELECT * FROM kafka://x)", "kafka://x"),
        ("FROM kafka://x,y", "kafka://x"),
        ("f[kafka://x]", "kafka://x"),
        ("FROM kafka://x\n-- comment", "kafka://x"),
        ("FROM file://./in.csv", "file://./in.csv"),
        ("FROM file:///a/**/b.json /* c */", "file:///a/**/b.json"),
        ('FROM postgresql://h/db?query="SELECT a, b FROM t" p', 'postgresql://h/db?query="SELECT a, b FROM t"'),
        (r'FROM sql://h?query="a = \"b c\"" p', r'sql://h?query="a = \"b c\""'),
        ("FROM generate://?rows=10&rate=5 g", "generate://?rows=10&rate=5"),
        ("FROM s3+http://b/k", "s3+http://b/k"),
        ("FROM mysql://u:p%40ss@h:3306/db?table=t&x='y'", "mysql://u:p%40ss@h:3306/db?table=t&x='y'"),
    ],
)
def test_a_bare_uri_is_one_token(text: str, uri: str) -> None:
    assert uris(text) == [uri]


@pytest.mark.parametrize("text", ["a : //b", "'kafka://x'", "-- kafka://x", "/* kafka://x */", "a / / b", "1://x"])
def test_what_only_looks_like_a_uri_is_none(text: str) -> None:
    assert uris(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GROUP /* x */ BY a", ["GROUP BY", "a"]),
        ("PRIMARY -- k\n KEY", ["PRIMARY KEY"]),
        ("a -- b\n+ c", ["a", "+", "c"]),
        ("a /* /* nested */ still */ b", ["a", "b"]),
        ("a/**/b", ["a", "b"]),
        ("'-- no comment' '/* nor this */'", ["-- no comment", "/* nor this */"]),
        ("SELECT /*+ LOOKUP(u) */ a", ["SELECT", "/*+", "LOOKUP", "(", "u", ")", "*/", "a"]),
        ("'it''s' 'it\\'s' \"x\"\"y\" `a``b`", ["it's", "it's", 'x"y', "a`b"]),
        (r"r'\d' R'\n' '\n'", [r"\d", r"\n", "\n"]),
        ("Date Left STATUS", ["Date", "Left", "STATUS"]),
        ("a-b a.b", ["a", "-", "b", "a", ".", "b"]),
    ],
)
def test_the_tokens_of_a_text(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "what", "column"),
    [
        ("SELECT 'abc FROM t", "quote", 8),
        ('SELECT "abc FROM t', "quote", 8),
        ("SELECT `abc FROM t", "name", 8),
        ("SELECT a /* b", "comment", 10),
        ("SELECT /*+ LOOKUP(u) * FROM t", "comment", 8),
        ('SELECT * FROM sql://h?query="a b', "quote", 29),
    ],
)
def test_what_is_never_closed_is_reported_where_it_opened(text: str, what: str, column: int) -> None:
    (problem,) = parse_script(text).problems
    assert (problem.code, problem.message) == ("MP103", f"This {what} is never closed.")
    assert problem.place is not None
    assert problem.place.column == column


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("SELECT (a FROM t", "'(' is never closed.", 8),
        ("SELECT a[1 FROM t", "'[' is never closed.", 9),
        ("SELECT f(a] FROM t", "'(' is never closed.", 9),
        ("SELECT a) FROM t", "')' has no opening bracket.", 9),
        ("SELECT f(g(a) FROM t", "'(' is never closed.", 9),
    ],
)
def test_a_bracket_without_partner_is_reported(text: str, message: str, column: int) -> None:
    (problem,) = parse_script(text).problems
    assert (problem.code, problem.message) == ("MP103", message)
    assert problem.place is not None
    assert problem.place.column == column


def test_an_unclosed_bracket_does_not_reach_into_the_next_statement() -> None:
    script = parse_script("SELECT (a FROM t; SELECT 1; SELECT b) FROM t")
    assert [p.code for p in script.problems] == ["MP103", "MP103"]
    assert len(script.statements) == 1


def test_comments_leave_the_places_of_what_follows() -> None:
    text = "SELECT a /* one\ntwo */ FROM t -- three\n  oops wrong"
    (problem,) = parse_script(text).problems
    assert problem.place is not None
    assert (problem.place.line, problem.place.column) == (3, 8)


def test_windows_line_ends_count_once() -> None:
    (problem,) = parse_script("SELECT a\r\nFROM t\r\noops wrong").problems
    assert problem.place is not None
    assert (problem.place.line, problem.place.column, problem.place.excerpt) == (3, 6, "oops wrong")
