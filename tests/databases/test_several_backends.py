"""Apps and commits over several servers: one that is away stops only what needs it, and a commit is all or nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.databases.servers import Database, Server, until

import millpond as mp
from millpond.contracts.table import Store, TableSpec
from millpond.faults import REMOTE_POINTS
from millpond.tables.store import open_store
from millpond.testing.remote_tables import EVENT, STEPS, losing
from millpond.testing.table_harness import ANN, BO, EVENTS, USERS, refuses

App = Callable[..., mp.App]
SERVERS = ("postgresql", "mysql", "redis", "mongodb")
SOAK = os.environ.get("MILLPOND_SOAK") == "1"
VALUES: dict[str, dict[str, Any]] = {
    "postgresql": {"pool.size": 4, "pool.max.idle": 600_000_000},
    "mysql": {"pool.size": 4, "pool.max.idle": 600_000_000, "connect.timeout": 10_000_000, "ssl.mode": "prefer"},
    "redis": {},
    "mongodb": {},
}


def stored(database: Database, table: str, key: str) -> Any:
    """The keys of a table as a plain client sees them."""
    kind = database.server.name
    if kind == "redis":
        return {name.rpartition(":")[2] for name in database.connect().keys(f"*{table}:*") if "millpond" not in name}
    if kind == "mongodb":
        return {row[key] for row in database.connect()[table].find()}
    return {row[0] for row in database.rows(f"SELECT {key} FROM {table}")}


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_that_is_away_stops_only_what_needs_it(
    request: pytest.FixtureRequest, run: App, tmp_path: Path, kind: str
) -> None:
    server: Server = request.getfixturevalue(f"own_{kind}")
    database = server.database()
    (tmp_path / "in.jsonl").write_text('{"user_id": "a", "n": 1}\n')
    (tmp_path / "other.jsonl").write_text('{"n": 1}\n')
    app = run(
        "CREATE TABLE users (user_id STRING PRIMARY KEY, n BIGINT)",
        f"  WITH ('backend' = '{kind}', 'url' = '{database.uri}', 'connect.timeout' = '1s');",
        "CREATE STREAM s (user_id STRING, n BIGINT) FROM 'file:in.jsonl';",
        "INSERT INTO users (user_id, n) SELECT user_id, n FROM s;",
        "CREATE STREAM o (n BIGINT) FROM 'file:other.jsonl';",
        "CREATE TABLE others (n BIGINT); INSERT INTO others SELECT * FROM o;",
    )
    until(lambda: stored(database, "users", "user_id") == {"a"})
    server.stop()
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write('{"user_id": "b", "n": 2}\n')
    until(lambda: "retrying" in {row["state"] for row in app.query("SHOW FLOWS").rows()})
    with (tmp_path / "other.jsonl").open("a") as file:
        file.write('{"n": 2}\n')
    until(lambda: len(app.table("others")) == 2)
    server.start()
    until(lambda: stored(database, "users", "user_id") == {"a", "b"})
    until(lambda: app.table("users").count("n = 2") == 1)


@pytest.fixture
def databases(request: pytest.FixtureRequest) -> dict[str, Database]:
    """An empty database of each server."""
    return {kind: request.getfixturevalue(kind) for kind in SERVERS}


def made(store: Store, urls: Mapping[str, str], path: str) -> None:
    """A table on each server, one in SQLite, one in Delta and one in memory."""
    for kind, url in urls.items():
        store.create(TableSpec(f"u_{kind}", USERS, kind, {"url": url, **VALUES[kind]}))
    store.create(TableSpec("u_sqlite", USERS, "sqlite", {"path": path}))
    store.create(TableSpec("u_delta", USERS, "delta"))
    store.create(TableSpec("here", EVENTS))


def change_all(store: Store) -> None:
    with store.begin() as tx:
        for name in [name for name in store.names() if name.startswith("u_")]:
            tx.table(name).upsert([BO])
            tx.table(name).delete(keys=["u1"])
        tx.table("here").insert([EVENT])


def require_all_or_nothing(store: Store, databases: Mapping[str, Database], *, decided: bool) -> None:
    expected = "u2" if decided else "u1"
    held = {name: store.table(name).values("user_id") for name in store.names() if name.startswith("u_")}
    assert held == {name: [expected] for name in held}
    assert len(store.table("here")) == int(decided)
    for kind, database in databases.items():
        assert stored(database, f"u_{kind}", "user_id") == {expected}, kind


@pytest.mark.parametrize("step", STEPS if SOAK else ("applied", "commit"))
@pytest.mark.parametrize("kind", SERVERS)
def test_a_connection_lost_in_a_commit_over_all_servers(
    databases: dict[str, Database], tmp_path: Path, kind: str, step: str
) -> None:
    urls = {name: database.uri for name, database in databases.items()}
    decided = step.startswith("commit")
    store = open_store(tmp_path / "tables")
    made(store, urls, str(tmp_path / "t.db"))
    for name in [name for name in store.names() if name.startswith("u_")]:
        store.table(name).insert([ANN])
    with losing(store.table(f"u_{kind}"), step):
        if decided:
            change_all(store)
        else:
            with refuses("MP506"):
                change_all(store)
    require_all_or_nothing(store, databases, decided=decided)
    store.close()
    store = open_store(tmp_path / "tables")
    made(store, urls, str(tmp_path / "t.db"))
    require_all_or_nothing(store, databases, decided=decided)
    store.close()


WORKER = """
import json, sys
from pathlib import Path
from tests.databases.test_several_backends import change_all, made
from millpond.tables.store import open_store
from millpond.testing.table_harness import ANN

store = open_store(Path(sys.argv[1]))
made(store, json.loads(sys.argv[2]), sys.argv[3])
with store.begin() as tx:
    for name in [name for name in store.names() if name.startswith("u_")]:
        tx.table(name).insert([ANN])
change_all(store)
"""
# SQLite's part is committed under the lock of the store, which passes no other points.
KILLS = (REMOTE_POINTS[0], "commit.staged", "log.append.synced", "sqlite.commit.begin", "sqlite.commit.end")


@pytest.mark.process
@pytest.mark.parametrize("point", KILLS if SOAK else KILLS[2:3])
def test_a_kill_in_a_commit_over_all_servers(databases: dict[str, Database], tmp_path: Path, point: str) -> None:
    urls = {name: database.uri for name, database in databases.items()}
    command = [sys.executable, "-c", WORKER, str(tmp_path / "tables"), json.dumps(urls), str(tmp_path / "t.db")]
    # The second commit is killed. Creating a table synchronizes the log too, and creating one in SQLite commits there.
    created = {"log": len(SERVERS) + 3, "sqlite": 1}
    times = 2 + created.get(point.partition(".")[0], 0)
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "src")])
    environment = {**os.environ, "MILLPOND_FAULT": f"{point}:{times}", "PYTHONPATH": path}
    killed = subprocess.run(command, env=environment, timeout=240, capture_output=True, check=False)
    assert killed.returncode == 137, killed.stderr.decode()
    for _ in range(2):
        store = open_store(tmp_path / "tables")
        made(store, urls, str(tmp_path / "t.db"))
        require_all_or_nothing(store, databases, decided=point not in KILLS[:2])
        store.close()
