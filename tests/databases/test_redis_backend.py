"""Tables whose rows are in Redis: the contract of tables, what redis-cli sees, and what a crash leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.databases.servers import Database, Server

import millpond as mp
from millpond.testing.documents import read_sections
from millpond.testing.remote_tables import RemoteTableContract

App = Callable[..., mp.App]


class TestRedis(RemoteTableContract):
    """Redis tables beside a state directory."""

    backend = "redis"
    lock_wait = "millpond.tables.redis.LOCK_S"

    @pytest.fixture(autouse=True)
    def _server(self, redis: Database) -> None:
        self.database, self.options = redis, {"url": redis.uri}

    def outside(self, table: str) -> int:
        return len(self.database.connect().keys(f"{table}:*"))


USERS = (
    "CREATE TABLE users (user_id STRING PRIMARY KEY, tier STRING NOT NULL DEFAULT 'BASIC', n BIGINT, seen TIMESTAMP)"
)
STREAM = "CREATE STREAM s (user_id STRING, n BIGINT) FROM 'file:in.jsonl';"


def on(database: Database, **more: str) -> str:
    options = {"backend": "redis", "url": database.uri, **{name.replace("_", "."): v for name, v in more.items()}}
    return "WITH (" + ", ".join(f"'{name}' = '{value}'" for name, value in options.items()) + ")"


def write(folder: Path, *rows: dict[str, object]) -> None:
    with (folder / "in.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def test_rows_are_hashes_that_others_read(redis: Database, run: App, tmp_path: Path) -> None:
    write(tmp_path, {"user_id": "a", "n": 1}, {"user_id": "b"}, {"user_id": "a", "n": 5})
    app = run(
        f"{USERS} {on(redis)};",
        STREAM,
        "INSERT INTO users (user_id, n) SELECT user_id, n FROM s;",
        f"CREATE TABLE sums AS SELECT user_id, SUM(n) AS n FROM s GROUP BY user_id {on(redis, prefix='sums')};",
        f"CREATE TABLE pairs (a STRING, b INT, PRIMARY KEY (a, b)) {on(redis, prefix='p')};",
        "INSERT INTO pairs VALUES ('x:y', 1), ('x%', 2);",
        once=True,
    )
    client = redis.connect()
    assert client.hgetall("app:users:a") == {"user_id": "a", "tier": "BASIC", "n": "5"}
    assert client.hgetall("app:users:b") == {"user_id": "b", "tier": "BASIC"}
    assert client.hget("sums:a", "n") == "6"
    assert sorted(client.scan_iter("p:*")) == ["p:x%25:2", "p:x%3Ay:1"]
    assert app.table("pairs").get(("x:y", 1)) == {"a": "x:y", "b": 1}
    assert app.query("SELECT user_id FROM users WHERE n IS NULL").rows() == [{"user_id": "b"}]


def test_a_group_whose_columns_are_all_null_is_a_row(redis: Database, run: App, tmp_path: Path) -> None:
    write(tmp_path, {"n": None}, {"user_id": "a", "n": 1})
    statements = (
        STREAM,
        f"CREATE TABLE most AS SELECT user_id, MAX(n) AS n FROM s GROUP BY user_id {on(redis)};",
        f"CREATE TABLE seen AS SELECT DISTINCT user_id FROM s {on(redis)};",
    )
    for _ in range(2):
        app = run(*statements, once=True)
        rows = {(row["user_id"], row["n"]) for row in app.table("most").to_arrow().to_pylist()}
        assert rows == {(None, None), ("a", 1)}
        assert set(app.table("seen").values("user_id")) == {None, "a"}


def test_rows_expire(redis: Database, run: App) -> None:
    app = run(f"{USERS} {on(redis, ttl='30m')};", "INSERT INTO users (user_id) VALUES ('a'), ('b');", once=True)
    client = redis.connect()
    assert 0 < client.pttl("app:users:a") <= 1_800_000
    # As if its time was over.
    client.delete("app:users:a")
    users = app.table("users")
    assert (len(users), users.get("a")) == (1, None)
    users.upsert([{"user_id": "a", "n": 1}])
    assert users.values("n", "user_id = 'a'") == [1]


def test_ranges_are_found_by_a_sorted_set(redis: Database, run: App) -> None:
    app = run(
        f"{USERS} {on(redis, range_index='n,seen')};",
        "INSERT INTO users VALUES ('a', 'X', 1, TIMESTAMP '2026-01-01T00:00:00Z'), ('b', 'X', 2, NULL),",
        "  ('c', 'X', 9007199254740993, TIMESTAMP '2026-01-03T00:00:00Z'), ('d', 'X', NULL, NULL);",
        "UPDATE users SET n = 3 WHERE user_id = 'b'; DELETE FROM users WHERE user_id = 'd';",
        once=True,
    )
    users = app.table("users")
    assert redis.connect().zrange("millpond:app:users:range:n", 0, -1) == [f"app:users:{k}" for k in "abc"]
    expected = {
        "n > 1": "bc",
        "n BETWEEN 1 AND 3": "ab",
        "n = 9007199254740993": "c",
        "3 >= n AND tier = 'X'": "ab",
        "seen > TIMESTAMP '2026-01-02T00:00:00Z'": "c",
        "n <> 3": "ac",
        "n IS NULL": "",
    }
    for condition, found in expected.items():
        assert sorted(users.values("user_id", condition)) == list(found), condition


def test_a_commit_is_one_script_and_reads_do_not_block_the_server(own_redis: Server, run: App) -> None:
    redis = own_redis.database()
    app = run(
        f"{USERS} {on(redis, range_index='n')};",
        f"CREATE TABLE more (id BIGINT PRIMARY KEY, n BIGINT) {on(redis, prefix='more')};",
        once=True,
    )
    client = redis.connect()
    client.config_resetstat()
    with app.transaction() as tx:
        tx.table("users").insert([{"user_id": f"u{n}", "n": n} for n in range(20)])
        tx.table("more").insert([{"id": n} for n in range(20)])
    used = client.info("commandstats")
    assert used["cmdstat_eval"]["calls"] == 1
    client.config_resetstat()
    assert sorted(app.table("users").values("n", "n BETWEEN 3 AND 5")) == [3, 4, 5]
    used = client.info("commandstats")
    assert not {"cmdstat_scan", "cmdstat_keys"} & set(used)
    assert (used["cmdstat_evalsha"]["calls"], used["cmdstat_hmget"]["calls"]) == (1, 3)
    client.config_resetstat()
    assert app.table("users").to_arrow().num_rows == 20
    used = client.info("commandstats")
    assert "cmdstat_scan" in used
    assert "cmdstat_keys" not in used


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("'backend' = 'redis'", "MP305(.|\n)*no 'url'"),
        ("'backend' = 'redis', 'url' = 'http://h'", "MP302(.|\n)*for http, not for redis"),
        ("'backend' = 'redis', 'url' = 'redis://h', 'range.index' = 'x'", "MP302(.|\n)*no column"),
        ("'backend' = 'redis', 'url' = 'redis://h', 'range.index' = 'name'", "MP302(.|\n)*numbers and times"),
    ],
)
def test_wrong_options_are_errors_of_check(tmp_path: Path, options: str, expected: str) -> None:
    (tmp_path / "app.sql").write_text(f"CREATE TABLE t (id INT PRIMARY KEY, name STRING) WITH ({options});")
    with pytest.raises(mp.MillpondError, match=expected):
        mp.App(tmp_path / "app.sql", state=tmp_path / "state")


def test_a_server_that_evicts_rows_is_rejected(own_redis: Server, run: App) -> None:
    database = own_redis.database()
    client = database.connect()
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(mp.MillpondError, match=r"MP409(.|\n)*evicts rows"):
        run(f"{USERS} {on(database)};", once=True)
    run(f"{USERS} {on(database, ttl='1h')};", once=True)


PAGE = Path(__file__).parents[2] / "docs" / "backends.md"


def test_the_example_of_the_page_runs(redis: Database, run: App, tmp_path: Path) -> None:
    blocks = [block for section in read_sections(PAGE) for block in section.blocks]
    app_text = next(block.body for block in blocks if block.title == "redis.sql")
    (tmp_path / "visits.jsonl").write_text('{"user_id": "u1", "at": "2026-11-18T10:00:00Z"}\n')
    run(app_text.replace("redis://localhost:6379/0", redis.uri), once=True)
    expected = {"user_id": "u1", "last_seen": "2026-11-18T10:00:00Z", "visits": "1"}
    assert redis.connect().hgetall("app:sessions:u1") == expected
