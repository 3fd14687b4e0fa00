"""Every example of the surface is planned without an error; what cannot run yet says so and nothing else is said."""

import pytest
from tests.plan.planning import plan_of

STREAMS = """
CREATE STREAM trades (trade_id STRING, user_id STRING, symbol STRING, quantity INT, price DECIMAL(12,2), ts TIMESTAMP,
                      WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)
  FROM 'kafka://localhost:9092/trades' WITH ('format' = 'json');
CREATE STREAM big AS SELECT * FROM trades WHERE quantity > 100;
CREATE STREAM ticks AS SELECT concat('u', seq % 1000) AS user_id, CAST(seq % 100 AS DECIMAL(12,2)) AS price, ts
  FROM 'generate://?rows=1000000&rate=50000&seed=7';
CREATE STREAM upgrades (user_id STRING, name STRING, tier STRING) FROM kafka://upgrades;
CREATE STREAM churn (user_id STRING) FROM kafka_topic('churn');
CREATE STREAM incoming (sku STRING, quantity INT) FROM memory://incoming;
CREATE STREAM sells (symbol STRING, ts TIMESTAMP) FROM kafka://sells;
CREATE STREAM quotes (symbol STRING, bid DECIMAL(12,2), ts TIMESTAMP) FROM kafka://quotes;
"""

TABLES = """
CREATE TABLE users (user_id STRING PRIMARY KEY, name STRING, tier STRING NOT NULL DEFAULT 'BASIC',
  changes INT DEFAULT 0, INDEX (tier)) WITH ('backend' = 'memory');
CREATE TABLE positions (user_id STRING, symbol STRING, size BIGINT, PRIMARY KEY (user_id, symbol));
CREATE TABLE symbols PRIMARY KEY (symbol) AS SELECT * FROM file:///data/symbols.csv WITH ('watch' = 'true');
CREATE TABLE profiles PRIMARY KEY (user_id) AS SELECT * FROM kafka://profiles WITH ('key' = 'user_id');
CREATE TABLE totals AS SELECT user_id, COUNT(*) AS n, SUM(price * quantity) AS value FROM trades GROUP BY user_id;
CREATE TABLE by_tier AS SELECT u.tier, SUM(t.value) AS value FROM totals t JOIN users u ON u.user_id = t.user_id
  GROUP BY u.tier;
CREATE TABLE limits AS SELECT * FROM postgresql://crm/limits WITH ('cdc' = 'true');
CREATE TABLE accounts (id INT PRIMARY KEY, balance DECIMAL(12,2));
CREATE TABLE orders (sku STRING, quantity INT);
CREATE TABLE stock (sku STRING PRIMARY KEY, left INT);
CREATE INDEX ON users (tier);
DROP TABLE IF EXISTS old;
CREATE TABLE IF NOT EXISTS extra (a INT);
CREATE OR REPLACE TABLE extra (a INT, b INT);
"""

CHANGES = [
    "INSERT INTO users (user_id, name, tier) VALUES ('u1', 'Ann', 'GOLD'), ('u2', 'Bo', DEFAULT)",
    "UPDATE users SET tier = 'PLATINUM', name = upper(name) WHERE user_id = 'u1'",
    "DELETE FROM users WHERE tier = 'BASIC' AND name LIKE 'A%'",
    "UPSERT INTO users (user_id, name, tier) VALUES ('u1', 'Ann', 'GOLD')",
    "BEGIN; UPDATE accounts SET balance = balance - 10 WHERE id = 1; "
    "UPDATE accounts SET balance = balance + 10 WHERE id = 2; COMMIT",
    "INSERT INTO users (user_id, name, tier) SELECT user_id, name, tier FROM kafka://profiles",
    "UPDATE users SET tier = u.tier, changes = users.changes + 1 FROM upgrades u WHERE users.user_id = u.user_id",
    "DELETE FROM users USING churn c WHERE users.user_id = c.user_id",
    "DELETE FROM users FROM churn c WHERE users.user_id = c.user_id",
    "UPSERT INTO users (user_id, tier) SELECT user_id, tier FROM upgrades",
    "UPSERT INTO users (user_id, name, tier) SELECT user_id, name, tier FROM upgrades "
    "ON users.user_id = upgrades.user_id",
    "BEGIN; INSERT INTO orders SELECT * FROM incoming; UPDATE stock SET left = stock.left - i.quantity "
    "FROM incoming i WHERE stock.sku = i.sku; COMMIT",
]

QUERIES = [
    "INSERT INTO kafka://localhost:9092/enriched SELECT t.*, u.tier, "
    "(SELECT max_limit FROM limits l WHERE l.user_id = t.user_id) AS max_limit "
    "FROM trades t JOIN users u ON t.user_id = u.user_id LEFT JOIN symbols s ON t.symbol = s.symbol "
    "WHERE t.quantity > ANY (SELECT size FROM positions p, symbols x WHERE p.symbol = x.symbol "
    "AND x.symbol = t.symbol) "
    "AND EXISTS (SELECT 1 FROM users x WHERE x.user_id = t.user_id AND x.tier IN ('GOLD', 'PLATINUM'))",
    "INSERT INTO 'file://./out' WITH ('format' = 'jsonl') SELECT * FROM big",
    "SELECT * FROM big",
    "CREATE TABLE per_minute AS SELECT symbol, window_start, window_end, AVG(price) AS price FROM trades "
    "GROUP BY symbol, TUMBLING(ts, INTERVAL 1 MINUTE)",
    "CREATE TABLE per_five AS SELECT symbol, window_start, AVG(price) AS price FROM trades "
    "GROUP BY symbol WINDOW SLIDING(5m, 1m)",
    "SELECT s.*, q.bid FROM sells s JOIN quotes q ON s.symbol = q.symbol "
    "AND q.ts BETWEEN s.ts - INTERVAL 5 SECONDS AND s.ts",
    "INSERT INTO kafka://tiers WITH ('key' = 'tier') SELECT * FROM CHANGES(by_tier)",
    "SELECT /*+ LOOKUP(u) */ t.symbol, u.tier FROM trades t JOIN users u ON t.user_id = u.user_id",
    "SELECT t.symbol, u.tier FROM trades t JOIN users u ON t.user_id = u.user_id "
    "WITH ('on.missing' = 'default', 'default.tier' = 'BASIC')",
    "SELECT t.symbol, u.tier FROM trades t JOIN users u ON t.user_id = u.user_id "
    "WITH ('on.missing' = 'wait', 'wait.timeout' = '10s', 'wait.max.rows' = '100000')",
    "SELECT at, reason FROM dead_letters WHERE code = 'MP504'",
]


@pytest.mark.parametrize("text", [*CHANGES, *QUERIES])
def test_an_example_has_no_error_and_no_warning(text: str) -> None:
    found = {"symbols.csv": "symbol STRING, sector STRING"}
    problems = plan_of(f"{STREAMS}{TABLES}{text};", found).problems
    assert [str(p) for p in problems if p.code not in ("MP221", "MP901")] == []


def test_the_first_example_of_the_design_is_planned() -> None:
    plan = plan_of(f"{STREAMS}{TABLES}{';'.join(CHANGES)};{';'.join(QUERIES)};")
    assert {p.code for p in plan.errors} <= {"MP901"}
    assert {f.name for f in plan.flows} >= {"trades", "upgrades", "churn", "incoming"}
