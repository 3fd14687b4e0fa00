"""'load' = 'lookup' of databases: rows are looked up for the keys of each batch, and nothing is loaded."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.databases.servers import Database, Server, until

import millpond as mp
from millpond.cli.main import main

App = Callable[..., mp.App]
ACCOUNTS = (
    "CREATE TABLE accounts (user_id INT PRIMARY KEY, region VARCHAR(20), credit NUMERIC(12, 2))",
    "INSERT INTO accounts VALUES (1, 'north', 1.50), (2, 'south', NULL), (3, 'north', 3)",
)
TRADES = "CREATE STREAM trades (n INT, user_id INT, region STRING) FROM 'file:trades.jsonl';"
OUT = "CREATE TABLE out (n INT, region STRING, credit DECIMAL(12, 2));"


@pytest.fixture(params=["postgresql", "mysql"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


def feed(folder: Path, *rows: tuple[Any, ...]) -> None:
    with (folder / "trades.jsonl").open("a") as file:
        for n, user, *rest in rows:
            file.write(json.dumps({"n": n, "user_id": user, "region": rest[0] if rest else None}) + "\n")


def joined(database: Database, options: str = "", on: str = "a.user_id = t.user_id", kind: str = "JOIN") -> str:
    uri = f"{database.uri}?table=accounts"
    return (
        f"INSERT INTO out SELECT t.n, a.region, a.credit FROM trades t {kind} {uri} a"
        f" WITH ('load' = 'lookup'{options}) ON {on};"
    )


def rows(app: mp.App, query: str = "SELECT * FROM out ORDER BY n, credit") -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in app.query(query).rows()]


def test_a_join_asks_for_the_rows_of_its_keys(database: Database, run: App, tmp_path: Path) -> None:
    database.execute(*ACCOUNTS)
    feed(tmp_path, (1, 1), (2, 2), (3, 9), (4, None), (5, 1))
    app = run(TRADES, OUT, joined(database, kind="LEFT JOIN"), once=True)
    north, none = ("north", Decimal("1.50")), (None, None)
    assert rows(app) == [(1, *north), (2, "south", None), (3, *none), (4, *none), (5, *north)]


def test_spark_finds_the_same_rows(
    database: Database, run: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLPOND_ENGINE", "spark")
    database.execute(*ACCOUNTS)
    feed(tmp_path, (1, 1), (2, 2), (3, 9), (4, None))
    app = run(TRADES, OUT, joined(database), once=True)
    assert rows(app) == [(1, "north", Decimal("1.50")), (2, "south", None)]


def test_any_column_can_be_compared(database: Database, run: App, tmp_path: Path) -> None:
    database.execute(*ACCOUNTS)
    feed(tmp_path, (1, 1, "north"), (2, 2, "north"), (3, 3, "west"))
    app = run(TRADES, OUT, joined(database, on="a.region = t.region"), once=True)
    found = [(n, "north", Decimal(credit)) for n in (1, 2) for credit in ("1.50", "3.00")]
    assert rows(app) == found
    feed(tmp_path, (4, 1, "north"), (5, 2, "north"))
    app = run(TRADES, OUT, joined(database, on="a.region = t.region AND a.user_id = t.user_id"), once=True, accept=True)
    assert rows(app)[len(found) :] == [(4, "north", Decimal("1.50"))]


def test_a_table_can_be_looked_up(database: Database, run: App, tmp_path: Path) -> None:
    database.execute(*ACCOUNTS)
    feed(tmp_path, (1, 1), (2, 3))
    table = (
        f"CREATE TABLE accounts AS SELECT user_id AS id, region FROM {database.uri}?table=accounts"
        " WITH ('load' = 'lookup');"
    )
    join = "INSERT INTO out (n, region) SELECT t.n, a.region FROM trades t JOIN accounts a ON a.id = t.user_id;"
    app = run(TRADES, OUT, table, join)
    until(lambda: rows(app, "SELECT n, region FROM out ORDER BY n") == [(1, "north"), (2, "north")])
    shown = next(row for row in app.query("SHOW TABLES").rows() if row["name"] == "accounts")
    assert (shown["state"], shown["rows"], shown["backend"]) == ("ready", None, "lookup")
    assert rows(app, "SELECT id, region FROM accounts WHERE id = 2") == [(2, "south")]


def test_rows_and_missing_rows_are_cached_for_their_time(database: Database, run: App, tmp_path: Path) -> None:
    database.execute(*ACCOUNTS)
    feed(tmp_path, (1, 1), (2, 9))
    app = run(TRADES, OUT, joined(database, ", 'cache.ttl' = '1h', 'cache.negative.ttl' = '1ms'", kind="LEFT JOIN"))
    until(lambda: len(rows(app)) == 2)
    database.execute("UPDATE accounts SET region = 'west'", "INSERT INTO accounts VALUES (9, 'east', 1)")
    feed(tmp_path, (3, 1), (4, 9), (5, 2))
    until(lambda: len(rows(app)) == 5)
    assert rows(app, "SELECT n, region FROM out WHERE n > 2 ORDER BY n") == [(3, "north"), (4, "east"), (5, "west")]


def test_a_batch_asks_once_for_all_its_statements(postgresql: Database, run: App, tmp_path: Path) -> None:
    """Without a cache, and with two statements: each of the five keys is asked for once."""
    postgresql.execute(*ACCOUNTS)
    feed(tmp_path, *((n, n % 5) for n in range(500)))
    table = (
        f"CREATE TABLE accounts AS SELECT * FROM {postgresql.uri}?table=accounts"
        " WITH ('load' = 'lookup', 'cache.max_size' = '0');"
    )
    join = "INSERT INTO out SELECT t.n, a.region, a.credit FROM trades t JOIN accounts a ON a.user_id = t.user_id;"
    app = run(TRADES, OUT, table, join, join)
    assert len(rows(app)) == 600
    assert app.table("accounts").stats().cache_misses == 5


def test_a_server_that_is_away_makes_the_flow_wait(own_postgresql: Server, run: App, tmp_path: Path) -> None:
    database = own_postgresql.database()
    database.execute(*ACCOUNTS)
    feed(tmp_path, (1, 1))
    app = run(TRADES, OUT, joined(database, ", 'cache.max_size' = '0'"))
    until(lambda: len(rows(app)) == 1)

    def flows() -> list[dict[str, Any]]:
        return list(app.query("SHOW FLOWS").rows())

    own_postgresql.stop()
    feed(tmp_path, (2, 2))
    until(lambda: "MP506" in str(flows()[0]["error"]), flows)
    own_postgresql.start()
    until(lambda: len(rows(app)) == 2)


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ("INSERT INTO out SELECT t.n FROM s t JOIN {} a WITH ({}) ON a.x > t.n;", "MP516(.|\n)*read as a whole"),
        ("CREATE TABLE a AS SELECT upper(x) AS x FROM {} WITH ({});", "MP516(.|\n)*only select columns"),
        ("CREATE TABLE a AS SELECT * FROM {} WITH ({}, 'durable' = 'false');", "MP303"),
        ("CREATE TABLE a AS SELECT * FROM {} WITH ({}, 'poll.interval' = '5s');", "MP303"),
        ("CREATE TABLE a AS SELECT * FROM {} WITH ({}, 'cdc' = 'true');", "MP508(.|\n)*nothing to follow"),
        ("CREATE TABLE a AS SELECT * FROM {} WITH ('cache.negative.ttl' = '1s');", "MP303"),
        (
            "CREATE TABLE a AS SELECT * FROM {} WITH ({}); CREATE TABLE b AS SELECT x, sum(y) AS y FROM a GROUP BY x;",
            "MP516(.|\n)*cannot be refreshed",
        ),
        ("CREATE TABLE a (x INT) WITH ('backend' = 'lookup');", "MP305"),
    ],
)
def test_what_cannot_be_looked_up_is_rejected(tmp_path: Path, statements: str, message: str) -> None:
    stream = "CREATE STREAM s (n INT) FROM 'file:s.jsonl'; CREATE TABLE out (n INT);"
    text = stream + statements.format("postgresql://db/shop?table=t", "'load' = 'lookup'")
    with pytest.raises(mp.MillpondError, match=message):
        mp.App(sql=text, state=tmp_path / "state")


def test_explain_shows_how_old_rows_may_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "app.sql").write_text(
        "CREATE STREAM t (n INT) FROM 'file:s.jsonl'; CREATE TABLE out (n INT);"
        "INSERT INTO out SELECT t.n FROM t JOIN mysql://db/shop?table=a a WITH ('load' = 'lookup', 'cache.ttl' = '5m')"
        " ON a.n = t.n;"
    )
    assert main(["explain", str(tmp_path / "app.sql")]) == 0
    shown = capsys.readouterr().out
    assert "rows are as new as the cache allows: up to 300 s old, missing ones up to 10 s" in shown
    assert "its source is asked once for the values of n of a batch" in shown
