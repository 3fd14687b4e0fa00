"""Tables whose rows are in MySQL or MariaDB: the contract of tables, what others see, and what a crash leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.databases.servers import Database, Server

import millpond as mp
from millpond.testing.documents import read_sections
from millpond.testing.remote_tables import RemoteTableContract

App = Callable[..., mp.App]

POOL = {"pool.size": 4, "pool.max.idle": 600_000_000, "connect.timeout": 10_000_000, "ssl.mode": "prefer"}


@pytest.fixture(scope="module")
def contract_database(mysql_server: Server) -> Database:
    """One database for the whole contract."""
    return mysql_server.database()


class TestMysql(RemoteTableContract):
    """Tables of MariaDB beside a state directory."""

    backend = "mysql"
    stores_nan = False
    key_characters = 700
    lock_wait = "millpond.tables.mysql.LOCK_S"

    @pytest.fixture(autouse=True)
    def _emptied(self, contract_database: Database) -> None:
        name = contract_database.name
        contract_database.execute(f"DROP DATABASE {name}", f"CREATE DATABASE {name}")
        self.database, self.options = contract_database, {"url": contract_database.uri, **POOL}

    def outside(self, table: str) -> int:
        return int(self.database.rows(f"SELECT count(*) FROM {table}")[0][0])


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


def test_the_example_of_the_page_runs(mysql: Database, run: App, tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "backends.md"
    blocks = [block for section in read_sections(page) for block in section.blocks]
    app_text = next(block.body for block in blocks if block.title == "mysql.sql")
    (tmp_path / "moves.jsonl").write_text('{"sku": "a", "quantity": 2}\n{"sku": "a", "quantity": -1}\n')
    run(app_text.replace("mysql://app:${PW:-secret}@db:3306/shop", mysql.uri), once=True)
    assert mysql.rows("SELECT * FROM stock") == [("a", 1)]
