"""Tables whose rows are in MySQL or MariaDB: the contract of tables, what others see, and what a crash leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.databases.servers import Database, Server

import millpond as mp
from millpond.contracts.table import TableSpec
from millpond.errors import SourceError
from millpond.faults import REMOTE_POINTS
from millpond.tables.mysql import MysqlPart
from millpond.tables.store import open_store
from millpond.testing.documents import read_sections
from millpond.testing.table_harness import ANN, USERS
from millpond.testing.tables import TableContract

App = Callable[..., mp.App]

POOL = {"pool.size": 4, "pool.max.idle": 600_000_000, "connect.timeout": 10_000_000, "ssl.mode": "prefer"}


@pytest.fixture(scope="module")
def contract_database(mysql_server: Server) -> Database:
    """One database for the whole contract."""
    return mysql_server.database()


class TestMysql(TableContract):
    """Tables of MariaDB beside a state directory."""

    backend = "mysql"
    stores_nan = False
    key_characters = 700

    @pytest.fixture(autouse=True)
    def _emptied(self, contract_database: Database) -> None:
        name = contract_database.name
        contract_database.execute(f"DROP DATABASE {name}", f"CREATE DATABASE {name}")
        self.options = {"url": contract_database.uri, **POOL}


STREAM = "CREATE STREAM s (user_id STRING, n BIGINT) FROM 'file:in.jsonl';"


def on(database: Database, **more: str) -> str:
    options = {"backend": "mysql", "url": database.uri, **more}
    return "WITH (" + ", ".join(f"'{name}' = '{value}'" for name, value in options.items()) + ")"


def test_streams_and_aggregates_are_tables_of_the_database(mysql: Database, run: App, tmp_path: Path) -> None:
    lines = ['{"user_id": "a", "n": 1}', '{"user_id": "a ", "n": 2}', '{"user_id": "A", "n": 5}', '{"n": 7}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    app = run(
        f"CREATE TABLE users (user_id STRING PRIMARY KEY, n BIGINT, INDEX (n)) {on(mysql)};",
        STREAM,
        "INSERT INTO users SELECT user_id, n FROM s WHERE user_id IS NOT NULL;",
        f"CREATE TABLE sums AS SELECT user_id, SUM(n) AS n FROM s GROUP BY user_id {on(mysql)};",
        once=True,
    )
    # Texts that differ in case or in spaces at the end are different keys.
    assert set(mysql.rows("SELECT * FROM users")) == {("a", 1), ("a ", 2), ("A", 5)}
    assert set(mysql.rows("SELECT user_id, n FROM sums")) == {("a", 1), ("a ", 2), ("A", 5), (None, 7)}
    assert app.query("SELECT n FROM users WHERE user_id = 'a'").rows() == [{"n": 1}]
    assert app.table("users").values("user_id", "user_id < 'a'") == ["A"]


def test_an_existing_table_is_taken_over_or_what_differs_is_listed(mysql: Database, run: App) -> None:
    mysql.execute(
        "CREATE TABLE people (id INT PRIMARY KEY, name TEXT, more INT)", "INSERT INTO people VALUES (1, 'x', 9)"
    )
    people = "CREATE TABLE users (id INT PRIMARY KEY, name STRING)"
    run(f"{people} {on(mysql, table='people')};", "UPDATE users SET name = 'y' WHERE id = 1;", once=True)
    assert mysql.rows("SELECT * FROM people") == [(1, "y", 9)]
    mysql.execute("CREATE TABLE wrong (id BIGINT, more INT NOT NULL)")
    with pytest.raises(mp.MillpondError) as found:
        run(f"CREATE TABLE w (id INT PRIMARY KEY, name STRING) {on(mysql, table='wrong')};", once=True, accept=True)
    for part in ("'id' is bigint", "'name' is missing", "'more' is NOT NULL", "primary key is not (id)"):
        assert part in str(found.value)


def test_wrong_options_are_errors_of_check(tmp_path: Path) -> None:
    for options, expected in (("", "MP305"), (", 'url' = 'redis://h'", "MP302"), (", 'url' = 'mysql://h'", "MP302")):
        (tmp_path / "app.sql").write_text(f"CREATE TABLE t (id INT PRIMARY KEY) WITH ('backend' = 'mysql'{options});")
        with pytest.raises(mp.MillpondError, match=expected):
            mp.App(tmp_path / "app.sql", state=tmp_path / "state")


def test_a_second_app_is_kept_out_and_the_next_one_takes_over(
    mysql: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = TableSpec("users", USERS, "mysql", {"url": mysql.uri, **POOL})
    first = open_store(tmp_path / "first")
    first.create(spec).insert([ANN])
    second = open_store(tmp_path / "second")
    monkeypatch.setattr("millpond.tables.mysql.LOCK_S", 0.0)
    with pytest.raises(mp.MillpondError, match=r"MP801(.|\n)*in use"):
        second.create(spec)
    # A server may need a while to see that a connection is closed.
    monkeypatch.setattr("millpond.tables.mysql.LOCK_S", 60.0)
    first.close()
    assert second.create(spec).get("u1") == ANN
    second.close()
    first = open_store(tmp_path / "first")
    with pytest.raises(mp.MillpondError, match=r"MP801(.|\n)*taken over"):
        first.create(spec)
    first.close()


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_a_connection_lost_at_the_commit_changes_once(
    mysql: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, applied: bool
) -> None:
    commit = MysqlPart.commit

    def lose(part: MysqlPart) -> None:
        monkeypatch.setattr(MysqlPart, "commit", commit)
        if applied:
            part.commit()
        raise SourceError("MP506", "lost")

    store = open_store(tmp_path / "tables")
    users = store.create(TableSpec("users", USERS, "mysql", {"url": mysql.uri, **POOL}))
    monkeypatch.setattr(MysqlPart, "commit", lose)
    users.insert([ANN])
    assert len(mysql.rows("SELECT * FROM users")) == applied
    assert users.get("u1") == ANN
    users.update("user_id = 'u1'", {"age": 2})
    assert mysql.rows("SELECT age FROM users") == [(2,)]
    store.close()


@pytest.mark.process
@pytest.mark.parametrize("point", REMOTE_POINTS)
def test_a_killed_app_goes_on_where_it_was(mysql: Database, tmp_path: Path, point: str) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path / "tables"), "mysql", mysql.uri]
    environment = {**os.environ, "MILLPOND_FAULT": f"{point}:2"}
    killed = subprocess.run(command, env=environment, timeout=240, capture_output=True, check=False)
    assert killed.returncode == 137, killed.stderr.decode()
    decided = point != REMOTE_POINTS[0]
    store = open_store(tmp_path / "tables")
    held = store.create(TableSpec("users", USERS, "mysql", {"url": mysql.uri, **POOL})).values("user_id")
    counts = [len(store.table("here")), len(mysql.rows("SELECT * FROM users"))]
    store.close()
    assert (held, counts) == ((["u2"], [1, 1]) if decided else (["u1"], [0, 1]))


WORKER = """
import sys
from pathlib import Path
from millpond.contracts.table import TableSpec
from millpond.tables.store import open_store
from millpond.testing.table_harness import ANN, BO, EVENTS, USERS

store = open_store(Path(sys.argv[1]))
values = {"url": sys.argv[3], "pool.size": 4, "pool.max.idle": 600_000_000, "connect.timeout": 10_000_000}
store.create(TableSpec("users", USERS, sys.argv[2], {**values, "ssl.mode": "prefer"})).insert([ANN])
store.create(TableSpec("here", EVENTS))
with store.begin() as tx:
    tx.table("users").upsert([BO])
    tx.table("users").delete(keys=["u1"])
    tx.table("here").insert([{"kind": "a", "n": 1}])
"""


def test_the_example_of_the_page_runs(mysql: Database, run: App, tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "backends.md"
    blocks = [block for section in read_sections(page) for block in section.blocks]
    app_text = next(block.body for block in blocks if block.title == "mysql.sql")
    (tmp_path / "moves.jsonl").write_text('{"sku": "a", "quantity": 2}\n{"sku": "a", "quantity": -1}\n')
    run(app_text.replace("mysql://app:${PW:-secret}@db:3306/shop", mysql.uri), once=True)
    assert mysql.rows("SELECT * FROM stock") == [("a", 1)]
