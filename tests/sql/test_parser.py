"""Statements: what each section of the surface says parses to what it means."""

from dataclasses import fields

import pyarrow as pa
import pytest
from sqlglot import exp

from millpond.errors import SqlError
from millpond.sql import nodes, statements
from millpond.sql.parser import parse_expression, parse_script
from millpond.sql.spark import render
from millpond.sql.statements import (
    Begin,
    Commit,
    CreateIndex,
    CreateStream,
    CreateTable,
    Delete,
    Describe,
    Drop,
    Explain,
    Insert,
    Name,
    Rollback,
    Select,
    SetOption,
    Show,
    SourceRef,
    Statement,
    Update,
    Upsert,
)

# Every example of the surface, as written there.
EXAMPLES = """
CREATE STREAM trades (trade_id STRING, user_id STRING, quantity INT, price DECIMAL(12,2), ts TIMESTAMP,
                      WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)
  FROM 'kafka://localhost:9092/trades' WITH ('format' = 'json');
CREATE STREAM big AS SELECT * FROM trades WHERE quantity > 100;     -- a name for a query, copied nowhere
CREATE STREAM ticks AS SELECT concat('u', seq % 1000) AS user_id, CAST(seq % 100 AS DECIMAL(12,2)) AS price, ts
  FROM 'generate://?rows=1000000&rate=50000&seed=7';                 -- a generator yields seq BIGINT and ts TIMESTAMP
CREATE STREAM x FROM kafka://orders;
SELECT * FROM kafka_topic('orders');
CREATE TABLE users (user_id STRING PRIMARY KEY, name STRING, tier STRING NOT NULL DEFAULT 'BASIC', INDEX (tier))
  WITH ('backend' = 'memory');
CREATE TABLE positions (user_id STRING, symbol STRING, size BIGINT, PRIMARY KEY (user_id, symbol));
CREATE TABLE symbols PRIMARY KEY (symbol) AS SELECT * FROM file:///data/symbols.csv WITH ('watch' = 'true');
CREATE TABLE profiles PRIMARY KEY (user_id) AS SELECT * FROM kafka://profiles WITH ('key' = 'user_id');
CREATE TABLE totals AS SELECT user_id, COUNT(*) AS n, SUM(price * quantity) AS value FROM trades GROUP BY user_id;
CREATE TABLE by_tier AS SELECT u.tier, SUM(t.value) AS value FROM totals t JOIN users u ON u.user_id = t.user_id
  GROUP BY u.tier;
CREATE INDEX ON users (tier);      DROP TABLE IF EXISTS old;
CREATE TABLE limits AS SELECT * FROM postgresql://crm/limits WITH ('cdc' = 'true');
INSERT INTO users VALUES ('u1', 'Ann', 'GOLD'), ('u2', 'Bo', DEFAULT);
UPDATE users SET tier = 'PLATINUM', name = upper(name) WHERE user_id = 'u1';
DELETE FROM users WHERE tier = 'BASIC' AND name LIKE 'A%';
UPSERT INTO users VALUES ('u1', 'Ann', 'GOLD');
BEGIN; UPDATE accounts SET balance = balance - 10 WHERE id = 1;
UPDATE accounts SET balance = balance + 10 WHERE id = 2; COMMIT;
BEGIN TRANSACTION; BEGIN WORK; START TRANSACTION; ROLLBACK;
INSERT INTO users SELECT user_id, name, tier FROM kafka://profiles;
UPDATE users SET tier = u.tier, changes = users.changes + 1 FROM upgrades u WHERE users.user_id = u.user_id;
DELETE FROM users USING churn c WHERE users.user_id = c.user_id;
DELETE FROM users FROM churn c WHERE users.user_id = c.user_id;
CREATE OR REPLACE VIEW grown AS SELECT * FROM users WHERE age > 18;
MERGE INTO stock USING moves m ON stock.sku = m.sku WHEN MATCHED AND m.op = 'd' THEN DELETE WHEN MATCHED THEN UPDATE SET
left = stock.left + m.quantity WHEN NOT MATCHED AND m.op <> 'd' THEN INSERT (sku, left) VALUES (m.sku, m.quantity);
INSERT INTO stock (sku, left) SELECT sku, quantity FROM moves ON CONFLICT (sku) DO UPDATE SET left = excluded.left;
UPSERT INTO users (user_id, tier) SELECT user_id, tier FROM upgrades;
UPSERT INTO users SELECT user_id, name, tier FROM upgrades ON users.user_id = upgrades.user_id;
INSERT INTO users (user_id, name) SELECT user_id, name FROM upgrades;
BEGIN; INSERT INTO orders SELECT * FROM incoming;
UPDATE stock SET left = stock.left - i.quantity FROM incoming i WHERE stock.sku = i.sku; COMMIT;
INSERT INTO kafka://localhost:9092/enriched
SELECT t.*, u.tier, (SELECT max_limit FROM limits l WHERE l.user_id = t.user_id) AS max_limit
FROM trades t JOIN users u ON t.user_id = u.user_id LEFT JOIN symbols s ON t.symbol = s.symbol
WHERE t.quantity > ANY (SELECT size FROM positions p, symbols x WHERE p.symbol = x.symbol AND x.symbol = t.symbol)
  AND EXISTS (SELECT 1 FROM users x WHERE x.user_id = t.user_id AND x.tier IN ('GOLD', 'PLATINUM'));
INSERT INTO 'file://./out' WITH ('format' = 'jsonl') SELECT * FROM big;
SELECT * FROM big;
CREATE TABLE per_minute AS SELECT symbol, window_start, window_end, AVG(price) AS price FROM trades
  GROUP BY symbol, TUMBLING(ts, INTERVAL 1 MINUTE);
SELECT s.*, q.bid FROM sells s JOIN quotes q ON s.symbol = q.symbol
  AND q.ts BETWEEN s.ts - INTERVAL 5 SECONDS AND s.ts;
INSERT INTO kafka://tiers WITH ('key' = 'tier') SELECT * FROM CHANGES(by_tier);
SELECT /*+ LOOKUP(u) */ * FROM trades t JOIN users u USING (user_id);
SELECT /*+ SNAPSHOT(u) */ * FROM trades t JOIN users u USING (user_id);
SELECT * FROM t JOIN users u ON t.user_id = u.user_id WITH ('on.missing' = 'default', 'default.tier' = 'BASIC',
  'wait.timeout' = '10s', 'wait.max.rows' = '100000');
SHOW TABLES; SHOW ALL TABLES;
SHOW STREAMS; SHOW FLOWS; SHOW VIEWS; SHOW SOURCES; SHOW CONNECTORS; SHOW OPTIONS FOR kafka;
DESCRIBE users; DESCRIBE EXTENDED users; EXPLAIN SELECT * FROM users; SET connection.crm_db = 'postgresql://h/db';
SELECT * FROM postgresql://h/db?query="SELECT a, b FROM t";
SELECT * FROM 'kafka://a:9092,b:9092/orders';
SELECT * FROM 'file:in.csv'
"""


def parse(text: str) -> Statement:
    script = parse_script(text, file="t.sql")
    assert script.problems == ()
    (statement,) = script.statements
    return statement


def source_uri(statement: Insert) -> str:
    assert isinstance(statement.target, SourceRef)
    return statement.target.uri


def test_every_example_of_the_surface_parses() -> None:
    script = parse_script(EXAMPLES, file="surface.sql")
    assert [str(p) for p in script.problems] == []
    assert len(script.statements) == EXAMPLES.count(";") + 1


def test_every_kind_of_statement_is_among_the_examples() -> None:
    kinds = {s.__name__ for s in vars(statements).values() if isinstance(s, type) and issubclass(s, Statement)}
    found = {type(s).__name__ for s in parse_script(EXAMPLES).statements}
    assert found == kinds - {"Statement"}


def test_a_stream_with_columns_has_a_source_and_a_watermark() -> None:
    made = parse(
        "CREATE STREAM trades (id STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)"
        " FROM kafka://h/trades WITH ('format' = 'json')"
    )
    assert isinstance(made, CreateStream)
    assert made.columns is not None
    assert made.source is not None
    assert [(c.name.text, c.type) for c in made.columns] == [("id", pa.string()), ("ts", pa.timestamp("us", "UTC"))]
    assert made.watermark is not None
    assert (made.watermark.column.text, made.watermark.delay_us) == ("ts", 5_000_000)
    assert made.source.uri == "kafka://h/trades"
    assert [(e.name, e.value) for e in made.source.options.entries] == [("format", "json")]
    assert made.source.options.at_end
    assert made.options.entries == ()


def test_a_watermark_without_delay_waits_for_nothing() -> None:
    made = parse("CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts AS ts) FROM kafka://x")
    assert isinstance(made, CreateStream)
    assert made.watermark is not None
    assert made.watermark.delay_us == 0


def test_a_table_knows_its_key_defaults_and_indexes() -> None:
    made = parse(
        "CREATE OR REPLACE TABLE IF NOT EXISTS t (k STRING PRIMARY KEY, a INT NOT NULL DEFAULT -1,"
        ' b STRING DEFAULT upper(\'x\') NOT NULL, c INT NULL, INDEX (a, b), INDEX (c)) WITH ("Backend" = "memory")'
    )
    assert isinstance(made, CreateTable)
    assert made.columns is not None
    assert (made.or_replace, made.if_not_exists) == (True, True)
    assert [n.text for n in made.key] == ["k"]
    assert [[n.text for n in index] for index in made.indexes] == [["a", "b"], ["c"]]
    assert [c.nullable for c in made.columns] == [True, False, False, True]
    assert [c.default and render(c.default) for c in made.columns] == [None, "-1", "UPPER('x')", None]
    assert [(e.name, e.value) for e in made.options.entries] == [("backend", "memory")]


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, b))",
        "CREATE TABLE t PRIMARY KEY (a, b) AS SELECT 1 AS a, 2 AS b",
        "CREATE TABLE t (a INT, b INT) PRIMARY KEY (a, b)",
        "CREATE TABLE t (a INT, PRIMARY -- the\n KEY (a, /* both */ b), b INT)",
    ],
)
def test_a_key_may_stand_in_several_places(text: str) -> None:
    made = parse(text)
    assert isinstance(made, CreateTable)
    assert [n.text for n in made.key] == ["a", "b"]


def test_an_index_may_have_a_name() -> None:
    made = parse("CREATE INDEX IF NOT EXISTS by_tier ON users (tier, name)")
    assert isinstance(made, CreateIndex)
    assert made.name is not None
    assert (made.name.text, made.table.text, [c.text for c in made.columns]) == ("by_tier", "users", ["tier", "name"])
    assert made.if_not_exists


@pytest.mark.parametrize("kind", ["TABLE", "STREAM", "VIEW", "INDEX"])
def test_drop_knows_what_it_drops(kind: str) -> None:
    made = parse(f"DROP {kind} IF EXISTS x")
    assert isinstance(made, Drop)
    assert (made.kind, made.name.text, made.if_exists) == (kind, "x", True)


def test_rows_may_hold_default() -> None:
    made = parse("INSERT INTO t (a, b) VALUES (1, DEFAULT), (-2, 'x' || 'y')")
    assert isinstance(made, Insert)
    assert made.rows is not None
    assert made.columns is not None
    assert [c.text for c in made.columns] == ["a", "b"]
    assert [[render(v) for v in row] for row in made.rows] == [["1", "DEFAULT"], ["-2", "'x' || 'y'"]]
    assert isinstance(made.rows[0][1], nodes.Default)


def test_a_query_in_brackets_is_not_a_list_of_columns() -> None:
    made = parse("INSERT INTO t (SELECT a FROM b)")
    assert isinstance(made, Insert)
    assert made.columns is None
    assert made.query is not None


def test_an_insert_into_a_uri_takes_its_options_right_behind_it() -> None:
    made = parse("INSERT INTO kafka://h/out WITH ('key' = 'id') SELECT * FROM t WITH ('on.error' = 'stop')")
    assert isinstance(made, Insert)
    assert isinstance(made.target, SourceRef)
    assert made.query is not None
    assert source_uri(made) == "kafka://h/out"
    assert [e.name for e in made.target.options.entries] == ["key"]
    assert not made.target.options.at_end
    (table,) = made.query.find_all(exp.Table)
    assert [e.name for e in nodes.relation_options(table).entries] == ["on.error"]
    assert nodes.relation_options(table).at_end
    assert made.options.entries == ()


def test_a_common_table_expression_is_no_option() -> None:
    made = parse("INSERT INTO t WITH x AS (SELECT 1 AS a) SELECT * FROM x")
    assert isinstance(made, Insert)
    assert isinstance(made.target, Name)
    assert made.query is not None
    assert render(made.query) == "WITH x AS (SELECT 1 AS a) SELECT * FROM x"


def test_an_upsert_may_say_how_rows_match() -> None:
    made = parse("UPSERT INTO users SELECT a FROM upgrades ON users.a = upgrades.a")
    assert isinstance(made, Upsert)
    assert made.on is not None
    assert render(made.on) == "users.a = upgrades.a"


def test_an_update_has_an_alias_a_source_and_a_condition() -> None:
    made = parse(
        "UPDATE stock AS s SET left = s.left - i.quantity, s.note = DEFAULT"
        " FROM incoming i JOIN kafka://x k ON i.id = k.id WHERE s.sku = i.sku"
    )
    assert isinstance(made, Update)
    assert made.alias is not None
    assert made.source is not None
    assert made.where is not None
    assert (made.table.text, made.alias.text) == ("stock", "s")
    assert [a.column.text for a in made.assignments] == ["left", "note"]
    assert render(made.assignments[0].value) == "s.`left` - i.quantity"
    assert isinstance(made.assignments[1].value, nodes.Default)
    assert render(made.source) == "SELECT * FROM incoming AS i JOIN 'kafka://x' AS k ON i.id = k.id"
    assert render(made.where) == "s.sku = i.sku"


@pytest.mark.parametrize("word", ["USING", "FROM"])
def test_a_delete_names_its_source_with_using_or_from(word: str) -> None:
    made = parse(f"DELETE FROM users u {word} churn c, other o WHERE u.id = c.id")
    assert isinstance(made, Delete)
    assert made.alias is not None
    assert made.source is not None
    assert made.alias.text == "u"
    assert render(made.source) == "SELECT * FROM churn AS c CROSS JOIN other AS o"


def test_a_delete_may_have_neither_source_nor_condition() -> None:
    made = parse("DELETE FROM users")
    assert isinstance(made, Delete)
    assert (made.alias, made.source, made.where) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("BEGIN", Begin),
        ("BEGIN TRANSACTION", Begin),
        ("begin work", Begin),
        ("START TRANSACTION", Begin),
        ("COMMIT", Commit),
        ("COMMIT WORK", Commit),
        ("ROLLBACK", Rollback),
        ("ROLLBACK TRANSACTION", Rollback),
    ],
)
def test_transactions_are_bracketed_in_several_words(text: str, kind: type) -> None:
    assert type(parse(text)) is kind


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("SET a.b.c = 'x y'", "a.b.c", "x y"),
        ("SET table.wait.timeout = 10s", "table.wait.timeout", "10s"),
        ("SET a = 5 minutes", "a", "5 minutes"),
        ("SET a = true", "a", "true"),
        ("SET a = -1", "a", "-1"),
        ("SET connection.crm = postgresql://h/db", "connection.crm", "postgresql://h/db"),
        ("SET 'a.b' = \"c\"", "a.b", "c"),
    ],
)
def test_set_takes_quoted_and_bare_values(text: str, name: str, value: str) -> None:
    made = parse(text)
    assert isinstance(made, SetOption)
    assert (made.name.text, made.value) == (name, value)


def test_show_describe_and_explain_know_their_subject() -> None:
    shown, described, explained = (
        parse(t) for t in ("show options for kafka", "DESC EXTENDED t", "EXPLAIN UPDATE t SET a = 1")
    )
    assert isinstance(shown, Show)
    assert shown.subject is not None
    assert (shown.kind, shown.subject.text) == ("OPTIONS", "kafka")
    assert isinstance(described, Describe)
    assert (described.name.text, described.extended) == ("t", True)
    assert isinstance(explained, Explain)
    assert isinstance(explained.statement, Update)
    assert explained.statement.text == "update t set a = 1"


def test_a_table_may_be_called_extended() -> None:
    made = parse("DESCRIBE extended")
    assert isinstance(made, Describe)
    assert (made.name.text, made.extended) == ("extended", False)


def test_statements_differ_by_what_they_say_not_by_how_it_is_written() -> None:
    one = parse("INSERT  INTO Users -- who\n VALUES ('Ann', 1)").text
    two = parse("insert into users values('Ann',1)").text
    assert one == two == "insert into users values ( 'Ann' , 1 )"
    assert parse("INSERT INTO users VALUES ('ann', 1)").text != one
    assert parse("INSERT INTO `Users` VALUES ('Ann', 1)").text != one


def test_variables_are_part_of_what_a_statement_says() -> None:
    texts = {parse_script("SELECT '${A}', ${A}", variables={"A": a}).statements[0].text for a in ("1", "2")}
    assert texts == {"select '1' , 1", "select '2' , 2"}


def test_no_statement_shows_its_text_or_its_values() -> None:
    for text in ("SET a = 'hush'", "SELECT 1 WITH ('password' = 'hush')", "CREATE STREAM s FROM kafka://u:hush@h/t"):
        made = parse(text)
        assert {f.name for f in fields(made)} >= {"place", "text"}
        assert "hush" not in repr(made)


def test_a_statement_is_where_its_first_word_is() -> None:
    script = parse_script("SELECT 1;\n\n  -- note\n  DROP TABLE t", file="x.sql")
    assert [str(s.place) for s in script.statements] == ["x.sql:1:1", "x.sql:4:3"]


def test_empty_statements_are_none() -> None:
    assert parse_script("").statements == ()
    assert parse_script(" ;; -- nothing\n ; /* at all */").statements == ()
    assert len(parse_script(";SELECT 1;;SELECT 2;").statements) == 2


def test_a_condition_takes_placeholders() -> None:
    found = parse_expression("tier = ? AND name LIKE 'A%' OR age > ?")
    assert len(list(found.find_all(exp.Placeholder))) == 2


@pytest.mark.parametrize("name", ["DATEADD", "DATEDIFF", "DATE_ADD", "DATE_DIFF", "TIMESTAMPADD", "TIMESTAMPDIFF"])
def test_the_unit_of_a_function_of_time_is_no_column(name: str) -> None:
    found = parse_expression(f"{name}(minute, a, b)")
    assert found.sql(dialect="spark") == f"{name}(MINUTE, a, b)"
    assert [column.name for column in found.find_all(exp.Column)] == ["a", "b"]


@pytest.mark.parametrize("text", ["ARRAY(NULL, x)", "ARRAY(date, x)", "STRUCT(NULL, x)", "MAP(NULL, x)"])
def test_a_call_of_array_map_or_struct_may_begin_with_the_name_of_a_type(text: str) -> None:
    assert parse_expression(text).sql(dialect="spark") == text


@pytest.mark.parametrize("text", ["", "tier =", "tier = 'x' extra", "SELECT 1", "a, b", "(a", "'open"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_expression(text)
    assert caught.value.place is not None
    assert caught.value.place.file == "<condition>"


def test_a_bare_query_is_a_select() -> None:
    for text in (
        "SELECT 1",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "(SELECT 1) UNION ALL (SELECT 2)",
        "VALUES (1, 2)",
    ):
        assert isinstance(parse(text), Select)
