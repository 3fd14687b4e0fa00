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
from tests.databases.servers import Database, Server

import millpond as mp
from millpond.testing.documents import read_sections
from millpond.testing.remote_tables import RemoteTableContract

App = Callable[..., mp.App]
POOL = {"pool.size": 4, "pool.max.idle": 600_000_000}


@pytest.fixture(scope="module")
def contract_database(postgresql_server: Server) -> Database:
    """One database for the whole contract, because creating one takes longer than a test."""
    return postgresql_server.database()


class TestPostgresql(RemoteTableContract):
    """PostgreSQL tables beside a state directory."""

    backend = "postgresql"
    stores_nul = False
    lock_wait = "millpond.tables.postgresql.LOCK_S"

    @pytest.fixture(autouse=True)
    def _emptied(self, contract_database: Database) -> None:
        contract_database.execute("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        self.database, self.options = contract_database, {"url": contract_database.uri, **POOL}

    def outside(self, table: str) -> int:
        return int(self.database.rows(f"SELECT count(*) FROM {table}")[0][0])


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
