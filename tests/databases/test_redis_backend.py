"""Tables whose rows are in Redis: the contract of tables, what redis-cli sees, and what a crash leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.databases.servers import Database, Server, until

import millpond as mp
from millpond.contracts.table import TableSpec
from millpond.errors import SourceError
from millpond.faults import REMOTE_POINTS
from millpond.tables.redis import RedisPart
from millpond.tables.store import open_store
from millpond.testing.documents import read_sections
from millpond.testing.table_harness import ANN, EVENTS
from millpond.testing.table_harness import USERS as HARNESS_USERS
from millpond.testing.tables import TableContract

App = Callable[..., mp.App]


class TestRedis(TableContract):
    """Redis tables beside a state directory."""

    backend = "redis"

    @pytest.fixture(autouse=True)
    def _server(self, redis: Database) -> None:
        self.options = {"url": redis.uri}


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


def test_a_second_app_is_kept_out_and_the_next_one_takes_over(
    redis: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = TableSpec("users", HARNESS_USERS, "redis", {"url": redis.uri})
    first = open_store(tmp_path / "first")
    first.create(spec).insert([ANN])
    second = open_store(tmp_path / "second")
    monkeypatch.setattr("millpond.tables.redis.LOCK_S", 0.0)
    with pytest.raises(mp.MillpondError, match=r"MP801(.|\n)*in use"):
        second.create(spec)
    # A server may need a while to see that a connection is closed.
    monkeypatch.setattr("millpond.tables.redis.LOCK_S", 60.0)
    first.close()
    with pytest.raises(mp.MillpondError, match=r"MP409(.|\n)*column 'user_id' is string, not declared here"):
        second.create(TableSpec("users", EVENTS, "redis", {"url": redis.uri}))
    taken = second.create(spec)
    assert taken.get("u1") == ANN
    second.close()
    first = open_store(tmp_path / "first")
    with pytest.raises(mp.MillpondError, match=r"MP801(.|\n)*taken over"):
        first.create(spec)
    first.close()


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_a_connection_lost_at_the_commit_changes_once(
    redis: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, applied: bool
) -> None:
    commit = RedisPart.commit

    def lose(part: RedisPart) -> None:
        monkeypatch.setattr(RedisPart, "commit", commit)
        if applied:
            part.commit()
        raise SourceError("MP506", "lost")

    store = open_store(tmp_path / "tables")
    users = store.create(TableSpec("users", HARNESS_USERS, "redis", {"url": redis.uri}))
    monkeypatch.setattr(RedisPart, "commit", lose)
    users.insert([ANN])
    store.checkpoint()
    assert len(redis.connect().keys("users:*")) == applied
    assert users.get("u1") == ANN
    users.update("user_id = 'u1'", {"age": 2})
    assert redis.connect().hget("users:u1", "age") == "2"
    store.close()


def test_a_server_that_is_away_gets_the_rows_later(own_redis: Server, run: App, tmp_path: Path) -> None:
    database = own_redis.database()
    write(tmp_path, {"user_id": "a", "n": 1})
    app = run(f"{USERS} {on(database)};", STREAM, "INSERT INTO users (user_id, n) SELECT user_id, n FROM s;")
    until(lambda: database.connect().exists("app:users:a"))
    own_redis.stop()
    write(tmp_path, {"user_id": "b", "n": 2})
    until(lambda: "retrying" in {row["state"] for row in app.query("SHOW FLOWS").rows()})
    own_redis.start()
    until(lambda: database.connect().hget("app:users:b", "n") == "2")
    assert len(app.table("users")) == 2


WORKER = """
import sys
from pathlib import Path
from millpond.contracts.table import TableSpec
from millpond.tables.store import open_store
from millpond.testing.table_harness import ANN, BO, EVENTS, USERS

store = open_store(Path(sys.argv[1]))
store.create(TableSpec("users", USERS, "redis", {"url": sys.argv[2]})).insert([ANN])
store.create(TableSpec("events", EVENTS, "redis", {"url": sys.argv[2]}))
store.create(TableSpec("here", EVENTS))
with store.begin() as tx:
    tx.table("users").upsert([BO])
    tx.table("users").delete(keys=["u1"])
    tx.table("events").insert([{"kind": "a", "n": 1}])
    tx.table("here").insert([{"kind": "a", "n": 1}])
"""


@pytest.mark.process
@pytest.mark.parametrize("point", REMOTE_POINTS)
def test_a_kill_in_a_commit_leaves_all_or_nothing(redis: Database, tmp_path: Path, point: str) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path / "tables"), redis.uri]
    environment = {**os.environ, "MILLPOND_FAULT": f"{point}:2"}
    killed = subprocess.run(command, env=environment, timeout=240, capture_output=True, check=False)
    assert killed.returncode == 137, killed.stderr.decode()
    decided = point != REMOTE_POINTS[0]
    for _ in range(2):
        store = open_store(tmp_path / "tables")
        for name, schema in (("users", HARNESS_USERS), ("events", EVENTS)):
            store.create(TableSpec(name, schema, "redis", {"url": redis.uri}))
        held = [row["user_id"] for row in store.table("users").to_arrow().to_pylist()]
        counts = [len(store.table(name)) for name in ("users", "events", "here")]
        store.close()
        assert (held, counts) == ((["u2"], [1, 1, 1]) if decided else (["u1"], [1, 0, 0]))


PAGE = Path(__file__).parents[2] / "docs" / "backends.md"


def test_the_example_of_the_page_runs(redis: Database, run: App, tmp_path: Path) -> None:
    blocks = [block for section in read_sections(PAGE) for block in section.blocks]
    app_text = next(block.body for block in blocks if block.title == "redis.sql")
    (tmp_path / "visits.jsonl").write_text('{"user_id": "u1", "at": "2026-11-18T10:00:00Z"}\n')
    run(app_text.replace("redis://localhost:6379/0", redis.uri), once=True)
    expected = {"user_id": "u1", "last_seen": "2026-11-18T10:00:00Z", "visits": "1"}
    assert redis.connect().hgetall("app:sessions:u1") == expected
