"""Queries: names, URIs, options, windows, hints and wildcard paths in them."""

import pytest
from sqlglot import exp

from millpond.sql import nodes
from millpond.sql.nodes import join_options, relation_options
from millpond.sql.parser import parse_script
from millpond.sql.spark import render
from millpond.sql.statements import CreateTable, OptionGroup, Select

# Words that are keywords somewhere and names here.
_WORDS = """
    status metrics properties timestamp key value type order_id left right date format index stream window user comment
    rows range first last name text time year month day hour minute second session level state source sink table_name
    count sum min max position action data file path version role uuid json array map struct interval percent offset
    filter partition replace row set view temp begin commit schema database function language options cube rollup
    tumbling sliding hopping changes watermark upsert explain show describe natural semi anti full some any
    string int bigint double binary boolean transform topic
"""
WORDS = _WORDS.split()

# Words that begin an operator, a clause or a literal stand as names only behind a dot or AS.
NOT_ALONE = {"interval", "any", "some", "natural", "semi", "anti", "full", "left", "right", "offset", "set"}


def query(text: str) -> exp.Query:
    script = parse_script(text, file="t.sql")
    assert [str(p) for p in script.problems] == []
    (statement,) = script.statements
    assert isinstance(statement, Select)
    return statement.query


def column_names(tree: exp.Expr) -> list[str]:
    return [column.name for column in tree.find_all(exp.Column)]


def options(group: OptionGroup) -> dict[str, str]:
    return {entry.name: entry.value for entry in group.entries}


@pytest.mark.parametrize("word", WORDS)
def test_a_common_word_is_a_column(word: str) -> None:
    found = query(f"SELECT t.{word}, 1 AS {word} FROM t WHERE t.{word} > 1 AND 2 < t.{word} ORDER BY t.{word}")
    assert column_names(found) == [word] * 4
    if word not in ("any", "some", "interval"):
        found = query(f"SELECT {word}, {word} + 1, sum({word}) FROM t WHERE {word} = 1 AND 2 > {word} GROUP BY {word}")
        assert column_names(found) == [word] * 6


@pytest.mark.parametrize("word", [w for w in WORDS if w not in NOT_ALONE])
def test_a_common_word_is_a_table_and_an_alias(word: str) -> None:
    found = query(f"SELECT * FROM {word} JOIN {word} AS b ON {word}.a = b.a")
    assert [table.name for table in found.find_all(exp.Table)] == [word, word]
    made = parse_script(f"CREATE TABLE {word} ({word} INT PRIMARY KEY)").statements[0]
    assert isinstance(made, CreateTable)
    assert (made.name.text, made.key[0].text) == (word, word)
    if word not in ("window", "tumbling"):
        assert query(f"SELECT 1 {word} FROM t {word} WHERE a = 1").find(exp.TableAlias) is not None


def test_a_name_keeps_its_case() -> None:
    found = query("SELECT Date, t.Left, `a B` FROM T")
    assert column_names(found) == ["Date", "Left", "a B"]


@pytest.mark.parametrize(
    ("text", "uri", "alias"),
    [
        ("SELECT * FROM file:///logs/*.json", "file:///logs/*.json", ""),
        ("SELECT * FROM kafka://Orders o", "kafka://Orders", "o"),
        ("SELECT * FROM 'kafka://a:9092,b:9092/orders' AS o", "kafka://a:9092,b:9092/orders", "o"),
        ("SELECT * FROM kafka_topic('orders') o", "kafka://orders", "o"),
        ("SELECT * FROM t JOIN s3://b/k/*.csv x ON t.a = x.a", "s3://b/k/*.csv", "x"),
        ("SELECT * FROM t, http://h/x.json?a=1&b=2 x", "http://h/x.json?a=1&b=2", "x"),
        ("SELECT (SELECT max(a) FROM clickhouse://h/db?table=t) FROM t", "clickhouse://h/db?table=t", ""),
        ("SELECT * FROM 'file:in.csv'", "file:in.csv", ""),
    ],
)
def test_a_uri_stands_where_a_relation_does(text: str, uri: str, alias: str) -> None:
    found = query(text).find(nodes.Uri)
    assert found is not None
    assert found.text_ == uri
    assert isinstance(found.parent, exp.Table)
    assert found.parent.alias == alias


def test_changes_of_a_table_stand_where_a_relation_does() -> None:
    found = query("SELECT * FROM CHANGES(by_tier) c").find(nodes.Changes)
    assert found is not None
    assert found.name == "by_tier"
    assert found.parent is not None
    assert found.parent.alias == "c"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM kafka://x WITH ('a' = 'b') t WHERE 1 = 1",
        "SELECT * FROM kafka://x t WITH ('a' = 'b') WHERE 1 = 1",
        "SELECT * FROM kafka://x AS t WITH ('A' = \"b\") JOIN u ON u.a = t.a",
        "SELECT * FROM u JOIN kafka://x WITH ('a' = 'b') t ON t.a = u.a",
        "SELECT * FROM u WHERE EXISTS (SELECT 1 FROM kafka://x WITH (a = 'b') t)",
    ],
)
def test_options_behind_a_relation_are_its_own(text: str) -> None:
    table = next(t for t in query(text).find_all(exp.Table) if isinstance(t.this, nodes.Uri))
    assert table.alias in ("t", "")
    assert options(relation_options(table)) == {"a": "b"}
    assert not relation_options(table).at_end


def test_options_behind_on_are_the_joins() -> None:
    found = query("SELECT * FROM a JOIN b ON a.x = b.x WITH ('on.missing' = 'skip') JOIN c USING (x) WITH ('p' = '1')")
    first, second = found.args["joins"]
    assert options(join_options(first)) == {"on.missing": "skip"}
    assert options(join_options(second)) == {"p": "1"}
    assert (join_options(first).at_end, join_options(second).at_end) == (False, True)


def test_options_at_the_end_are_the_statements() -> None:
    (statement,) = parse_script("SELECT * FROM a WHERE x = 1 WITH ('a.b' = 'c', 'n' = 5, 'yes' = TRUE)").statements
    assert isinstance(statement, Select)
    assert options(statement.options) == {"a.b": "c", "n": "5", "yes": "TRUE"}
    assert statement.options.at_end


def test_options_right_behind_the_last_relation_are_its_own_and_at_the_end() -> None:
    (statement,) = parse_script("SELECT * FROM kafka://x WITH ('a' = 'b')").statements
    assert isinstance(statement, Select)
    (table,) = statement.query.find_all(exp.Table)
    assert relation_options(table).at_end
    assert statement.options.entries == ()


def test_an_option_knows_where_it_stands() -> None:
    (table,) = query("SELECT *\nFROM kafka://x WITH ('a' = 'bcd')").find_all(exp.Table)
    (entry,) = relation_options(table).entries
    assert (str(entry.place), entry.place.length) == ("t.sql:2:22", 3)
    assert (str(entry.value_place), entry.value_place.length) == ("t.sql:2:28", 5)


MINUTE = 60_000_000


@pytest.mark.parametrize(
    ("clause", "kind", "column", "size_us", "slide_us"),
    [
        ("GROUP BY a, TUMBLING(ts, INTERVAL 1 MINUTE)", "TUMBLING", "ts", MINUTE, None),
        ("GROUP BY TUMBLING(t.ts, INTERVAL '1' MINUTE), a", "TUMBLING", "t.ts", MINUTE, None),
        ("GROUP BY a, tumbling(ts, '1m')", "TUMBLING", "ts", MINUTE, None),
        ("GROUP BY a, SLIDING(ts, INTERVAL 5 MINUTES, INTERVAL 1 MINUTE)", "SLIDING", "ts", 5 * MINUTE, MINUTE),
        ("GROUP BY a, HOPPING(ts, 5m, 60s)", "SLIDING", "ts", 5 * MINUTE, MINUTE),
        ("GROUP BY a, SESSION(ts, INTERVAL 30 SECONDS) HAVING a > 1", "SESSION", "ts", MINUTE // 2, None),
        ("GROUP BY a WINDOW TUMBLING(1m)", "TUMBLING", None, MINUTE, None),
        ("GROUP BY a WINDOW TUMBLING(1 minute) HAVING a > 1", "TUMBLING", None, MINUTE, None),
        ("GROUP BY a HAVING a > 1 WINDOW TUMBLING(INTERVAL 1 MINUTE)", "TUMBLING", None, MINUTE, None),
        ("WHERE a > 1 WINDOW SLIDING(5m, 1m)", "SLIDING", None, 5 * MINUTE, MINUTE),
        ("WINDOW SESSION('30s')", "SESSION", None, MINUTE // 2, None),
        ("WINDOW SESSION(30s) ORDER BY a", "SESSION", None, MINUTE // 2, None),
        ("WINDOW /* of */ SESSION(30 /* half */ s)", "SESSION", None, MINUTE // 2, None),
    ],
)
def test_a_stream_window_is_a_member_of_group_by(
    clause: str, kind: str, column: str | None, size_us: int, slide_us: int | None
) -> None:
    found = query(f"SELECT count(*) FROM trades t {clause}")
    windows = [e for e in found.args["group"].expressions if isinstance(e, nodes.Window)]
    (window,) = windows
    assert (window.args["kind"], window.args["size_us"], window.args.get("slide_us")) == (kind, size_us, slide_us)
    written = window.args.get("column")
    assert (written.sql() if written else None) == column


def test_a_named_window_is_still_one() -> None:
    found = query("SELECT sum(x) OVER w FROM t WINDOW w AS (PARTITION BY a ORDER BY b), v AS (ORDER BY c)")
    assert len(found.args["windows"]) == 2
    assert found.args.get("group") is None


def test_hints_survive() -> None:
    hint = query("SELECT /*+ LOOKUP(u), SNAPSHOT(s, t) BROADCAST(x) */ * FROM u").args["hint"]
    assert [(h.name, [a.name for a in h.expressions]) for h in hint.expressions] == [
        ("LOOKUP", ["u"]),
        ("SNAPSHOT", ["s", "t"]),
        ("BROADCAST", ["x"]),
    ]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("positions.*.shares", ["*", "shares"]),
        ("portfolio.**.price", ["**", "price"]),
        ("orders[*].amount", ["[*]", "amount"]),
        ("t.orders[0].items[*].id", ["orders", "[0]", "items", "[*]", "id"]),
        ("a.*.*.b", ["*", "*", "b"]),
    ],
)
def test_a_wildcard_path_is_one_node(text: str, steps: list[str]) -> None:
    found = query(f"SELECT {text}, SUM({text}) FROM t WHERE {text} > 3")
    paths = list(found.find_all(nodes.Path))
    assert len(paths) == 3
    for path in paths:
        assert [step.name for step in path.args["steps"]] == steps
        assert render(path) == text


@pytest.mark.parametrize("text", ["t.*", "orders[0].id", "a.b.c", "a.b * c", "count(t.*)", "m['x']"])
def test_what_has_no_wildcard_step_is_no_path(text: str) -> None:
    assert query(f"SELECT {text} FROM t").find(nodes.Path) is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t WHERE x > ANY (SELECT y FROM u) AND a = SOME (SELECT 2) AND b <= ALL (SELECT 3)",
        "SELECT * FROM t LATERAL VIEW explode(xs) e AS x LATERAL VIEW OUTER posexplode(ys) f AS i, y WHERE x > 1",
        "SELECT * FROM t, LATERAL (SELECT 1) s",
        "WITH a AS (SELECT 1 AS x), b(y) AS (SELECT * FROM a) SELECT * FROM b UNION ALL SELECT * FROM a LIMIT 3",
        "SELECT a FROM t UNION SELECT b FROM u EXCEPT SELECT c FROM v INTERSECT ALL SELECT d FROM w",
        "SELECT a FROM (SELECT * FROM t) s JOIN (u JOIN v ON u.a = v.a) ON s.a = u.a",
        "SELECT * FROM a NATURAL JOIN b LEFT SEMI JOIN c ON a.x = c.x LEFT ANTI JOIN d USING (x) CROSS JOIN e",
        "SELECT a, grouping(a) FROM t GROUP BY ROLLUP (a, b), CUBE (c) HAVING count(*) > 1",
        "SELECT a FROM t GROUP BY GROUPING SETS ((a), (a, b), ())",
        "SELECT a FROM t GROUP BY ALL ORDER BY ALL",
        "SELECT a FROM t ORDER BY a DESC NULLS LAST, b ASC NULLS FIRST LIMIT 10 OFFSET 5",
        "SELECT a FROM t DISTRIBUTE BY a SORT BY b",
        "SELECT * FROM t TABLESAMPLE (10 PERCENT) s",
        "SELECT * FROM (SELECT a, b FROM t) PIVOT (SUM(a) FOR b IN (1, 2))",
        "SELECT * EXCEPT (a) FROM t",
        "SELECT transform(xs, x -> x + 1), aggregate(xs, 0, (a, b) -> a + b) FROM t",
        "SELECT CASE a WHEN 1 THEN 'x' ELSE 'y' END, CASE WHEN a THEN 1 END FROM t",
        "SELECT a::int, CAST(a AS STRUCT<x: INT, y: ARRAY<STRING>>), TRY_CAST(a AS MAP<STRING, INT>) FROM t",
        "SELECT * FROM t WHERE (a, b) IN (SELECT x, y FROM u) AND NOT EXISTS (SELECT 1 FROM v WHERE v.a = t.a)",
        "SELECT DISTINCT a, count(DISTINCT b), count(*) FILTER (WHERE a > 1) FROM t GROUP BY a",
        "SELECT row_number() OVER (PARTITION BY a ORDER BY b ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
        "SELECT a FROM t WHERE s LIKE 'a!%' ESCAPE '!' AND s NOT ILIKE 'y' AND s RLIKE 'z' AND x IS DISTINCT FROM y",
        "SELECT a FROM t WHERE ts > TIMESTAMP '2024-01-01 00:00:00' - INTERVAL '1' DAY AND d = DATE '2024-01-01'",
        "FROM t SELECT a",
        "TABLE t",
    ],
)
def test_spark_sql_parses(text: str) -> None:
    query(text)


def test_every_node_survives_a_copy() -> None:
    found = query("SELECT p.*.x FROM kafka://x WITH ('a' = 'b') t GROUP BY TUMBLING(ts, 1m)")
    assert found.copy() == found
    assert options(relation_options(next(found.copy().find_all(exp.Table)))) == {"a": "b"}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT a FROM t WHERE a = b",
        "SELECT a FROM t GROUP BY a",
        "SELECT a FROM t GROUP BY a WITH ROLLUP",
        "SELECT count(*) FROM t WINDOW TUMBLING(2d)",
        "SELECT a FROM t HAVING a > 1",
        "SELECT a FROM t ORDER BY a LIMIT 5 OFFSET 1",
        "SELECT a FROM (SELECT 1 AS a) s",
        "SELECT a FROM t LATERAL VIEW explode(x) e AS y",
        "SELECT a FROM t UNION ALL SELECT b FROM u WHERE z",
        "(SELECT a FROM t)",
    ],
)
def test_options_may_end_a_query_behind_any_clause(text: str) -> None:
    script = parse_script(f"{text} WITH ('p' = 'q')")
    assert script.problems == ()
    (statement,) = script.statements
    assert isinstance(statement, Select)
    assert options(statement.options) == {"p": "q"}
    assert statement.options.at_end
