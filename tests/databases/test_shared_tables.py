"""Tables that others write too: every read is a query of the server, no writer is fenced off, and views follow them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.databases.servers import Database, Server, until

import millpond as mp
from millpond.contracts.table import TableSpec
from millpond.tables.store import open_store
from millpond.testing.table_harness import ANN, BO
from millpond.testing.table_harness import USERS as HARNESS_USERS

App = Callable[..., mp.App]
USERS = "CREATE TABLE users (user_id STRING PRIMARY KEY, tier STRING, n BIGINT)"
VIEW = "CREATE TABLE by_tier AS SELECT tier, SUM(n) AS n FROM users GROUP BY tier;"


def on(database: Database, backend: str, **more: str) -> str:
    options = {"backend": backend, "url": database.uri, "shared": "true", **more}
    return "WITH (" + ", ".join(f"'{name}' = '{value}'" for name, value in options.items()) + ")"


@pytest.fixture(params=["postgresql", "mysql"])
def kept(request: pytest.FixtureRequest) -> tuple[Database, str]:
    """An empty database, and the backend of its tables."""
    return request.getfixturevalue(request.param), request.param


def test_what_others_write_is_read_at_once_and_by_views_at_the_next_poll(
    kept: tuple[Database, str], run: App, tmp_path: Path
) -> None:
    database, backend = kept
    (tmp_path / "in.jsonl").write_text('{"user_id": "a", "n": 1}\n')
    app = run(
        f"{USERS} {on(database, backend, **{'poll.interval': '100ms'})};",
        "CREATE STREAM s (user_id STRING, n BIGINT) FROM 'file:in.jsonl';",
        "INSERT INTO users SELECT user_id, 'GOLD', n FROM s",
        "  ON CONFLICT (user_id) DO UPDATE SET n = users.n + excluded.n;",
        VIEW,
    )
    until(lambda: app.table("by_tier").get("GOLD") == {"tier": "GOLD", "n": 1})
    database.execute("INSERT INTO users VALUES ('b', 'GOLD', 10)", "UPDATE users SET n = 5 WHERE user_id = 'a'")
    users = app.table("users")
    assert (len(users), users.values("n", "user_id = 'a'"), users.count("n >= 10")) == (2, [5], 1)
    until(lambda: app.table("by_tier").get("GOLD") == {"tier": "GOLD", "n": 15})
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write(json.dumps({"user_id": "a", "n": 2}) + "\n")
    until(lambda: app.table("by_tier").get("GOLD") == {"tier": "GOLD", "n": 17})
    database.execute("DELETE FROM users WHERE user_id = 'b'")
    until(lambda: app.table("by_tier").get("GOLD") == {"tier": "GOLD", "n": 7})
    assert database.rows("SELECT n FROM users") == [(7,)]


def test_change_capture_refreshes_views(kept: tuple[Database, str], run: App) -> None:
    database, backend = kept
    options = on(database, backend, cdc="true", **{"poll.interval": "never"})
    app = run(f"{USERS} {options};", "CREATE TABLE other (id BIGINT PRIMARY KEY);", VIEW)
    database.execute("INSERT INTO users VALUES ('a', 'GOLD', 10)")
    until(lambda: app.table("by_tier").get("GOLD") == {"tier": "GOLD", "n": 10})
    app.table("users").upsert([{"user_id": "b", "tier": "GOLD", "n": 1}])
    assert app.table("by_tier").get("GOLD") == {"tier": "GOLD", "n": 11}
    database.execute("UPDATE users SET n = 20 WHERE user_id = 'a'", "DELETE FROM users WHERE user_id = 'b'")
    until(lambda: app.table("by_tier").get("GOLD") == {"tier": "GOLD", "n": 20})
    app.stop()
    if backend == "postgresql":
        slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        until(lambda: database.rows(slots) == [])


def test_changes_that_cannot_be_captured_leave_views_stale(postgresql: Database, run: App) -> None:
    postgresql.execute("CREATE TABLE users (user_id TEXT NOT NULL UNIQUE, tier TEXT, n BIGINT)")
    app = run(f"{USERS} {on(postgresql, 'postgresql', cdc='true')};", VIEW, once=True)
    (state,) = [row["state"] for row in app.query("SHOW TABLES").rows() if row["name"] == "by_tier"]
    assert state == "stale"
    # The updates of others are not rejected, as they would be by a published table without an identity.
    postgresql.execute("INSERT INTO users VALUES ('a', 'GOLD', 1)", "UPDATE users SET n = 2")


def test_views_are_refreshed_at_each_start(kept: tuple[Database, str], run: App) -> None:
    database, backend = kept
    statements = [f"{USERS} {on(database, backend, **{'poll.interval': 'never'})};", VIEW]
    run(*statements, "INSERT INTO users VALUES ('a', 'GOLD', 1);", once=True)
    database.execute("INSERT INTO users VALUES ('b', 'GOLD', 10)")
    app = run(*statements, "INSERT INTO users VALUES ('a', 'GOLD', 1);", once=True)
    assert app.table("by_tier").get("GOLD") == {"tier": "GOLD", "n": 11}


def test_several_apps_write_one_table(kept: tuple[Database, str], tmp_path: Path) -> None:
    database, backend = kept
    values = {"url": database.uri, "shared": True, "connect.timeout": 10_000_000, "ssl.mode": "prefer"}
    spec = TableSpec("users", HARNESS_USERS, backend, values)
    stores = [open_store(tmp_path / name) for name in ("first", "second")]
    first, second = (store.create(spec) for store in stores)
    first.insert([ANN])
    second.upsert([BO])
    second.update("user_id = 'u1'", {"age": 50})
    first.update("user_id = 'u1'", {"name": "Anna"})
    assert first.get("u1") == second.get("u1") == {**ANN, "age": 50, "name": "Anna"}
    assert len(first) == len(second) == 2
    for store in stores:
        store.close()
    again = open_store(tmp_path / "first")
    again.create(spec).delete(keys=["u2"])
    again.drop("users")
    again.close()
    # Others may need it: it stays.
    assert database.rows("SELECT count(*) FROM users") == [(1,)]


def test_views_are_stale_while_the_server_is_away(own_postgresql: Server, run: App) -> None:
    database = own_postgresql.database()
    app = run(
        f"{USERS} {on(database, 'postgresql', **{'poll.interval': '50ms'})};",
        VIEW,
        "INSERT INTO users VALUES ('a', 'GOLD', 1);",
    )
    until(lambda: app.table("by_tier").get("GOLD") is not None)
    own_postgresql.stop()
    until(lambda: app.table("by_tier").state == "stale")
    assert app.table("by_tier").get("GOLD") == {"tier": "GOLD", "n": 1}
    own_postgresql.start()
    until(lambda: app.table("by_tier").state == "ready")


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("CREATE TABLE t (id INT PRIMARY KEY) WITH ({}, 'cache.ttl' = '1m')", "MP303(.|\n)*goes to the server"),
        ("CREATE TABLE t (id INT) WITH ({})", "MP303(.|\n)*PRIMARY KEY"),
        ("CREATE TABLE o (id INT); CREATE TABLE t AS SELECT id FROM o WITH ({})", "MP303(.|\n)*those of its query"),
    ],
)
def test_what_cannot_be_shared_is_an_error_of_check(tmp_path: Path, statement: str, expected: str) -> None:
    options = "'backend' = 'postgresql', 'url' = 'postgresql://h/d', 'shared' = 'true'"
    (tmp_path / "app.sql").write_text(statement.format(options) + ";")
    with pytest.raises(mp.MillpondError, match=expected):
        mp.App(tmp_path / "app.sql", state=tmp_path / "state")


@pytest.mark.parametrize("option", ["'poll.interval' = '1s'", "'cdc' = 'true'"])
def test_refreshing_without_shared_is_an_error_of_check(tmp_path: Path, option: str) -> None:
    options = f"'backend' = 'postgresql', 'url' = 'postgresql://h/d', {option}"
    (tmp_path / "app.sql").write_text(f"CREATE TABLE t (id INT PRIMARY KEY) WITH ({options});")
    with pytest.raises(mp.MillpondError, match=r"MP303(.|\n)*others write to"):
        mp.App(tmp_path / "app.sql", state=tmp_path / "state")
