"""PostgreSQL as a sink: exactly once, upserts, deletes, and rows that the server rejects."""

import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from tests.databases.servers import Database, Server, until

import millpond as mp

App = Callable[..., mp.App]
STREAM = "CREATE STREAM trades (id BIGINT, symbol STRING, price DECIMAL(12, 2)) FROM 'file:trades.jsonl';"


def write(tmp_path: Path, *lines: str) -> None:
    with (tmp_path / "trades.jsonl").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def trade(id_: int, symbol: str = "A", price: object = "1.50") -> str:
    return f'{{"id": {id_}, "symbol": "{symbol}", "price": {price}}}'


def test_rows_are_upserted_by_the_primary_key(postgresql: Database, run: App, tmp_path: Path) -> None:
    postgresql.execute("CREATE TABLE out (id BIGINT PRIMARY KEY, symbol TEXT, price NUMERIC(12, 2), note TEXT)")
    postgresql.execute("INSERT INTO out VALUES (1, 'old', 0, 'kept')")
    write(tmp_path, trade(1), trade(2, "B"), trade(2, "C", "null"))
    run(STREAM, f"INSERT INTO {postgresql.uri}?table=out SELECT id, symbol, price FROM trades;", once=True)
    expected = [(1, "A", Decimal("1.50"), "kept"), (2, "C", None, None)]
    assert postgresql.rows("SELECT * FROM out ORDER BY id") == expected
    assert postgresql.rows("SELECT count(*) FROM millpond_commits") == [(1,)]


def test_rows_are_appended_without_a_key(postgresql: Database, run: App, tmp_path: Path) -> None:
    postgresql.execute("CREATE TABLE out (n SERIAL, id BIGINT, symbol VARCHAR(10))")
    write(tmp_path, trade(1), trade(1), trade(2, '\\"q\\", \\\\ \\n'), trade(3, ""))
    text = f"INSERT INTO {postgresql.uri}?table=out SELECT id, symbol FROM trades;"
    run(STREAM, text, once=True)
    run(STREAM, text, once=True)
    found = postgresql.rows("SELECT id, symbol FROM out ORDER BY n")
    assert found == [(1, "A"), (1, "A"), (2, '"q", \\ \n'), (3, "")]


def test_a_table_is_made_with_the_types_of_the_rows(postgresql: Database, run: App, tmp_path: Path) -> None:
    write(tmp_path, trade(1))
    query = (
        "SELECT id, price, TIMESTAMP '2024-01-01 10:00:00' AS at, array('a', NULL, 'b\"') AS tags,"
        " DATE '2024-02-29' AS d, named_struct('a', 1) AS s, CAST(1.5 AS DOUBLE) AS f,"
        " true AS ok, CAST('x' AS BINARY) AS b FROM trades"
    )
    run(STREAM, f"INSERT INTO {postgresql.uri}?table=out WITH ('create' = 'true', 'key' = 'id') {query};", once=True)
    types = postgresql.rows(
        "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a"
        " WHERE attrelid = 'out'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert types == [
        ("id", "bigint"),
        ("price", "numeric(12,2)"),
        ("at", "timestamp with time zone"),
        ("tags", "text[]"),
        ("d", "date"),
        ("s", "jsonb"),
        ("f", "double precision"),
        ("ok", "boolean"),
        ("b", "bytea"),
    ]
    ((id_, price, at, tags, _, s, f, ok, b),) = postgresql.rows("SELECT * FROM out")
    assert (id_, price, tags, s, f, ok, bytes(b)) == (1, Decimal("1.50"), ["a", None, 'b"'], {"a": 1}, 1.5, True, b"x")
    assert at.isoformat().startswith("2024-01-01T10:00:00")


def test_changes_of_a_table_delete_rows_too(postgresql: Database, run: App) -> None:
    postgresql.execute("CREATE TABLE copy (id INT PRIMARY KEY, name TEXT)")
    app = run(
        "CREATE TABLE users (id INT PRIMARY KEY, name STRING);",
        f"INSERT INTO {postgresql.uri}?table=copy SELECT id, name, _op FROM CHANGES(users);",
    )
    app.execute("INSERT INTO users VALUES (1, 'Ann'), (2, 'Bo')")
    assert postgresql.rows("SELECT * FROM copy ORDER BY id") == [(1, "Ann"), (2, "Bo")]
    app.execute("DELETE FROM users WHERE id = 1")
    app.execute("UPDATE users SET name = 'Bob'")
    assert postgresql.rows("SELECT * FROM copy") == [(2, "Bob")]


def test_a_row_that_the_server_rejects_is_a_dead_letter(postgresql: Database, run: App, tmp_path: Path) -> None:
    postgresql.execute("CREATE TABLE out (id BIGINT PRIMARY KEY, symbol VARCHAR(3) CHECK (symbol <> 'bad'))")
    write(tmp_path, *(trade(n) for n in range(20)), trade(77, "bad"), trade(78, "long symbol"), trade(79))
    app = run(STREAM, f"INSERT INTO {postgresql.uri}?table=out SELECT id, symbol FROM trades;", once=True)
    assert postgresql.rows("SELECT count(*), max(id) FROM out") == [(21, 79)]
    letters = app.query("SELECT code, reason, raw FROM dead_letters ORDER BY position, reason").rows()
    assert [row["code"] for row in letters] == ["MP603", "MP603"]
    assert any("violates check constraint" in row["reason"] for row in letters)
    assert any("value too long" in row["reason"] for row in letters)
    assert any(b'"bad"' in row["raw"] for row in letters)


@pytest.mark.parametrize(
    ("table", "options", "query", "expected"),
    [
        ("", "", "SELECT id FROM trades", "There is no table"),
        ("(id INT)", "", "SELECT id, symbol FROM trades", "has no column 'symbol'"),
        (
            "(id INT, symbol INT)",
            "",
            "SELECT id, symbol FROM trades",
            "cannot store STRING in its column 'symbol', INT",
        ),
        ("(id INT, at DATE)", "", "SELECT id, current_timestamp() AS at FROM trades", "cannot store TIMESTAMP"),
        ("(id INT, n INT NOT NULL)", "", "SELECT id FROM trades", "needs the column 'n', which is NOT NULL"),
        ("(id INT PRIMARY KEY, n INT)", "", "SELECT 1 AS n FROM trades", "needs the column 'id', which is part of"),
        ("(id INT, n INT)", "'key' = 'id'", "SELECT id FROM trades", r"has no unique index on \(id\)"),
    ],
)
def test_mistakes_are_found_at_the_start(
    postgresql: Database, run: App, tmp_path: Path, table: str, options: str, query: str, expected: str
) -> None:
    write(tmp_path, trade(1))
    if table:
        postgresql.execute(f"CREATE TABLE out {table}")
    with_ = f"WITH ({options})" if options else ""
    with pytest.raises(mp.MillpondError, match=f"MP601(.|\n)*{expected}"):
        run(STREAM, f"INSERT INTO {postgresql.uri}?table=out {with_} {query};", once=True)


def test_a_server_that_is_away_gets_the_rows_later(own_postgresql: Server, run: App, tmp_path: Path) -> None:
    database = own_postgresql.database()
    database.execute("CREATE TABLE out (id BIGINT)")
    write(tmp_path, trade(1))
    app = run(STREAM, f"INSERT INTO {database.uri}?table=out SELECT id FROM trades;")
    until(lambda: database.rows("SELECT id FROM out") == [(1,)])
    own_postgresql.stop()
    write(tmp_path, trade(2))
    until(
        lambda: "retrying" in {row["state"] for row in app.query("SHOW FLOWS").rows()},
        lambda: app.query("SHOW FLOWS").rows(),
    )
    own_postgresql.start()
    until(lambda: database.rows("SELECT id FROM out ORDER BY id") == [(1,), (2,)])


POINTS = ["flow.worked", "flow.committed", "sink.ready", "sink.applied", "flow.published"]


@pytest.mark.process
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_neither_loses_nor_repeats_rows(postgresql: Database, run: App, tmp_path: Path, point: str) -> None:
    postgresql.execute("CREATE TABLE out (id BIGINT)")
    write(tmp_path, trade(1), trade(2))
    (tmp_path / "app.sql").write_text(f"{STREAM}\nINSERT INTO {postgresql.uri}?table=out SELECT id FROM trades;")
    command = [sys.executable, "-m", "millpond.cli.main", "run", "app.sql", "--once", "--state", "state"]
    fault = {**os.environ, "MILLPOND_FAULT": point}
    killed = subprocess.run(command, cwd=tmp_path, env=fault, timeout=240, capture_output=True, check=False)
    assert killed.returncode == 137, killed.stderr.decode()
    mp.App(tmp_path / "app.sql", state=tmp_path / "state").run_once()
    assert postgresql.rows("SELECT id FROM out ORDER BY id") == [(1,), (2,)]
