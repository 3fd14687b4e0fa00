"""The statements from which the surface of databases was taken, as they stand but for their addresses."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.databases.servers import Database, drop_slots

import millpond as mp

USERS = [(1, "Ann", "active", True), (2, "Bo", "away", False)]
# The statement, and what it reads.
POSTGRESQL = (
    ('CREATE TABLE t AS\nSELECT * FROM {}?table=users\nWITH ("cdc" = "true");', USERS),
    (
        "CREATE TABLE t AS\nSELECT * FROM {}?query=\"SELECT * FROM users WHERE status='active'\"\n"
        'WITH ("poll.interval" = "30s");',
        USERS[:1],
    ),
    ("CREATE TABLE t AS SELECT * FROM {}?table=users;", USERS),
    ("CREATE TABLE t AS SELECT * FROM {}?schema=public&table=users;", USERS),
    ('CREATE TABLE t AS SELECT * FROM {}?query="SELECT id, name FROM users WHERE active=true";', [(1, "Ann")]),
    (
        'CREATE TABLE t AS SELECT * FROM {}?table=users\nWITH (\n    "cdc" = "true",\n'
        '    "slot.name" = "velostream_slot"\n);',
        USERS,
    ),
    (
        'CREATE TABLE t AS SELECT * FROM {}?table=users WITH (\n    "poll.interval" = "30s",\n'
        '    "incremental.column" = "id",\n    "poll.query" = "SELECT * FROM users WHERE id > ?"\n);',
        USERS,
    ),
    (
        'CREATE TABLE t AS SELECT * FROM {}?table=users WITH (\n    "initial.load" = "full",\n'
        '    "cdc" = "true",\n    "cdc.start" = "latest"\n);',
        USERS,
    ),
    (
        'CREATE TABLE t AS\nSELECT * FROM sql://driver:{}?query="SELECT * FROM users"\nWITH (\n'
        '    "driver" = "postgresql",\n    "poll.interval" = "60s",\n    "incremental.column" = "id"\n);',
        USERS,
    ),
)
ORDERS = [(1, "active"), (2, "sent")]
MYSQL = (
    (
        "CREATE TABLE t AS\nSELECT id, status FROM {}?table=orders\nWITH (\n"
        '    "cdc" = "true",\n    "binlog.position" = "auto"\n);',
        ORDERS,
    ),
    ("CREATE TABLE t AS SELECT id, status FROM {}?table=orders&where=\"status='active'\";", ORDERS[:1]),
    (
        'CREATE TABLE t AS SELECT id, status FROM {}?query="SELECT * FROM orders WHERE date >= ?"\n'
        'WITH ("query.params" = "2024-01-01");',
        ORDERS[:1],
    ),
    (
        'CREATE TABLE t AS SELECT id, status FROM {}?table=orders\nWITH (\n    "cdc" = "true",\n'
        '    "binlog.file" = "FILE",\n    "binlog.position" = "POSITION"\n);',
        ORDERS,
    ),
)


def read(run: Callable[..., mp.App], text: str) -> list[tuple[Any, ...]]:
    app = run(text, once=True, accept=True)
    return sorted(tuple(row.values()) for row in app.query("SELECT * FROM t").rows())


@pytest.mark.parametrize(("text", "found"), POSTGRESQL)
def test_statements_for_postgresql(
    postgresql: Database, run: Callable[..., mp.App], text: str, found: list[tuple[Any, ...]]
) -> None:
    postgresql.execute(
        "CREATE TABLE users (id INT PRIMARY KEY, name TEXT, status TEXT, active BOOLEAN)",
        "INSERT INTO users VALUES (1, 'Ann', 'active', true), (2, 'Bo', 'away', false)",
    )
    try:
        place = postgresql.uri.partition(":")[2] if "sql://driver" in text else postgresql.uri
        assert read(run, text.format(place).replace("sql://driver:", "sql:")) == found
    finally:
        drop_slots(postgresql)


@pytest.mark.parametrize(("text", "found"), MYSQL)
def test_statements_for_mysql(
    mysql: Database, run: Callable[..., mp.App], text: str, found: list[tuple[Any, ...]]
) -> None:
    mysql.execute("CREATE TABLE orders (id INT PRIMARY KEY, status VARCHAR(10), date DATE)")
    ((file, position, *_),) = mysql.rows("SHOW MASTER STATUS")
    mysql.execute("INSERT INTO orders VALUES (1, 'active', '2024-02-01'), (2, 'sent', '2023-02-01')")
    text = text.format(mysql.uri).replace("FILE", file).replace("POSITION", str(position))
    assert read(run, text) == found
