"""Tables whose rows are in PostgreSQL: the contract of tables, what psql sees, and what a crash leaves."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
from tests.databases.servers import Database, Server, until

import millpond as mp
from millpond.contracts.table import TableSpec
from millpond.errors import SourceError
from millpond.faults import REMOTE_POINTS
from millpond.tables.postgresql import PostgresPart
from millpond.tables.store import open_store
from millpond.testing.documents import read_sections
from millpond.testing.table_harness import ANN, EVENTS
from millpond.testing.table_harness import USERS as HARNESS_USERS
from millpond.testing.tables import TableContract

App = Callable[..., mp.App]
POOL = {"pool.size": 4, "pool.max.idle": 600_000_000}


@pytest.fixture(scope="module")
def contract_database(postgresql_server: Server) -> Database:
    """One database for the whole contract, because creating one takes longer than a test."""
    return postgresql_server.database()


class TestPostgresql(TableContract):
    """PostgreSQL tables beside a state directory."""

    backend = "postgresql"
    stores_nul = False

    @pytest.fixture(autouse=True)
    def _emptied(self, contract_database: Database) -> None:
        contract_database.execute("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        self.options = {"url": contract_database.uri, **POOL}


USERS = "CREATE TABLE users (user_id STRING PRIMARY KEY, tier STRING NOT NULL DEFAULT 'BASIC', n BIGINT, INDEX (tier))"
STREAM = "CREATE STREAM s (user_id STRING, n BIGINT) FROM 'file:in.jsonl';"


def on(database: Database, **more: str) -> str:
    options = {"backend": "postgresql", "url": database.uri, **more}
    return "WITH (" + ", ".join(f"'{name}' = '{value}'" for name, value in options.items()) + ")"


def write(folder: Path, *rows: dict[str, object]) -> None:
    with (folder / "in.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def test_streams_views_and_aggregates_are_tables_of_the_database(
    postgresql: Database, run: App, tmp_path: Path
) -> None:
    write(tmp_path, {"user_id": "a", "n": 1}, {"user_id": "b", "n": 2}, {"user_id": "a", "n": 5}, {"n": 7})
    app = run(
        f"{USERS} {on(postgresql)};",
        STREAM,
        "INSERT INTO users (user_id, n) SELECT user_id, n FROM s WHERE user_id IS NOT NULL;",
        f"CREATE TABLE sums AS SELECT user_id, SUM(n) AS n FROM s GROUP BY user_id {on(postgresql)};",
        f"CREATE TABLE total AS SELECT COUNT(*) AS n FROM s {on(postgresql)};",
        f"CREATE TABLE by_tier AS SELECT tier, SUM(n) AS n FROM users GROUP BY tier {on(postgresql)};",
        once=True,
    )
    assert postgresql.rows("SELECT * FROM users ORDER BY 1") == [("a", "BASIC", 5), ("b", "BASIC", 2)]
    assert set(postgresql.rows("SELECT user_id, n FROM sums")) == {("a", 6), ("b", 2), (None, 7)}
    assert postgresql.rows("SELECT n FROM total") == [(4,)]
    assert postgresql.rows("SELECT * FROM by_tier") == [("BASIC", 7)]
    assert app.table("users").find("n > 2").to_pylist() == [{"user_id": "a", "tier": "BASIC", "n": 5}]


def test_an_existing_table_is_taken_over(postgresql: Database, run: App) -> None:
    postgresql.execute("CREATE TABLE people (user_id TEXT PRIMARY KEY, tier VARCHAR NOT NULL, n BIGINT, more INT)")
    postgresql.execute("INSERT INTO people VALUES ('a', 'GOLD', 1, 9)")
    app = run(
        f"{USERS} {on(postgresql, table='people')};", "UPDATE users SET n = n + 1 WHERE tier = 'GOLD';", once=True
    )
    assert postgresql.rows("SELECT * FROM people") == [("a", "GOLD", 2, 9)]
    assert app.table("users").version == 1
    app.execute("DROP TABLE IF EXISTS nobody")


def test_columns_that_do_not_fit_are_listed(postgresql: Database, run: App) -> None:
    postgresql.execute("CREATE TABLE users (user_id TEXT, tier INT, more TEXT NOT NULL)")
    with pytest.raises(mp.MillpondError) as found:
        run(f"{USERS} {on(postgresql)};", once=True)
    for part in ("'tier' is integer, not text", "'n' is missing", "'more' is NOT NULL", "unique index on (user_id)"):
        assert part in str(found.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("'backend' = 'postgresql'", "MP305(.|\n)*no 'url'"),
        ("'backend' = 'postgresql', 'url' = 'mysql://h/d'", "MP302(.|\n)*for mysql, not for postgresql"),
        ("'backend' = 'postgresql', 'url' = 'postgresql://h'", "MP302(.|\n)*names a database"),
        ("'extension' = 'jdbc'", "MP305(.|\n)*requires 'url'"),
        ("'extension' = 'jdbc', 'url' = 'db2://h/d'", "MP308(.|\n)*no backend 'db2'"),
        ("'backend' = 'postgresql', 'url' = 'postgresql://h/d', 'path' = 'x'", "MP303(.|\n)*backend sqlite"),
    ],
)
def test_wrong_options_are_errors_of_check(tmp_path: Path, options: str, expected: str) -> None:
    (tmp_path / "app.sql").write_text(f"CREATE TABLE t (id INT PRIMARY KEY) WITH ({options});")
    with pytest.raises(mp.MillpondError, match=expected):
        mp.App(tmp_path / "app.sql", state=tmp_path / "state")


def test_jdbc_chooses_the_backend_by_its_url(postgresql: Database, run: App, tmp_path: Path) -> None:
    run(
        f"CREATE TABLE a (id INT PRIMARY KEY) WITH ('extension' = 'jdbc', 'url' = 'jdbc:{postgresql.uri}');",
        "CREATE TABLE b (id INT PRIMARY KEY) WITH ('extension' = 'jdbc', 'url' = 'sqlite:b.db');",
        "INSERT INTO a VALUES (1); INSERT INTO b VALUES (2);",
        once=True,
    )
    assert postgresql.rows("SELECT * FROM a") == [(1,)]
    with closing(sqlite3.connect(tmp_path / "b.db")) as connection:
        assert connection.execute("SELECT * FROM b").fetchall() == [(2,)]


def test_a_second_app_is_kept_out_and_the_next_one_takes_over(
    postgresql: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = TableSpec("users", HARNESS_USERS, "postgresql", {"url": postgresql.uri, **POOL})
    first = open_store(tmp_path / "first")
    table = first.create(spec)
    table.insert([ANN])
    second = open_store(tmp_path / "second")
    monkeypatch.setattr("millpond.tables.postgresql.LOCK_S", 0.0)
    with pytest.raises(mp.MillpondError, match=r"MP801(.|\n)*in use"):
        second.create(spec)
    # A server may need a while to see that a connection is closed.
    monkeypatch.setattr("millpond.tables.postgresql.LOCK_S", 60.0)
    first.close()
    taken = second.create(spec)
    taken.upsert([{**ANN, "age": 1}])
    second.close()
    first = open_store(tmp_path / "first")
    with pytest.raises(mp.MillpondError, match=r"MP801(.|\n)*taken over"):
        first.create(spec)
    first.close()


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_a_connection_lost_at_the_commit_changes_once(
    postgresql: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, applied: bool
) -> None:
    commit = PostgresPart.commit

    def lose(part: PostgresPart) -> None:
        if applied:
            part._connection.execute("COMMIT")
        part._connection.close()
        monkeypatch.setattr(PostgresPart, "commit", commit)
        raise SourceError("MP506", "lost")

    store = open_store(tmp_path / "tables")
    spec = TableSpec("users", HARNESS_USERS, "postgresql", {"url": postgresql.uri, **POOL})
    store.create(spec)
    local = store.create(TableSpec("local", EVENTS))
    monkeypatch.setattr(PostgresPart, "commit", lose)
    with store.begin() as tx:
        tx.table("users").insert([ANN])
        tx.table("local").insert([{"kind": "a", "n": 1}])
    # The log keeps what the server lacks, also when it is truncated.
    store.checkpoint()
    assert len(local) == 1
    assert len(postgresql.rows("SELECT * FROM users")) == applied
    if applied:
        store.close()
        store = open_store(tmp_path / "tables")
        store.create(spec)
    assert store.table("users").get("u1") == ANN
    assert len(postgresql.rows("SELECT * FROM users")) == 1
    store.table("users").update("user_id = 'u1'", {"age": 2})
    assert postgresql.rows("SELECT age FROM users") == [(2,)]
    store.close()


def test_a_server_that_is_away_stops_only_what_needs_it(own_postgresql: Server, run: App, tmp_path: Path) -> None:
    database = own_postgresql.database()
    write(tmp_path, {"user_id": "a", "n": 1})
    (tmp_path / "other.jsonl").write_text('{"n": 1}\n')
    app = run(
        f"{USERS} {on(database)};",
        STREAM,
        "INSERT INTO users (user_id, n) SELECT user_id, n FROM s;",
        "CREATE STREAM o (n BIGINT) FROM 'file:other.jsonl';",
        "CREATE TABLE others (n BIGINT); INSERT INTO others SELECT * FROM o;",
    )
    until(lambda: database.rows("SELECT user_id FROM users") == [("a",)])
    own_postgresql.stop()
    write(tmp_path, {"user_id": "b", "n": 2})
    until(lambda: "retrying" in {row["state"] for row in app.query("SHOW FLOWS").rows()})
    with (tmp_path / "other.jsonl").open("a") as file:
        file.write('{"n": 2}\n')
    until(lambda: len(app.table("others")) == 2)
    own_postgresql.start()
    until(lambda: database.rows("SELECT user_id, n FROM users ORDER BY 1") == [("a", 1), ("b", 2)])


def test_a_new_constraint_is_compared_with_the_rows_of_the_server(postgresql: Database, run: App) -> None:
    run(f"CREATE TABLE t (id INT PRIMARY KEY, n INT) {on(postgresql)};", "INSERT INTO t VALUES (1, -1);", once=True)
    with pytest.raises(mp.MillpondError, match="MP413"):
        run(f"CREATE TABLE t (id INT PRIMARY KEY, n INT CHECK (n > 0)) {on(postgresql)};", once=True)


@pytest.mark.parametrize("place", ["'backend' = 'sqlite'", "'backend' = 'memory'"], ids=["sqlite", "memory"])
def test_a_table_moves_with_its_rows(postgresql: Database, run: App, tmp_path: Path, place: str) -> None:
    write(tmp_path, {"user_id": "a", "n": 1})
    sums = "CREATE TABLE sums AS SELECT user_id, SUM(n) AS n FROM s GROUP BY user_id"
    users, insert = "CREATE TABLE users (user_id STRING PRIMARY KEY, n BIGINT)", "INSERT INTO users SELECT * FROM s;"
    run(STREAM, f"{users} WITH ({place});", insert, f"{sums} WITH ({place});", once=True)
    moved = (STREAM, f"{users} {on(postgresql)};", insert, f"{sums} {on(postgresql)};")
    with pytest.raises(mp.MillpondError, match=r"MP806(.|\n)*moves from \w+ to postgresql"):
        run(*moved, once=True)
    write(tmp_path, {"user_id": "a", "n": 2}, {"user_id": "b", "n": 3})
    for _ in range(2):
        run(*moved, once=True, accept=True)
        assert postgresql.rows("SELECT user_id, n FROM users ORDER BY 1") == [("a", 2), ("b", 3)]
        assert postgresql.rows("SELECT user_id, n FROM sums ORDER BY 1") == [("a", 3), ("b", 3)]


WORKER = """
import sys
from pathlib import Path
from millpond.contracts.table import TableSpec
from millpond.tables.store import open_store
from millpond.testing.table_harness import ANN, BO, EVENTS, USERS

store = open_store(Path(sys.argv[1]))
values = {"url": sys.argv[2], "pool.size": 4, "pool.max.idle": 600_000_000}
store.create(TableSpec("users", USERS, "postgresql", values)).insert([ANN])
store.create(TableSpec("events", EVENTS, "postgresql", values))
store.create(TableSpec("here", EVENTS))
with store.begin() as tx:
    tx.table("users").upsert([BO])
    tx.table("users").delete(keys=["u1"])
    tx.table("events").insert([{"kind": "a", "n": 1}])
    tx.table("here").insert([{"kind": "a", "n": 1}])
"""


@pytest.mark.process
@pytest.mark.parametrize("point", REMOTE_POINTS)
def test_a_kill_in_a_commit_leaves_all_or_nothing(postgresql: Database, tmp_path: Path, point: str) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path / "tables"), postgresql.uri]
    # The first commit passes each point once.
    environment = {**os.environ, "MILLPOND_FAULT": f"{point}:2"}
    killed = subprocess.run(command, env=environment, timeout=240, capture_output=True, check=False)
    assert killed.returncode == 137, killed.stderr.decode()
    decided = point != REMOTE_POINTS[0]
    for _ in range(2):
        store = open_store(tmp_path / "tables")
        for name, schema in (("users", HARNESS_USERS), ("events", EVENTS)):
            store.create(TableSpec(name, schema, "postgresql", {"url": postgresql.uri, **POOL}))
        held = [row["user_id"] for row in store.table("users").to_arrow().to_pylist()]
        counts = [len(store.table(name)) for name in ("users", "events", "here")]
        store.close()
        assert (held, counts) == ((["u2"], [1, 1, 1]) if decided else (["u1"], [1, 0, 0]))
        assert postgresql.rows("SELECT user_id FROM users") == [(held[0],)]
        assert len(postgresql.rows("SELECT * FROM events")) == decided


@pytest.mark.process
def test_a_killed_app_goes_on_where_it_was(postgresql: Database, run: App, tmp_path: Path) -> None:
    write(tmp_path, {"user_id": "a", "n": 1}, {"user_id": "a", "n": 2})
    statements = (
        STREAM,
        f"CREATE TABLE sums AS SELECT user_id, SUM(n) AS n FROM s GROUP BY user_id {on(postgresql)};",
        f"CREATE TABLE events (user_id STRING, n BIGINT) {on(postgresql)}; INSERT INTO events SELECT * FROM s;",
        "CREATE TABLE here (user_id STRING, n BIGINT); INSERT INTO here SELECT * FROM s;",
    )
    (tmp_path / "app.sql").write_text("\n".join(statements))
    command = [sys.executable, "-m", "millpond.cli.main", "run", "app.sql", "--once", "--state", "state"]
    environment = {**os.environ, "MILLPOND_FAULT": "commit.remote.decided"}
    killed = subprocess.run(command, cwd=tmp_path, env=environment, timeout=240, capture_output=True, check=False)
    assert killed.returncode == 137, killed.stderr.decode()
    app = run(*statements, once=True)
    assert postgresql.rows("SELECT user_id, n FROM sums") == [("a", 3)]
    assert postgresql.rows("SELECT user_id, n FROM events ORDER BY millpond_row") == [("a", 1), ("a", 2)]
    assert app.query("SELECT * FROM here").rows() == [{"user_id": "a", "n": 1}, {"user_id": "a", "n": 2}]


PAGE = Path(__file__).parents[2] / "docs" / "backends.md"


def test_the_example_of_the_page_runs(postgresql: Database, run: App, tmp_path: Path) -> None:
    blocks = [block for section in read_sections(PAGE) for block in section.blocks]
    app_text = next(block.body for block in blocks if block.title == "postgresql.sql")
    (tmp_path / "orders.jsonl").write_text('{"user_id": "u1", "amount": 20.5}\n{"user_id": "u1", "amount": 1}\n')
    run(app_text.replace("postgresql://app:${PW:-secret}@db:5432/shop", postgresql.uri), once=True)
    assert postgresql.rows("SELECT * FROM shop_users") == [("u1", "Ann", "GOLD")]
    assert postgresql.rows("SELECT * FROM spent") == [("u1", Decimal("21.50"), 2)]
