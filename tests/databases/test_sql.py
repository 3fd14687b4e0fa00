"""sql://: tables and queries of SQLite and DuckDB, by SQLAlchemy."""

import datetime as dt
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.databases.servers import Database, until

import millpond as mp

App = Callable[..., mp.App]
PARTS = (
    "CREATE TABLE parts (id INTEGER PRIMARY KEY, name VARCHAR(20), price DECIMAL(10, 2), changed DATE, ok BOOLEAN)",
    "INSERT INTO parts VALUES (1, 'bolt', 1.25, '2024-01-01', true), (2, 'nut', NULL, '2024-02-01', NULL)",
)


def execute(file: Path, *statements: str) -> None:
    connection: Any = sqlite3.connect(file) if file.suffix == ".db" else duckdb.connect(str(file))
    for statement in statements:
        connection.execute(statement)
    if file.suffix == ".db":
        connection.commit()
    connection.close()


def found(file: Path, query: str) -> list[tuple[Any, ...]]:
    connection: Any = sqlite3.connect(file) if file.suffix == ".db" else duckdb.connect(str(file))
    try:
        return [tuple(row) for row in connection.execute(query).fetchall()]
    finally:
        connection.close()


@pytest.mark.parametrize(("driver", "name"), [("sqlite", "parts.db"), ("duckdb", "parts.duckdb")])
def test_a_table_has_the_columns_key_and_rows_of_the_database(tmp_path: Path, run: App, driver: str, name: str) -> None:
    execute(tmp_path / name, *PARTS)
    app = run(f"CREATE TABLE parts AS SELECT * FROM 'sql://{driver}:{name}?table=parts';", once=True)
    whole = "BIGINT" if driver == "sqlite" else "INT"
    types = [row["type"] for row in app.query("DESCRIBE parts").rows()]
    assert types == [whole, "STRING", "DECIMAL(10,2)", "DATE", "BOOLEAN"]
    assert app.query("SHOW TABLES").rows()[1]["key"] == "id"
    rows = app.query("SELECT * FROM parts ORDER BY id").rows()
    assert rows[0] == {"id": 1, "name": "bolt", "price": Decimal("1.25"), "changed": dt.date(2024, 1, 1), "ok": True}
    assert rows[1] == {"id": 2, "name": "nut", "price": None, "changed": dt.date(2024, 2, 1), "ok": None}


def test_a_query_with_parameters_reads_on_by_a_column(tmp_path: Path, run: App) -> None:
    execute(tmp_path / "parts.db", *PARTS)
    text = (
        f"CREATE TABLE parts PRIMARY KEY (id) AS SELECT * FROM"
        f' sql://sqlite:{tmp_path}/parts.db?query="SELECT * FROM parts WHERE changed >= ?"'
        " WITH ('query.params' = '2024-01-15', 'incremental.column' = 'changed',"
        " 'key' = 'id', 'poll.interval' = '50ms');"
    )
    app = run(text)
    assert [row["id"] for row in app.query("SELECT id FROM parts").rows()] == [2]
    execute(
        tmp_path / "parts.db", "INSERT INTO parts VALUES (3, 'cog', 1, '2024-02-01', 0), (4, 'old', 1, '2023-01-01', 0)"
    )
    until(lambda: sorted(row["id"] for row in app.query("SELECT id FROM parts").rows()) == [2, 3])


def test_a_poll_compares(tmp_path: Path, run: App) -> None:
    execute(tmp_path / "parts.db", *PARTS)
    app = run(
        "CREATE TABLE parts AS SELECT * FROM 'sql://sqlite:parts.db?table=parts' WITH ('poll.interval' = '50ms');"
    )
    execute(tmp_path / "parts.db", "DELETE FROM parts WHERE id = 1", "UPDATE parts SET name = 'NUT'")
    until(lambda: app.query("SELECT id, name FROM parts").rows() == [{"id": 2, "name": "NUT"}])


def test_a_value_of_another_type_is_a_dead_letter(tmp_path: Path, run: App) -> None:
    execute(tmp_path / "parts.db", *PARTS, "INSERT INTO parts (id, changed) VALUES (3, 'someday')")
    app = run("CREATE TABLE parts AS SELECT * FROM 'sql://sqlite:parts.db?table=parts';", once=True)
    assert len(app.query("SELECT id FROM parts").rows()) == 2
    (letter,) = app.query("SELECT code, reason FROM dead_letters").rows()
    assert letter == {"code": "MP504", "reason": "column 'changed': 'someday' is not a DATE"}


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("sql://sqlite:nothing.db?table=parts", "MP501.*there is no file"),
        ("sql://sqlite:parts.db?table=part", "MP508(.|\n)*no table or view 'part'(.|\n)*Did you mean 'parts'"),
        ('sql://sqlite:parts.db?query="SELECT nope FROM parts"', "MP50[28].*no such column"),
        ("sql://nosuch:parts.db?table=parts", "MP309(.|\n)*pip install nosuch"),
        ("sql://mssql+pyodbc:u@h/db?table=parts", "MP309(.|\n)*pip install pyodbc"),
        ("sql://parts?table=parts", "MP508.*names a driver"),
    ],
)
def test_mistakes_are_errors_that_name_them(tmp_path: Path, run: App, uri: str, expected: str) -> None:
    execute(tmp_path / "parts.db", *PARTS)
    with pytest.raises(mp.MillpondError, match=expected):
        run(f"CREATE TABLE t AS SELECT * FROM '{uri}';", once=True)


def test_without_a_key_rows_at_the_edge_are_neither_lost_nor_doubled(tmp_path: Path, run: App) -> None:
    execute(tmp_path / "log.db", "CREATE TABLE log (at DATE, v TEXT)", "INSERT INTO log VALUES ('2024-01-01', 'a')")
    query = 'sql://sqlite:log.db?query="SELECT * FROM log WHERE at >= ?"'
    options = "'query.params' = '2024-01-01', 'incremental.column' = 'at'"
    text = f"CREATE TABLE log AS SELECT * FROM {query} WITH ({options});"
    run(text, once=True)
    same = "INSERT INTO log VALUES ('2024-01-01', 'a'), ('2024-01-01', 'b'), ('2024-01-02', 'c')"
    execute(tmp_path / "log.db", same)
    run(text, once=True)
    app = run(text, once=True)
    assert sorted(row["v"] for row in app.query("SELECT v FROM log").rows()) == ["a", "a", "b", "c"]


@pytest.mark.parametrize(("driver", "name"), [("sqlite", "out.db"), ("duckdb", "out.duckdb")])
def test_a_sink_upserts_deletes_appends_and_rejects(run: App, tmp_path: Path, driver: str, name: str) -> None:
    path = tmp_path / name
    execute(
        path,
        "CREATE TABLE copy (id INTEGER PRIMARY KEY, name VARCHAR(20) CHECK (name <> 'bad'), price DECIMAL(10, 2),"
        " note TEXT)",
        "INSERT INTO copy VALUES (1, 'old', 0, 'kept')",
        "CREATE TABLE log (id INTEGER, moment TIMESTAMP)",
    )
    text = [
        "CREATE TABLE users (id INT PRIMARY KEY, name STRING, price DECIMAL(10, 2));",
        f"INSERT INTO 'sql://{driver}:{name}?table=copy' SELECT id, name, price, _op FROM CHANGES(users);",
        f"INSERT INTO 'sql://{driver}:{name}?table=log' SELECT id, TIMESTAMP '2024-01-01 10:00:00' AS moment"
        " FROM CHANGES(users);",
        f"INSERT INTO 'sql://{driver}:{name}?table=made' WITH ('create' = 'true', 'key' = 'id')"
        " SELECT id, price FROM CHANGES(users);",
    ]
    app = run(*text)
    app.execute("INSERT INTO users VALUES (1, 'Ann', 1.25), (2, 'Bo', NULL), (3, 'bad', 3)")
    app.execute("DELETE FROM users WHERE id = 2")
    app.execute("UPDATE users SET price = 7.5 WHERE id = 1")
    letters = app.query("SELECT code, reason FROM dead_letters").rows()
    assert [row["code"] for row in letters] == ["MP603"]
    assert "rejects the row: CHECK constraint failed" in letters[0]["reason"].replace("Constraint Error: ", "")
    app.stop()
    assert [(i, n, float(p), t) for i, n, p, t in found(path, "SELECT * FROM copy ORDER BY id")] == [
        (1, "Ann", 7.5, "kept")
    ]
    assert [row[0] for row in found(path, "SELECT id FROM log ORDER BY id")] == [1, 1, 2, 2, 3]
    assert "2024-01-01 10:00:00" in str(found(path, "SELECT moment FROM log")[0][0])
    assert [(i, p if p is None else float(p)) for i, p in found(path, "SELECT * FROM made ORDER BY id")] == [
        (1, 7.5),
        (2, None),
        (3, 3.0),
    ]


def test_a_server_with_a_login_is_read(postgresql: Database, run: App) -> None:
    """The rest of the URI is that of SQLAlchemy, with its slashes."""
    postgresql.execute(
        "CREATE TABLE users (id INT PRIMARY KEY, name TEXT)", "INSERT INTO users VALUES (1, 'Ann'), (2, NULL)"
    )
    place = postgresql.uri.replace("postgresql:", "sql://postgresql+psycopg:")
    query = '"SELECT id, name FROM users WHERE id < ?"'
    app = run(
        f"CREATE TABLE users AS SELECT * FROM {place}?table=users;",
        f"CREATE TABLE seven AS SELECT 7 AS seven FROM {place}?query={query} WITH ('query.params' = '[2]');",
        f'CREATE TABLE made AS SELECT id FROM {place}?query="SELECT 3 AS id" WITH ("driver" = "postgresql+psycopg");',
        once=True,
    )
    assert app.query("SELECT * FROM users ORDER BY id").rows() == [{"id": 1, "name": "Ann"}, {"id": 2, "name": None}]
    assert app.query("SELECT * FROM seven").rows() == [{"seven": 7}]
    assert app.query("SELECT * FROM made").rows() == [{"id": 3}]
    with pytest.raises(mp.MillpondError) as caught:
        run(f"CREATE TABLE users AS SELECT * FROM {place.replace('hunter2', 'wrong1')}?table=users;", once=True)
    assert "wrong1" not in str(caught.value)
