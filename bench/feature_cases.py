"""Every SQL feature as a small app over the same streams and tables, and the same work for plain Structured Streaming.

A case of Millpond is `HEAD` and its statements. The plain way is a SELECT over the same streams and tables: over one
batch inside foreachBatch, or, with a mode, over the stream itself, with the state that Spark keeps.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """
CREATE STREAM events (id BIGINT, user_id STRING, symbol STRING, quantity INT, price DECIMAL(12,2), note STRING,
                      ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS) FROM 'memory://events';
CREATE STREAM quotes (symbol STRING, bid DECIMAL(12,2), ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)
  FROM 'memory://quotes';
CREATE STREAM visits (id BIGINT, place STRUCT<city: STRING, zip: INT>, tags ARRAY<STRING>,
                      attributes MAP<STRING, STRING>) FROM 'memory://visits';
CREATE TABLE users (user_id STRING PRIMARY KEY, tier STRING, n BIGINT);
CREATE TABLE symbols (symbol STRING PRIMARY KEY, sector STRING);
CREATE TABLE bands (band STRING PRIMARY KEY, low INT, high INT);
CREATE TABLE accounts (account_id BIGINT PRIMARY KEY, owner STRING, n BIGINT);
CREATE TABLE owned (account_id BIGINT PRIMARY KEY, owner STRING, n BIGINT, INDEX (owner));
"""


@dataclass(frozen=True)
class Plain:
    """The plain way: `mode` is Spark's output mode, empty for a SELECT over one batch; `then` is a query over the
    result of the stream's SELECT, as the view `grouped`. With `files` rows are written as JSON lines, as Millpond
    writes them; without, they are only computed."""

    select: str
    mode: str = ""
    then: str = ""
    files: bool = True


@dataclass(frozen=True)
class Case:
    """One feature. `late` moves every fiftieth event ten minutes back, `bad` makes every hundredth record
    unreadable."""

    name: str
    sql: str
    plain: Plain | None = None
    streams: tuple[str, ...] = ("events",)
    late: bool = False
    bad: bool = False


def emit(name: str, select: str, *streams: str) -> Case:
    """Rows of each batch into files: the same text for both."""
    return Case(name, f"INSERT INTO 'file://./out' {select};", Plain(select), streams or ("events",))


def grouped(name: str, aggregate: str, plain: str = "", tail: str = "") -> Case:
    """An aggregate per user in a table; plain Spark may need another way to write it."""
    sql = f"CREATE TABLE kept AS SELECT user_id, {aggregate} AS v FROM events GROUP BY user_id{tail};"
    select = f"SELECT user_id, {plain or aggregate} AS v FROM events GROUP BY user_id{tail}"
    return Case(name, sql, Plain(select, "update", files=False))


def window(
    name: str, kind: str, plain: str, mode: str = "update", *, late: bool = False, what: str = "COUNT(*)"
) -> Case:
    """A count per user and window in a table."""
    sql = f"CREATE TABLE kept AS SELECT user_id, window_start, {what} AS v FROM events GROUP BY user_id, {kind};"
    counted = what.replace("COUNT(DISTINCT symbol)", "size(collect_set(symbol))")
    select = f"SELECT user_id, {plain}.start AS window_start, {counted} AS v FROM events GROUP BY user_id, {plain}"
    return Case(name, sql, Plain(select, mode, files=False), late=late)


def view(name: str, over: str) -> Case:
    """A view over an aggregate by symbol; the plain way asks all groups again in each batch."""
    groups = "SELECT symbol, COUNT(*) AS n, SUM(quantity) AS size FROM events GROUP BY symbol"
    sql = f"CREATE TABLE grouped AS {groups};\nCREATE TABLE seen AS {over};"
    return Case(name, sql, Plain(groups, "complete", over, files=False))


def change(name: str, sql: str) -> Case:
    """A table changed by a stream, for which plain Spark has no counterpart without a table format."""
    return Case(name, sql)


TUMBLING = ("TUMBLING(ts, INTERVAL 1 MINUTE)", "window(ts, '1 minute')")
SLIDING = ("SLIDING(ts, INTERVAL 1 MINUTE, INTERVAL 20 SECONDS)", "window(ts, '1 minute', '20 seconds')")
SESSION = ("SESSION(ts, INTERVAL 30 SECONDS)", "session_window(ts, '30 seconds')")
LAST_QUOTE = "q.symbol = e.symbol AND q.ts BETWEEN e.ts - INTERVAL 5 SECONDS AND e.ts"
BOTH = ("events", "quotes")


def _stream_join(name: str, kind: str) -> Case:
    select = f"SELECT e.id, e.symbol, q.bid FROM events e {kind} quotes q ON {LAST_QUOTE}"
    return Case(name, f"INSERT INTO 'file://./out' {select};", Plain(select, "append"), BOTH)


FROM_USERS = "FROM events e JOIN users u ON u.user_id = e.user_id"
CASES = (
    emit("filter", "SELECT id, user_id, quantity * price AS value FROM events WHERE quantity > 10"),
    emit("join_inner", f"SELECT e.id, e.symbol, u.tier {FROM_USERS}"),
    emit("join_left", "SELECT e.id, e.symbol, u.tier FROM events e LEFT JOIN users u ON u.user_id = e.user_id"),
    emit(
        "join_two",
        f"SELECT e.id, u.tier, s.sector {FROM_USERS} LEFT JOIN symbols s ON s.symbol = e.symbol",
    ),
    emit(
        "join_semi",
        "SELECT id FROM events e WHERE EXISTS (SELECT 1 FROM users u WHERE u.user_id = e.user_id AND u.tier = 'GOLD')",
    ),
    emit(
        "join_anti",
        "SELECT id FROM events e "
        "WHERE NOT EXISTS (SELECT 1 FROM users u WHERE u.user_id = e.user_id AND u.tier = 'GOLD')",
    ),
    emit("join_range", "SELECT e.id, b.band FROM events e JOIN bands b ON e.quantity BETWEEN b.low AND b.high"),
    emit("join_nonkey", "SELECT e.id, a.account_id FROM events e JOIN accounts a ON a.owner = e.user_id"),
    emit("join_indexed", "SELECT e.id, a.account_id FROM events e JOIN owned a ON a.owner = e.user_id"),
    emit("sub_scalar", "SELECT id, (SELECT MAX(u.n) FROM users u WHERE u.user_id = e.user_id) AS n FROM events e"),
    emit("sub_uncorrelated", "SELECT id, (SELECT MAX(n) FROM users) AS n FROM events"),
    emit("sub_in", "SELECT id FROM events WHERE user_id IN (SELECT user_id FROM users WHERE tier = 'GOLD')"),
    emit("sub_not_in", "SELECT id FROM events WHERE user_id NOT IN (SELECT user_id FROM users WHERE tier = 'GOLD')"),
    emit("sub_exists_range", "SELECT id FROM events e WHERE EXISTS (SELECT 1 FROM bands b WHERE b.low > e.quantity)"),
    emit(
        "sub_count_range",
        "SELECT id, (SELECT COUNT(*) FROM bands b WHERE b.low <= e.quantity) AS n FROM events e",
    ),
    grouped("agg_count", "COUNT(*)"),
    grouped("agg_sum", "SUM(price)"),
    grouped("agg_avg", "AVG(price)"),
    grouped("agg_min_max", "MAX(price) - MIN(price)"),
    grouped("agg_max_by", "MAX_BY(price, ts)"),
    grouped("agg_count_distinct", "COUNT(DISTINCT symbol)", "size(collect_set(symbol))"),
    grouped("agg_collect_list", "COLLECT_LIST(quantity)"),
    grouped("agg_percentile", "PERCENTILE(quantity, 0.5)"),
    grouped("having", "COUNT(*)", tail=" HAVING COUNT(*) > 2"),
    Case(
        "group_sink",
        "INSERT INTO 'file://./out' SELECT user_id, COUNT(*) AS n FROM events GROUP BY user_id;",
        Plain("SELECT user_id, COUNT(*) AS n FROM events GROUP BY user_id", "update"),
    ),
    Case(
        "distinct",
        "INSERT INTO 'file://./out' SELECT DISTINCT user_id, symbol FROM events;",
        Plain("SELECT DISTINCT user_id, symbol FROM events", "update"),
    ),
    window("tumbling", *TUMBLING),
    window("tumbling_late", *TUMBLING, late=True),
    window("sliding", *SLIDING),
    window("sliding_late", *SLIDING, late=True),
    window("session", *SESSION, "append"),
    window("session_late", *SESSION, "append", late=True),
    window("window_distinct", *TUMBLING, what="COUNT(DISTINCT symbol)"),
    window("session_distinct", *SESSION, "append", what="COUNT(DISTINCT symbol)"),
    Case(
        "tumbling_sink",
        "INSERT INTO 'file://./out' SELECT user_id, window_start, COUNT(*) AS n FROM events "
        f"GROUP BY user_id, {TUMBLING[0]};",
        Plain(f"SELECT user_id, COUNT(*) AS n FROM events GROUP BY user_id, {TUMBLING[1]}", "append"),
    ),
    view("view_over", "SELECT symbol, n, RANK() OVER (ORDER BY size DESC) AS place FROM grouped"),
    view("view_order", "SELECT symbol, n FROM grouped ORDER BY n DESC, symbol LIMIT 10"),
    view("view_union", "SELECT symbol, n FROM grouped UNION ALL SELECT sector, 0 FROM symbols"),
    view(
        "view_join",
        "SELECT s.sector, SUM(g.n) AS n FROM grouped g JOIN symbols s ON s.symbol = g.symbol GROUP BY s.sector",
    ),
    emit("lateral", "SELECT id, word FROM events LATERAL VIEW explode(split(note, ' ')) w AS word"),
    emit(
        "case",
        "SELECT id, CASE WHEN quantity < 10 THEN 'few' WHEN quantity < 50 THEN 'some' ELSE 'many' END AS size "
        "FROM events",
    ),
    emit(
        "cast",
        "SELECT id, CAST(quantity AS STRING) AS q, CAST(price AS DOUBLE) AS p, CAST(ts AS DATE) AS d FROM events",
    ),
    emit(
        "nested",
        "SELECT id, place.city AS city, tags[0] AS tag, attributes['a'] AS a, size(tags) AS n FROM visits",
        "visits",
    ),
    emit("explode", "SELECT id, tag FROM visits LATERAL VIEW explode(tags) t AS tag", "visits"),
    emit("element_at", "SELECT id, element_at(array('A', 'B', 'C'), quantity % 3 + 1) AS letter FROM events"),
    change(
        "insert",
        "CREATE TABLE kept (id BIGINT PRIMARY KEY, user_id STRING);\nINSERT INTO kept SELECT id, user_id FROM events;",
    ),
    change("update", "UPDATE users SET n = users.n + e.quantity FROM events e WHERE users.user_id = e.user_id;"),
    change("delete", "DELETE FROM users USING events e WHERE users.user_id = e.user_id AND e.quantity = 99;"),
    change("upsert", "UPSERT INTO users (user_id, n) SELECT user_id, quantity FROM events;"),
    change(
        "upsert_on",
        "UPSERT INTO owned (account_id, owner, n) SELECT id, user_id, quantity FROM events "
        "ON owned.owner = events.user_id;",
    ),
    change(
        "merge",
        "MERGE INTO users USING events e ON users.user_id = e.user_id WHEN MATCHED AND e.quantity = 99 THEN DELETE\n"
        "  WHEN MATCHED THEN UPDATE SET n = users.n + e.quantity\n"
        "  WHEN NOT MATCHED THEN INSERT (user_id, tier, n) VALUES (e.user_id, 'NEW', e.quantity);",
    ),
    change(
        "on_conflict",
        "INSERT INTO users (user_id, n) SELECT user_id, quantity FROM events\n"
        "  ON CONFLICT (user_id) DO UPDATE SET n = users.n + excluded.n;",
    ),
    Case(
        "changes",
        "CREATE TABLE kept AS SELECT user_id, COUNT(*) AS n FROM events GROUP BY user_id;\n"
        "INSERT INTO 'file://./out' SELECT * FROM CHANGES(kept);",
        Plain("SELECT user_id, COUNT(*) AS n FROM events GROUP BY user_id", "update"),
    ),
    Case("bad_records", "INSERT INTO 'file://./out' SELECT id, quantity FROM events;", bad=True),
    Case(
        "failing_rows",
        "INSERT INTO 'file://./out' SELECT id, 1000 / quantity AS share FROM events WITH ('on.error' = 'dead-letter');",
        Plain("SELECT id, try_divide(1000, quantity) AS share FROM events"),
    ),
    _stream_join("stream_join", "JOIN"),
    _stream_join("stream_join_left", "LEFT JOIN"),
)
