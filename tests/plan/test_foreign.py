"""Words of other systems: each gets a hint that says how it is written here."""

import pytest
from tests.plan.planning import problems_of

from millpond.sql import foreign

# What somebody may write who knows another system, and what the hint must say.
WRITTEN = [
    ("SELECT symbol, COUNT(*) FROM trades GROUP BY symbol, TUMBLE(ts, INTERVAL '1' MINUTE);", "TUMBLING(ts,"),
    (
        "SELECT symbol, COUNT(*) FROM trades GROUP BY symbol, HOP(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE);",
        "SLIDING(",
    ),
    (
        "SELECT symbol FROM TABLE(TUMBLE(TABLE trades, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY symbol;",
        "TUMBLING(ts,",
    ),
    ("SELECT symbol FROM TUMBLE(trades, ts, INTERVAL '1 minute') GROUP BY symbol, window_start;", "TUMBLING(ts,"),
    ("SELECT symbol, TUMBLE_START(ts, INTERVAL '1' MINUTE) FROM trades;", "window_start"),
    ("SELECT * FROM trades EMIT CHANGES;", "Leave it out"),
    ("SELECT symbol, COUNT(*) FROM trades GROUP BY symbol EMIT CHANGES;", "Leave it out"),
    ("SELECT symbol, COUNT(*) FROM trades GROUP BY symbol EMIT FINAL;", "when it is closed"),
    ("SELECT symbol, COUNT(*) FROM trades WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY symbol;", "after GROUP BY"),
    (
        "SELECT symbol, COUNT(*) FROM trades WINDOW HOPPING (SIZE 5 MINUTES, ADVANCE BY 1 MINUTE) GROUP BY symbol;",
        "SLIDING(",
    ),
    ("SELECT PROCTIME() FROM trades;", "current_timestamp()"),
    ("SELECT ROWTIME FROM trades;", "_timestamp"),
    ("SELECT t.ROWTIME FROM trades t;", "_timestamp"),
    ("SELECT LATEST_BY_OFFSET(price) FROM trades;", "max_by"),
    ("CREATE STREAM x (a INT) WITH (KAFKA_TOPIC = 'x', VALUE_FORMAT = 'JSON');", "FROM kafka://"),
    ("CREATE TABLE x (a INT) WITH ('connector' = 'kafka');", "by its URI"),
    ("CREATE TABLE x (a INT) WITH ('topic' = 'x');", "FROM kafka://"),
    ("CREATE STREAM y AS SELECT * FROM trades PARTITION BY symbol;", "'key' = 'column'"),
    ("SELECT * FROM trades t JOIN quotes q WITHIN 5 SECONDS ON t.symbol = q.symbol;", "BETWEEN s.ts"),
    ("CREATE MATERIALIZED VIEW v AS SELECT * FROM users;", "CREATE TABLE name AS SELECT"),
    ("CREATE SOURCE x WITH (a = 'b');", "CREATE STREAM"),
    ("CREATE SINK x FROM y;", "INSERT INTO kafka://"),
    ("CREATE SOURCE CONNECTOR x WITH ('a' = 'b');", "URI"),
    ("REFRESH MATERIALIZED VIEW v;", "Leave it out"),
    ("SHOW QUERIES;", "SHOW FLOWS"),
    ("LIST STREAMS;", "SHOW TABLES"),
    ("PRINT trades FROM BEGINNING;", "SELECT * FROM kafka://"),
    ("INSERT INTO notes VALUES ('a', 1) RETURNING n;", "SELECT"),
    ("REPLACE INTO notes VALUES ('a', 1);", "UPSERT INTO"),
    ("INSERT OR REPLACE INTO notes VALUES ('a', 1);", "UPSERT INTO"),
    ("INSERT IGNORE INTO notes VALUES ('a', 1);", "ON CONFLICT DO NOTHING"),
    ("INSERT INTO users (user_id) VALUES ('a') ON DUPLICATE KEY UPDATE name = 'x';", "ON CONFLICT (key) DO UPDATE"),
    ("CREATE TABLE q (LIKE users);", "List the columns"),
    ("CREATE TABLE q (y INT AUTO_INCREMENT);", "uuid()"),
    ("CREATE TABLE q (y BIGINT GENERATED ALWAYS AS IDENTITY);", "uuid()"),
    ("CREATE TABLE q (y STRING REFERENCES users);", "'on.missing'"),
    ("CREATE TABLE q (y STRING UNIQUE);", "PRIMARY KEY"),
    ("CREATE TABLE q (y SERIAL);", "BIGINT"),
    ("CREATE TABLE q (y BIGSERIAL);", "BIGINT"),
    ("CREATE TABLE q (y TEXT);", "STRING"),
    ("CREATE TABLE q (y JSONB);", "STRING"),
    ("CREATE TABLE q (y DOUBLE PRECISION);", "Write DOUBLE."),
    ("CREATE TABLE q (y TIMESTAMP WITH TIME ZONE);", "Write TIMESTAMP"),
    ("CREATE TEMPORARY TABLE x (a INT);", "'durable' = 'false'"),
    ("CREATE UNIQUE INDEX i ON users (name);", "CREATE INDEX"),
    ("ALTER TABLE users ADD COLUMN b INT;", "CREATE statement"),
    ("TRUNCATE TABLE users;", "DELETE FROM"),
    ("COPY users FROM 'x.csv';", "CREATE TABLE t AS SELECT"),
    ("SELECT TOP 5 * FROM users;", "LIMIT 5"),
    ("SELECT * FROM users FETCH FIRST 3 ROWS ONLY;", "LIMIT 5"),
    ("SELECT name->>'a' FROM users;", "get_json_object"),
    ("SELECT STRFTIME('%Y', ts) FROM trades;", "date_format"),
    ("SELECT * FROM trades t JOIN quotes q ON t.symbol = q.symbol AND q.ts > t.ts - 5 MINUTES;", "INTERVAL"),
    (
        "SELECT * FROM trades t JOIN users FOR SYSTEM_TIME AS OF PROCTIME() AS u ON u.user_id = t.user_id;",
        "Join the table",
    ),
]

# Spelled as Spark has it, and so here.
ACCEPTED = [
    "SELECT ts::DATE, '1'::INT, price::STRING FROM trades;",
    "SELECT NOW(), name ILIKE 'a%' FROM users;",
    "SELECT * FROM users LIMIT ALL;",
    "SELECT ts - INTERVAL '1' MINUTE, ts - INTERVAL '1 minute', ts - INTERVAL 1 MINUTE FROM trades;",
    "SELECT COUNT(*) FROM quotes GROUP BY TUMBLING(ts, '1 minute');",
    "SELECT COUNT(*) FROM quotes GROUP BY TUMBLING(ts, 1 minute);",
    "SELECT COUNT(*) FROM quotes GROUP BY TUMBLING(ts, INTERVAL '1' MINUTE);",
    "SELECT COUNT(*) FROM quotes GROUP BY symbol WINDOW TUMBLING(1m);",
    "SELECT COUNT(*) FROM quotes WINDOW SESSION (30 SECONDS) GROUP BY symbol;",
    "CREATE TABLE q (a VARCHAR(10), b CHAR(3), returning INT, emit INT, identity INT, top INT, within INT);",
    "SELECT emit.n AS emit, text AS metadata FROM notes emit;",
    "SELECT text AS within FROM notes WHERE text = 'EMIT CHANGES' AND n - 5 > 3;",
    "SELECT quantity - 5 days FROM trades;",
]


@pytest.mark.parametrize(("sql", "hint"), WRITTEN, ids=[sql[:60] for sql, _ in WRITTEN])
def test_a_word_of_another_system_gets_its_spelling_here(sql: str, hint: str) -> None:
    found = [problem for problem in problems_of(sql) if " note: " not in problem]
    assert len(found) == 1, found
    assert hint in found[0].split(" | ")[1]


@pytest.mark.parametrize("sql", ACCEPTED)
def test_what_is_spelled_alike_is_accepted(sql: str) -> None:
    assert [problem for problem in problems_of(sql) if " note: " not in problem] == []


def test_no_function_of_the_table_exists_here() -> None:
    from millpond.plan.function_names import FUNCTIONS

    assert not set(foreign.FUNCTIONS) & FUNCTIONS
