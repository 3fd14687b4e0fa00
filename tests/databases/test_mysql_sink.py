"""MariaDB as a sink: exactly once, upserts, deletes, and rows that the server rejects."""

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from tests.databases.servers import Database, Server, until
from tests.databases.test_postgresql_sink import STREAM, trade, write

import millpond as mp

App = Callable[..., mp.App]


def test_rows_are_upserted_by_the_primary_key(mysql: Database, run: App, tmp_path: Path) -> None:
    mysql.execute("CREATE TABLE out_ (id BIGINT PRIMARY KEY, symbol TEXT, price DECIMAL(12, 2), note TEXT)")
    mysql.execute("INSERT INTO out_ VALUES (1, 'old', 0, 'kept')")
    write(tmp_path, trade(1), trade(2, "B"), trade(2, "C", "null"))
    run(STREAM, f"INSERT INTO {mysql.uri}?table=out_ SELECT id, symbol, price FROM trades;", once=True)
    assert mysql.rows("SELECT * FROM out_ ORDER BY id") == [(1, "A", Decimal("1.50"), "kept"), (2, "C", None, None)]
    assert mysql.rows("SELECT count(*) FROM millpond_commits") == [(1,)]


def test_rows_are_appended_without_a_key(mysql: Database, run: App, tmp_path: Path) -> None:
    mysql.execute("CREATE TABLE out_ (n INT AUTO_INCREMENT UNIQUE, id BIGINT, symbol VARCHAR(20))")
    write(tmp_path, trade(1), trade(1), trade(2, "\\\"q\\\", '%s' \\\\ \\n"), trade(3, ""))
    text = f"INSERT INTO {mysql.uri}?table=out_ SELECT id, symbol FROM trades;"
    run(STREAM, text, once=True)
    run(STREAM, text, once=True)
    found = mysql.rows("SELECT id, symbol FROM out_ ORDER BY n")
    assert found == [(1, "A"), (1, "A"), (2, "\"q\", '%s' \\ \n"), (3, "")]


def test_a_table_is_made_with_the_types_of_the_rows(mysql: Database, run: App, tmp_path: Path) -> None:
    write(tmp_path, trade(1))
    query = (
        "SELECT symbol, price, TIMESTAMP '2024-01-01 10:00:00.123456' AS at, array('a', NULL, 'b\"') AS tags,"
        " DATE '2024-02-29' AS d, CAST(1.5 AS DOUBLE) AS f, true AS ok, CAST('x' AS BINARY) AS b FROM trades"
    )
    run(STREAM, f"INSERT INTO {mysql.uri}?table=out_ WITH ('create' = 'true', 'key' = 'symbol') {query};", once=True)
    types = mysql.rows(
        "SELECT column_name, column_type FROM information_schema.columns WHERE table_schema = database()"
        " AND table_name = 'out_' ORDER BY ordinal_position"
    )
    assert types == [
        ("symbol", "varchar(191)"),
        ("price", "decimal(12,2)"),
        ("at", "datetime(6)"),
        ("tags", "longtext"),
        ("d", "date"),
        ("f", "double"),
        ("ok", "tinyint(1)"),
        ("b", "longblob"),
    ]
    assert mysql.rows("SELECT * FROM out_") == [
        (
            *("A", Decimal("1.50"), dt.datetime(2024, 1, 1, 10, 0, 0, 123456), '["a", null, "b\\""]'),
            *(dt.date(2024, 2, 29), 1.5, 1, b"x"),
        )
    ]


def test_changes_of_a_table_delete_rows_too(mysql: Database, run: App) -> None:
    mysql.execute("CREATE TABLE copy (id INT PRIMARY KEY, name TEXT)")
    app = run(
        "CREATE TABLE users (id INT PRIMARY KEY, name STRING);",
        f"INSERT INTO {mysql.uri}?table=copy SELECT id, name, _op FROM CHANGES(users);",
    )
    app.execute("INSERT INTO users VALUES (1, 'Ann'), (2, 'Bo')")
    assert mysql.rows("SELECT * FROM copy ORDER BY id") == [(1, "Ann"), (2, "Bo")]
    app.execute("DELETE FROM users WHERE id = 1")
    app.execute("UPDATE users SET name = 'Bob'")
    assert mysql.rows("SELECT * FROM copy") == [(2, "Bob")]


def test_a_row_that_the_server_rejects_is_a_dead_letter(mysql: Database, run: App, tmp_path: Path) -> None:
    """Also one that conflicts with another row than that of its key, which an upsert must not change."""
    mysql.execute(
        "CREATE TABLE out_ (id BIGINT PRIMARY KEY, symbol VARCHAR(3) CHECK (symbol <> 'bad'),"
        " price DECIMAL(12, 2) UNIQUE)"
    )
    lines = [trade(n, "A", f"{n}.5") for n in range(20)]
    more = [trade(76, "A", "3.5"), trade(77, "bad", "77"), trade(78, "long symbol", "78"), trade(79, "A", "79")]
    write(tmp_path, *lines, *more)
    app = run(STREAM, f"INSERT INTO {mysql.uri}?table=out_ SELECT id, symbol, price FROM trades;", once=True)
    assert mysql.rows("SELECT count(*), max(id) FROM out_") == [(21, 79)]
    assert mysql.rows("SELECT id FROM out_ WHERE price = 3.5") == [(3,)]
    letters = app.query("SELECT code, reason FROM dead_letters").rows()
    assert [row["code"] for row in letters] == ["MP603"] * 3
    for said in ("Duplicate entry '3.50' for key 'price'", "CONSTRAINT", "Data too long for column 'symbol'"):
        assert any(said in row["reason"] for row in letters), (said, letters)


@pytest.mark.parametrize(
    ("table", "options", "query", "expected"),
    [
        ("", "", "SELECT id FROM trades", "There is no table"),
        ("(id INT)", "", "SELECT id, symbol FROM trades", "has no column 'symbol'"),
        ("(id INT, symbol INT)", "", "SELECT symbol FROM trades", "cannot store STRING in its column 'symbol', INT"),
        ("(id INT, at DATE)", "", "SELECT id, current_timestamp() AS at FROM trades", "cannot store TIMESTAMP"),
        ("(id INT, n INT NOT NULL)", "", "SELECT id FROM trades", "needs the column 'n', which is NOT NULL"),
        ("(id INT, n INT)", "'key' = 'id'", "SELECT id FROM trades", r"has no unique index on \(id\)"),
        ("(id INT) ENGINE = MyISAM", "", "SELECT id FROM trades", "MyISAM, which has no transactions"),
    ],
)
def test_mistakes_are_found_at_the_start(
    mysql: Database, run: App, tmp_path: Path, table: str, options: str, query: str, expected: str
) -> None:
    write(tmp_path, trade(1))
    if table:
        mysql.execute(f"CREATE TABLE out_ {table}")
    with_ = f"WITH ({options})" if options else ""
    with pytest.raises(mp.MillpondError, match=f"MP601(.|\n)*{expected}"):
        run(STREAM, f"INSERT INTO {mysql.uri}?table=out_ {with_} {query};", once=True)


def test_a_server_that_is_away_gets_the_rows_later(own_mysql: Server, run: App, tmp_path: Path) -> None:
    database = own_mysql.database()
    database.execute("CREATE TABLE out_ (id BIGINT)")
    write(tmp_path, trade(1))
    app = run(STREAM, f"INSERT INTO {database.uri}?table=out_ SELECT id FROM trades;")
    until(lambda: database.rows("SELECT id FROM out_") == [(1,)])
    own_mysql.stop()
    write(tmp_path, trade(2))
    until(lambda: "retrying" in {row["state"] for row in app.query("SHOW FLOWS").rows()})
    own_mysql.start()
    until(lambda: database.rows("SELECT id FROM out_ ORDER BY id") == [(1,), (2,)])


@pytest.mark.process
@pytest.mark.parametrize("point", ["sink.ready", "sink.applied"])
def test_a_kill_neither_loses_nor_repeats_rows(mysql: Database, tmp_path: Path, point: str) -> None:
    mysql.execute("CREATE TABLE out_ (id BIGINT)")
    write(tmp_path, trade(1), trade(2))
    (tmp_path / "app.sql").write_text(f"{STREAM}\nINSERT INTO {mysql.uri}?table=out_ SELECT id FROM trades;")
    command = [sys.executable, "-m", "millpond.cli.main", "run", "app.sql", "--once", "--state", "state"]
    fault = {**os.environ, "MILLPOND_FAULT": point}
    killed = subprocess.run(command, cwd=tmp_path, env=fault, timeout=240, capture_output=True, check=False)
    assert killed.returncode == 137, killed.stderr.decode()
    mp.App(tmp_path / "app.sql", state=tmp_path / "state").run_once()
    assert mysql.rows("SELECT id FROM out_ ORDER BY id") == [(1,), (2,)]
