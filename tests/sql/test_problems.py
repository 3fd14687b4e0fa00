"""Invalid SQL: each mistake is reported once, in order, with code, place and hint."""

import pytest

from millpond.sql.parser import parse_script

AFTER_THE_END = "after the end of the statement."

# text, code, place (line:column), message, a part of the hint
MISTAKES = [
    ("SELCT a FROM t", "MP109", "1:1", "No statement begins with 'SELCT'.", "Did you mean SELECT?"),
    ("FOO BAR", "MP109", "1:1", "No statement begins with 'FOO'.", "Statements begin with CREATE"),
    ("'SELECT' 1", "MP109", "1:1", "No statement begins with the text 'SELECT'.", ""),
    ("ALTER TABLE t ADD COLUMN x INT", "MP109", "1:1", "ALTER is not supported.", ""),
    (
        "MERGE INTO t USING s ON a = b",
        "MP101",
        "1:29",
        "Expected 'WHEN' after 'b', but the statement ends.",
        "WHEN MATCHED THEN",
    ),
    ("EXPLAIN FOO", "MP109", "1:9", "No statement begins with 'FOO'.", ""),
    (
        "CREATE MATERIALIZED VIEW v AS SELECT 1",
        "MP109",
        "1:1",
        "CREATE MATERIALIZED VIEW is not supported.",
        "CREATE TABLE name AS",
    ),
    ("SELECT a FROM t WHER x = 1", "MP102", "1:22", f"Unexpected 'x' {AFTER_THE_END}", "WHERE"),
    ("SELECT * FROM t GRUOP BY x", "MP102", "1:23", f"Unexpected 'BY' {AFTER_THE_END}", "GROUP BY"),
    ("SELECT b FRO u", "MP102", "1:14", f"Unexpected 'u' {AFTER_THE_END}", "FROM"),
    ("SELECT a b c FROM t", "MP102", "1:12", f"Unexpected 'c' {AFTER_THE_END}", ""),
    ("DROP TABLE a b", "MP102", "1:14", f"Unexpected 'b' {AFTER_THE_END}", ""),
    ("UPDATE t SET a = 1 WHERE b = 2 extra", "MP102", "1:32", f"Unexpected 'extra' {AFTER_THE_END}", ""),
    ("SET a = 'b' c", "MP102", "1:13", f"Unexpected 'c' {AFTER_THE_END}", ""),
    ("BEGIN FOO", "MP102", "1:7", f"Unexpected 'FOO' {AFTER_THE_END}", ""),
    ("SELECT a INTO x FROM t", "MP102", "1:10", f"Unexpected 'INTO' {AFTER_THE_END}", ""),
    ("SELECT * FROM t FOR UPDATE", "MP102", "1:17", f"Unexpected 'FOR' {AFTER_THE_END}", ""),
    ("SELECT a -> b FROM t", "MP102", "1:10", f"Unexpected '->' {AFTER_THE_END}", ""),
    ("CREATE TABLE t (a INT) WITH ('x' = 'y') foo", "MP102", "1:41", f"Unexpected 'foo' {AFTER_THE_END}", ""),
    ("SELECT FROM t", "MP101", "1:8", "Expected a column or an expression, found 'FROM'.", ""),
    ("SELECT a, FROM t", "MP101", "1:11", "Expected something after the comma, found 'FROM'.", ""),
    ("SELECT f(a, ) FROM t", "MP101", "1:13", "Expected something after the comma, found ')'.", ""),
    ("SELECT a FROM", "MP101", "1:10", "Expected a table name after 'FROM', but the statement ends.", ""),
    ("SELECT a FROM t, WHERE x = 1", "MP101", "1:18", "Expected a table name, found 'WHERE'.", ""),
    ("SELECT a FROM t JOIN", "MP101", "1:17", "Expected a table name after 'JOIN', but the statement ends.", ""),
    ("SELECT a FROM t JOIN u ON", "MP101", "1:24", "Expected a condition after 'ON', but the statement ends.", ""),
    (
        "SELECT a FROM t GROUP BY",
        "MP101",
        "1:17",
        "Expected a column or an expression after 'GROUP BY', but the statement ends.",
        "",
    ),
    (
        "SELECT a FROM t GROUP BY a WHERE x = 1",
        "MP101",
        "1:28",
        "'WHERE' is in the wrong position.",
        "The order of clauses is WHERE, GROUP BY",
    ),
    (
        "SELECT a FROM t WHERE a = 1 JOIN u ON x = y",
        "MP101",
        "1:29",
        "'JOIN' is in the wrong position.",
        "before WHERE",
    ),
    ("SELECT a FROM t WHERE a = 1 WHERE b = 2", "MP101", "1:29", "'WHERE' is not allowed here.", ""),
    ("SELECT 1 AS", "MP101", "1:10", "Expected a name after 'AS', but the statement ends.", ""),
    ("SELECT * FROM t AS WHERE a = 1", "MP101", "1:20", "Expected a name, found 'WHERE'.", ""),
    (
        "SELECT a FROM t WHERE a IN ()",
        "MP101",
        "1:28",
        "Expected a list or a query in brackets, found '('.",
        "x IN (1, 2)",
    ),
    ("SELECT CASE WHEN a THEN 1 FROM t", "MP101", "1:27", "Expected 'END', found 'FROM'.", ""),
    ("SELECT CAST(a AS FOO) FROM t", "MP108", "1:18", "'FOO' is not a type.", ""),
    ("WITH x AS (SELECT 1)", "MP101", "1:20", "Expected a query after ')', but the statement ends.", ""),
    ("CREATE", "MP101", "1:1", "Expected STREAM, TABLE, VIEW or INDEX after 'CREATE', but the statement ends.", ""),
    ("CREATE TABLE t (a INTT)", "MP108", "1:19", "'INTT' is not a type.", "Did you mean 'INT'?"),
    ("CREATE TABLE t (a INT8)", "MP108", "1:19", "'INT8' is not a type.", "Use BIGINT."),
    ("CREATE TABLE t (a)", "MP108", "1:18", "Column 'a' has no type.", "a STRING"),
    ("CREATE TABLE t (a DECIMAL(50,2))", "MP108", "1:26", "DECIMAL(50,2) is not a valid type.", "1 to 38"),
    (
        "CREATE TABLE t (a INT, PRIMARY KEY (a), PRIMARY KEY (a))",
        "MP208",
        "1:41",
        "A table has only one PRIMARY KEY, but this is the second.",
        "",
    ),
    ("CREATE TABLE t", "MP101", "1:14", "Expected ( or AS after 't', but the statement ends.", "CREATE TABLE name"),
    ("CREATE TABLE t (a INT) AS SELECT 1", "MP101", "1:27", "CREATE TABLE ... AS must not declare columns.", "CAST"),
    ("CREATE STREAM s (a INT PRIMARY KEY) FROM kafka://x", "MP101", "1:24", "PRIMARY KEY is only for tables.", ""),
    ("CREATE TABLE t (ts TIMESTAMP, WATERMARK FOR ts AS ts)", "MP101", "1:31", "WATERMARK is only for streams.", ""),
    ("CREATE STREAM s FROM orders", "MP101", "1:22", "Expected a URI, found 'orders'.", "kafka://"),
    (
        "CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts AS tz) FROM kafka://x",
        "MP101",
        "1:52",
        "The watermark for 'ts' must be computed from 'ts'.",
        "",
    ),
    (
        "CREATE STREAM s (t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL 5 EONS) FROM kafka://x",
        "MP106",
        "1:63",
        "'5 EONS' is not a duration.",
        "500ms",
    ),
    ("INSERT t VALUES (1)", "MP101", "1:8", "Expected 'INTO', found 't'.", ""),
    ("INSERT INTO t VALUES (1, )", "MP101", "1:26", "Expected an expression, found ')'.", ""),
    ("INSERT OVERWRITE t SELECT 1", "MP101", "1:8", "INSERT OVERWRITE is not supported.", "INSERT INTO"),
    ("UPDATE t SET u.a = 1", "MP202", "1:14", "Only columns of 't' can be set here.", ""),
    ("DELETE t WHERE a = 1", "MP101", "1:8", "Expected 'FROM', found 't'.", ""),
    ("UPSERT INTO kafka://x VALUES (1)", "MP101", "1:13", "UPSERT changes a table, not a sink.", "INSERT INTO"),
    ("SHOW TABLE", "MP101", "1:6", "SHOW TABLE does not exist.", "Did you mean 'TABLES'?"),
    ("SHOW OPTIONS", "MP101", "1:6", "Expected 'FOR' after 'OPTIONS', but the statement ends.", ""),
    ("SELECT * FROM 'orders'", "MP105", "1:15", "'orders' is not a URI.", "without quotes"),
    (
        "SELECT * FROM kafka_topic(x)",
        "MP101",
        "1:27",
        "The argument of kafka_topic must be the name of a topic in quotes.",
        "",
    ),
    ("SELECT * FROM kafka://x WITH ('a')", "MP101", "1:34", "Expected '=', found ')'.", "Write 'a' = 'value'."),
    ("SELECT * FROM kafka://x WITH (a = b)", "MP101", "1:35", "Expected an option's value in quotes, found '***'.", ""),
    ("SELECT * FROM kafka://x WITH ()", "MP101", "1:30", "WITH () contains no option.", ""),
    (
        "SELECT * FROM kafka://x WITH ('a' = 'b') t WITH ('c' = 'd')",
        "MP101",
        "1:44",
        "A relation has only one WITH (...), but this is the second.",
        "",
    ),
    ("SELECT count(*) FROM t GROUP BY TUMBLING(ts, 5 parsecs)", "MP106", "1:46", "'5 parsecs' is not a duration.", ""),
    ("SELECT count(*) FROM t GROUP BY SLIDING(ts, 5m)", "MP101", "1:47", "Expected ',', found ')'.", "Write SLIDING("),
    (
        "SELECT count(*) FROM t WINDOW TUMBLING(0s)",
        "MP106",
        "1:40",
        "The length of a window must be longer than zero.",
        "",
    ),
]


@pytest.mark.parametrize(("text", "code", "place", "message", "hint"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_reported_with_code_place_and_hint(
    text: str, code: str, place: str, message: str, hint: str
) -> None:
    (problem,) = parse_script(text, file="bad.sql").problems
    assert (problem.code, str(problem.place), problem.message) == (code, f"bad.sql:{place}", message)
    assert hint in problem.hint


def test_a_mistake_in_one_statement_hides_none_in_the_next() -> None:
    text = ";\n".join(mistake[0] for mistake in MISTAKES)
    script = parse_script(text)
    assert [p.code for p in script.problems] == [m[1] for m in MISTAKES]
    assert [p.place.line for p in script.problems if p.place] == list(range(1, len(MISTAKES) + 1))
    assert script.statements == ()


def test_right_statements_between_wrong_ones_are_read() -> None:
    script = parse_script("SELECT 1; SELCT 2; SELECT 3 FRM t x; SELECT ${X}; SELECT 'ok'")
    assert [p.code for p in script.problems] == ["MP109", "MP102", "MP104"]
    assert [s.text for s in script.statements] == ["select 1", "select 'ok'"]


def test_an_excerpt_points_with_a_caret_and_hides_secrets() -> None:
    (problem,) = parse_script("SELECT * FROM postgresql://bob:hunter2@h/db foo bar", file="a.sql").problems
    assert str(problem) == (
        "MP102 a.sql:1:49  Unexpected 'bar' after the end of the statement.\n"
        "    1 | SELECT * FROM postgresql://***********@h/db foo bar\n"
        "      |                                                 ^^^\n"
        "  hint: Remove it, or put a semicolon before it."
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT @x FROM t",
        "SELECT {x} FROM t",
        "SELECT :x FROM t",
        "SELECT a ~~ b FROM t",
        "SELECT a FROM t CONNECT BY a = b",
        "SELECT * FROM t PREWHERE a",
        "SELECT TOP 5 a FROM t",
        "SELECT a FROM t FETCH FIRST 5 ROWS ONLY",
        "PRAGMA x",
        "CALL f()",
        "SELECT DISTINCT ON (a) b FROM t",
    ],
)
def test_syntax_of_other_databases_is_rejected(text: str) -> None:
    assert parse_script(text).problems
