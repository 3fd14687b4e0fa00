"""Tables loaded from MariaDB: columns, values, and how they keep up."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from tests.databases.servers import Database, Server, until

import millpond as mp

App = Callable[..., mp.App]
USERS = (
    "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20), credit DECIMAL(12, 2))",
    "INSERT INTO users VALUES (1, 'Ann', 1.50), (2, 'Bo', NULL)",
)


def rows(app: mp.App, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in app.query(query).rows())


def test_columns_key_and_values_are_those_of_the_server(mysql: Database, run: App) -> None:
    mysql.execute(
        "CREATE TABLE every (t TINYINT, ut TINYINT UNSIGNED, i INT, ui INT UNSIGNED, b BIGINT, ub BIGINT UNSIGNED,"
        " f FLOAT, d DOUBLE, n DECIMAL(30, 10), s VARCHAR(9), x TEXT, y VARBINARY(9), day DATE, at DATETIME(6),"
        " ts TIMESTAMP NULL, h TIME, e ENUM('a', 'b'), j JSON, yr YEAR, PRIMARY KEY (i, s))",
        "INSERT INTO every VALUES (-5, 250, 1, 4000000000, -9223372036854775808, 18446744073709551615, 1.5, 0.1,"
        " 12345678901234567890.0123456789, 'é', 'x', x'00ff', '2024-02-29', '2024-01-01 10:00:00.123456',"
        " '2024-01-01 10:00:00', '-25:00:01', 'b', '{\"a\": 1}', 2024)",
        "SET sql_mode = ''",
        "INSERT INTO every (i, s) VALUES (2, '')",
    )
    app = run(f"CREATE TABLE every AS SELECT * FROM {mysql.uri}?table=every;", once=True)
    assert [row["type"] for row in app.query("DESCRIBE every").rows()] == [
        *("TINYINT", "SMALLINT", "INT", "BIGINT", "BIGINT", "DECIMAL(20,0)", "FLOAT", "DOUBLE", "DECIMAL(30,10)"),
        *("STRING", "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP", "STRING", "STRING", "STRING", "SMALLINT"),
    ]
    assert app.query("SHOW TABLES").rows()[1]["key"] == "i, s"
    first = app.query("SELECT * FROM every WHERE i = 1").rows()[0]
    assert (first["ub"], first["b"], first["ut"]) == (Decimal(2**64 - 1), -(2**63), 250)
    assert first["n"] == Decimal("12345678901234567890.0123456789")
    assert first["at"] == dt.datetime(2024, 1, 1, 10, 0, 0, 123456, dt.UTC)
    assert (first["y"], first["h"], first["e"], first["yr"], first["s"]) == (b"\x00\xff", "-25:00:01", "b", 2024, "é")


def test_a_zero_date_is_null(mysql: Database, run: App) -> None:
    mysql.execute(
        "CREATE TABLE z (id INT PRIMARY KEY, day DATE, at DATETIME)",
        "SET sql_mode = ''",
        "INSERT INTO z VALUES (1, '0000-00-00', '0000-00-00 00:00:00'), (2, '2024-00-10', '2024-01-02 03:04:05')",
    )
    app = run(f"CREATE TABLE z AS SELECT * FROM {mysql.uri}?table=z;", once=True)
    assert rows(app, "SELECT id, day FROM z") == [(1, None), (2, None)]
    assert app.query("SELECT at FROM z WHERE id = 2").rows()[0]["at"] == dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def test_rows_of_which_no_column_is_needed_are_counted(mysql: Database, run: App) -> None:
    mysql.execute(*USERS)
    app = run(f"CREATE TABLE t AS SELECT 7 AS seven FROM {mysql.uri}?table=users;", once=True)
    assert rows(app, "SELECT * FROM t") == [(7,), (7,)]


def test_a_poll_finds_inserts_updates_and_deletes(mysql: Database, run: App) -> None:
    mysql.execute(*USERS)
    app = run(f"CREATE TABLE users AS SELECT * FROM {mysql.uri}?table=users WITH ('poll.interval' = '50ms');")
    mysql.transaction(
        "DELETE FROM users WHERE id = 1", "UPDATE users SET name = 'Bob'", "INSERT INTO users VALUES (3, 'Cy', 0)"
    )
    until(lambda: rows(app, "SELECT id, name FROM users") == [(2, "Bob"), (3, "Cy")])


def test_queries_parameters_conditions_and_reading_on(mysql: Database, run: App) -> None:
    mysql.execute(*USERS)
    text = f"""SET connection.crm = '{mysql.uri}';
        CREATE TABLE one AS SELECT * FROM {mysql.uri}?query="SELECT id FROM users WHERE name = ? AND name LIKE 'A%'"
          WITH ('query.params' = 'Ann');
        CREATE TABLE two AS SELECT id FROM mariadb://crm/users WITH ('where' = 'credit IS NULL', 'fetch.size' = '1');
        CREATE TABLE three AS SELECT upper(name) AS name FROM mysql://crm/users WHERE credit > 1 AND name = 'Ann';
        CREATE TABLE users AS SELECT * FROM mysql://crm/users WITH ('incremental.column' = 'id');"""
    app = run(text, once=True)
    assert [rows(app, f"SELECT * FROM {name}") for name in ("one", "two", "three")] == [[(1,)], [(2,)], [("ANN",)]]
    mysql.execute("INSERT INTO users VALUES (3, 'Cy', 0)", "UPDATE users SET name = 'not seen' WHERE id = 1")
    app = run(text, once=True)
    assert rows(app, "SELECT id, name FROM users") == [(1, "Ann"), (2, "Bo"), (3, "Cy")]


def test_a_server_that_goes_away_leaves_the_table_usable(own_mysql: Server, run: App) -> None:
    database = own_mysql.database()
    database.execute(*USERS)
    options = "'poll.interval' = '50ms', 'retry.interval' = '50ms', 'retry.max.delay' = '200ms'"
    app = run(f"CREATE TABLE users AS SELECT * FROM {database.uri}?table=users WITH ({options});")
    own_mysql.stop()
    until(lambda: app.query("SHOW SOURCES").rows()[0]["health"] == "disconnected")
    assert app.query("SHOW TABLES").rows()[1]["state"] == "stale"
    own_mysql.start()
    database.execute("DELETE FROM users WHERE id = 1")
    until(lambda: rows(app, "SELECT id FROM users") == [(2,)])


def test_a_certificate_is_verified(mysql: Database, mysql_server: Server, run: App) -> None:
    """By the connections of a load, of change capture and of a sink."""
    mysql.execute(*USERS, "CREATE TABLE copies LIKE users")
    options = f"'ssl.mode' = 'verify-full', 'ssl.root.cert' = '{mysql_server.certificate}'"
    app = run(
        f"CREATE TABLE users AS SELECT * FROM {mysql.uri}?table=users WITH ('cdc' = 'true', {options});"
        f"INSERT INTO {mysql.uri}?table=copies WITH ({options}) SELECT * FROM CHANGES(users);",
        once=True,
    )
    assert rows(app, "SELECT id FROM users") == sorted(mysql.rows("SELECT id FROM copies")) != []


@pytest.mark.parametrize(
    ("what", "options", "expected"),
    [
        ("?table=userz", "", r"MP508.*no table or view 'userz'(.|\n)*Did you mean 'users'"),
        ("x?table=users", "", r"MP50[78]"),
        ('?query="SELECT nope FROM users"', "", r"MP508.*Unknown column 'nope'"),
        ('?query="SELECT SLEEP(100) AS s"', "'query.timeout' = '200ms'", r"MP502.*interrupted"),
        ("?table=users", "'ssl.mode' = 'verify-full'", r"MP508.*encrypted connection"),
    ],
)
def test_mistakes_are_errors_that_name_them(mysql: Database, run: App, what: str, options: str, expected: str) -> None:
    mysql.execute(*USERS)
    with_ = f" WITH ({options})" if options else ""
    with pytest.raises(mp.MillpondError, match=expected) as caught:
        run(f"CREATE TABLE t AS SELECT * FROM {mysql.uri}{what}{with_};", once=True)
    assert "hunter2" not in str(caught.value)


def test_a_wrong_login_and_a_server_that_is_not_there(mysql: Database, run: App) -> None:
    uri = mysql.uri.replace("hunter2", "wrong")
    with pytest.raises(mp.MillpondError, match=r"MP507.*rejects the login"):
        run(f"CREATE TABLE t AS SELECT * FROM {uri}?table=users;", once=True)
    with pytest.raises(mp.MillpondError, match=r"MP506.*cannot be reached"):
        run("CREATE TABLE t AS SELECT * FROM mysql://ann:secret@localhost:1/db?table=users;", once=True)
