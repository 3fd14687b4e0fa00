"""Tables of ClickHouse, read and written: a current engine by HTTP, an old server by its own protocol."""

import datetime as dt
import math
import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.databases.servers import USER, Database, Server, until
from tests.databases.test_postgresql_sink import STREAM, trade, write

import millpond as mp
from millpond.databases.clickhouse.connection import connect

App = Callable[..., mp.App]
USERS = (
    "CREATE TABLE users (id UInt32, name String, credit Nullable(Decimal(12, 2))) ENGINE = MergeTree ORDER BY id",
    "INSERT INTO users SELECT 1, 'Ann', toDecimal64('1.50', 2)",
    "INSERT INTO users SELECT 2, 'Bo', NULL",
)


@pytest.fixture(params=["http", "native"])
def clickhouse(request: pytest.FixtureRequest) -> Database:
    """An empty database, of both servers in turn."""
    server: Server = request.getfixturevalue("chdb_server" if request.param == "http" else "clickhouse_server")
    return server.database()


def protocol(database: Database) -> str:
    return "native" if type(database.server).__name__ == "ClickHouse" else "http"


def uri(database: Database, what: str) -> str:
    return f"{database.uri}?{what}&protocol={protocol(database)}"


def rows(app: mp.App, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in app.query(query).rows())


COMMON = (
    "a UInt64, b Nullable(DateTime), c String, d Array(Nullable(UInt64)), e Decimal(18, 4),"
    " n Nested(x UInt8, y String), u UUID, f FixedString(4), day Date,"
    " en Enum8('a' = 1, 'b' = 2), i8 Int8, u8 UInt8, u16 UInt16, u32 UInt32,"
    " f32 Float32, f64 Float64, days Array(Date)"
)
VALUES = (
    "toUInt64('18446744073709551615'), toDateTime('2024-01-01 10:00:00', 'UTC'), 'é', [1, NULL],"
    " toDecimal64('-1.5', 4), [1, 2], ['q', ''], toUUID('fcc0e0a1-1111-7abc-8def-000000000001'), 'ab',"
    " toDate('2024-02-29'), 'b', -128, 255, 65535, 4294967295, 0.1, 0.1, [toDate('2024-02-29')]"
)


def test_values_have_their_types(clickhouse: Database, run: App) -> None:
    clickhouse.execute(
        f"CREATE TABLE every ({COMMON}) ENGINE = MergeTree ORDER BY a", f"INSERT INTO every SELECT {VALUES}"
    )
    app = run(f"CREATE TABLE every AS SELECT * FROM {uri(clickhouse, 'table=every')};", once=True)
    assert {row["column"]: row["type"] for row in app.query("DESCRIBE every").rows()} == {
        "a": "DECIMAL(20,0)",
        "b": "TIMESTAMP",
        "c": "STRING",
        "d": "ARRAY<DECIMAL(20,0)>",
        "e": "DECIMAL(18,4)",
        "n.x": "ARRAY<SMALLINT>",
        "n.y": "ARRAY<STRING>",
        "u": "STRING",
        "f": "STRING",
        "day": "DATE",
        "en": "STRING",
        "i8": "TINYINT",
        "u8": "SMALLINT",
        "u16": "INT",
        "u32": "BIGINT",
        "f32": "FLOAT",
        "f64": "DOUBLE",
        "days": "ARRAY<DATE>",
    }
    (row,) = app.query("SELECT * FROM every").rows()
    assert (row["a"], row["c"], row["d"]) == (Decimal(2**64 - 1), "é", [Decimal(1), None])
    assert (row["b"], row["e"]) == (dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC), Decimal("-1.5000"))
    assert (row["n.x"], row["n.y"], row["f"], row["en"]) == ([1, 2], ["q", ""], "ab", "b")
    assert (row["u"], row["day"], row["u8"]) == ("fcc0e0a1-1111-7abc-8def-000000000001", dt.date(2024, 2, 29), 255)
    assert (row["u32"], row["days"], row["f64"]) == (4294967295, [dt.date(2024, 2, 29)], 0.1)


def test_values_of_types_that_only_a_current_server_has(chdb_server: Server, run: App) -> None:
    database = chdb_server.database()
    database.execute(
        "CREATE TABLE every (id Int64, t DateTime64(9, 'Europe/Berlin'), l LowCardinality(Nullable(String)),"
        " m Map(String, UInt8), tp Tuple(a UInt8, b String), big Decimal(76, 20), i Int256, ip IPv4, ok Bool,"
        " ts Array(DateTime64(3)), d32 Date32, aa Array(Array(UInt64))) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO every SELECT 1, '2024-01-01 10:00:00.123456789', 'x', map('k', 1), (1, 'b'), 1.5, -7, '1.2.3.4',"
        " true, [toDateTime64('2024-01-01 10:00:00.5', 3, 'UTC')], '1925-01-01', [[1], []]",
        "INSERT INTO every SELECT 2, '2024-01-01 10:00:00', NULL, map(), (1, 'b'),"
        " toDecimal256('123456789012345678901', 20), 1, '1.2.3.4', false, [], '2024-01-01', []",
    )
    app = run(f"CREATE TABLE every AS SELECT * FROM {uri(database, 'table=every')};", once=True)
    (row,) = app.query("SELECT * FROM every").rows()
    assert row["t"] == dt.datetime(2024, 1, 1, 9, 0, 0, 123456, dt.UTC)
    assert (row["l"], row["m"], row["big"], row["i"]) == ("x", '{"k":1}', Decimal("1.5"), Decimal(-7))
    assert (row["ip"], row["ok"], row["aa"]) == ("1.2.3.4", True, [[Decimal(1)], []])
    assert row["ts"] == [dt.datetime(2024, 1, 1, 10, 0, 0, 500000, dt.UTC)]
    assert (row["tp"], row["d32"]) == ('{"a":1,"b":"b"}', dt.date(1925, 1, 1))
    (letter,) = app.query("SELECT code, reason FROM dead_letters").rows()
    assert letter["code"] == "MP504"
    assert "column 'big'" in letter["reason"]


def test_queries_conditions_parameters_and_polls(clickhouse: Database, run: App) -> None:
    clickhouse.execute(*USERS, "CREATE VIEW seen AS SELECT id FROM users WHERE id > 1")
    one = uri(clickhouse, 'query="SELECT id, name FROM users WHERE name = ?"')
    app = run(
        f"CREATE TABLE one AS SELECT * FROM {one} WITH ('query.params' = 'Ann');",
        f"CREATE TABLE two AS SELECT * FROM {uri(clickhouse, 'table=seen')};",
        f"CREATE TABLE three AS SELECT upper(name) AS name FROM {uri(clickhouse, 'table=users')}"
        " WHERE name = 'Bo' AND id >= 2;",
        f"CREATE TABLE users PRIMARY KEY (id) AS SELECT * FROM {uri(clickhouse, 'table=users')}"
        " WITH ('poll.interval' = '50ms', 'key' = 'id');",
        f"CREATE TABLE more AS SELECT * FROM {uri(clickhouse, 'table=users')}"
        " WITH ('poll.interval' = '50ms', 'incremental.column' = 'id', 'key' = 'id');",
    )
    assert [rows(app, f"SELECT * FROM {name}") for name in ("one", "two", "three")] == [[(1, "Ann")], [(2,)], [("BO",)]]
    clickhouse.execute("INSERT INTO users SELECT 3, 'Cy', NULL")
    expected = [(1, "Ann", Decimal("1.50")), (2, "Bo", None), (3, "Cy", None)]
    until(lambda: rows(app, "SELECT * FROM users") == expected)
    until(lambda: rows(app, "SELECT * FROM more") == expected)


def test_wrong_names_and_logins_are_errors(clickhouse: Database, run: App) -> None:
    clickhouse.execute(*USERS)
    with pytest.raises(mp.MillpondError, match=r"MP508(.|\n)*no table or view 'user'(.|\n)*users"):
        run(f"CREATE TABLE users AS SELECT * FROM {uri(clickhouse, 'table=user')};", once=True)
    text = uri(clickhouse, 'query="SELECT nothing FROM users"')
    with pytest.raises(mp.MillpondError, match=r"MP508(.|\n)*nothing"):
        run(f"CREATE TABLE users AS SELECT * FROM {text};", once=True)


def test_a_server_that_does_not_respond_is_an_error(run: App) -> None:
    for by in ("", "&protocol=native"):
        with pytest.raises(mp.MillpondError, match="MP506"):
            run(f"CREATE TABLE users AS SELECT * FROM clickhouse://localhost:1/d?table=users{by};", once=True)


def test_a_wrong_password_is_an_error(clickhouse_server: Server, run: App) -> None:
    place = f"clickhouse://ann:wrong@localhost:{clickhouse_server.port}/default?table=t&protocol=native"
    with pytest.raises(mp.MillpondError, match="MP507"):
        run(f"CREATE TABLE users AS SELECT * FROM {place};", once=True)


def test_a_sink_appends_rows(clickhouse: Database, run: App, tmp_path: Path) -> None:
    by = protocol(clickhouse)
    clickhouse.execute(
        "CREATE TABLE out (id Int64, symbol String, price Nullable(Decimal(12, 2)), day Date, tags Array(String),"
        " CONSTRAINT c CHECK id < 100) ENGINE = MergeTree ORDER BY id"
        if by == "http"
        else "CREATE TABLE out (id Int64, symbol String, price Nullable(Decimal(12, 2)), day Date, tags Array(String))"
        " ENGINE = MergeTree ORDER BY id"
    )
    write(tmp_path, trade(1), trade(2, "é", "null"), *([trade(100)] if by == "http" else []))
    app = run(
        STREAM,
        f"INSERT INTO {clickhouse.uri}?table=out WITH ('protocol' = '{by}')"
        " SELECT id, symbol, price, DATE '2024-02-29' AS day, array('a', 'b') AS tags FROM trades;",
        once=True,
    )
    day = dt.date(2024, 2, 29)
    found = clickhouse.rows("SELECT id, symbol, price, day, tags FROM out ORDER BY id")
    assert [(*row[:4], list(row[4])) for row in found] == [
        (1, "A", Decimal("1.50"), day, ["a", "b"]),
        (2, "é", None, day, ["a", "b"]),
    ]
    letters = app.query("SELECT code, reason FROM dead_letters").rows()
    assert [row["code"] for row in letters] == (["MP603"] if by == "http" else [])


def test_a_sink_makes_its_table_and_sends_an_output_with_its_token(
    chdb_server: Server, run: App, tmp_path: Path
) -> None:
    """The same output, sent again, is recognized by a table that remembers inserts."""
    database = chdb_server.database()
    write(tmp_path, trade(1))
    text = (
        f"INSERT INTO {database.uri}?table=made WITH ('create' = 'true') SELECT id, price, array(1) AS n FROM trades;"
    )
    run(STREAM, text, once=True)
    types = database.rows(f"SELECT name, type FROM system.columns WHERE database = '{database.name}' ORDER BY position")
    assert types == [("id", "Nullable(Int64)"), ("price", "Nullable(Decimal(12, 2))"), ("n", "Array(Nullable(Int32))")]
    database.execute("ALTER TABLE made MODIFY SETTING non_replicated_deduplication_window = 100")
    place = {"host": "localhost", "port": chdb_server.port, "database": database.name, "username": USER}
    connection = connect(
        {**place, "protocol": "http", "ssl.mode": "prefer", "connect.timeout": 10_000_000, "compression": True},
        tmp_path,
    )
    for token in ("a", "a", "b"):
        connection.insert((database.name, "made"), pa.table({"id": [2], "n": [[1]]}), token)
    connection.close()
    assert database.rows("SELECT count() FROM made") == [(3,)]


def test_wrong_columns_are_found_at_the_start(clickhouse: Database, run: App, tmp_path: Path) -> None:
    by = protocol(clickhouse)
    clickhouse.execute("CREATE TABLE out (id Int64, at Date) ENGINE = MergeTree ORDER BY id")
    write(tmp_path, trade(1))
    for query, expected in (
        ("SELECT id, symbol FROM trades", "has no column 'symbol'"),
        ("SELECT id, symbol AS at FROM trades", "cannot store STRING in its column 'at', DATE"),
    ):
        with pytest.raises(mp.MillpondError, match=f"MP601(.|\n)*{expected}"):
            run(STREAM, f"INSERT INTO {clickhouse.uri}?table=out WITH ('protocol' = '{by}') {query};", once=True)


def test_names_are_quoted_and_texts_are_as_they_are(clickhouse: Database, run: App) -> None:
    clickhouse.execute(
        "CREATE TABLE `My T` (`Id x` Int32, `s\u00e9 \\`l` String, f FixedString(3), c0 Float64, c1 String)"
        " ENGINE = MergeTree ORDER BY `Id x`",
        "INSERT INTO `My T` SELECT 1, 'it''s ? \\\\ \\0', 'a', nan, ''",
        "INSERT INTO `My T` SELECT 2, 'b', 'b', -inf, 'c'",
    )
    source = f"'{clickhouse.uri}' WITH ('table' = 'My T', 'protocol' = '{protocol(clickhouse)}')"
    app = run(
        f"CREATE TABLE t AS SELECT * FROM {source};",
        f"CREATE TABLE one AS SELECT `Id x` AS id FROM {source} WHERE `s\u00e9 ``l` = 'b' AND f = 'b';",
        f"CREATE TABLE no_columns AS SELECT 7 AS seven FROM {source};",
        once=True,
    )
    first, second = sorted(app.query("SELECT * FROM t").rows(), key=lambda row: row["Id x"])
    assert list(first.values())[:3] == [1, "it's ? \\ \0", "a"]
    assert (math.isnan(first["c0"]), first["c1"], second["c0"]) == (True, "", -math.inf)
    assert rows(app, "SELECT * FROM one") == [(2,)]
    assert rows(app, "SELECT * FROM no_columns") == [(7,), (7,)]


def test_many_columns(clickhouse: Database, run: App) -> None:
    names = [f"c{n}" for n in range(1600)]
    clickhouse.execute(
        f"CREATE TABLE wide ({', '.join(f'{name} UInt8' for name in names)}) ENGINE = Log",
        f"INSERT INTO wide SELECT {', '.join(str(n % 256) for n in range(1600))}",
    )
    app = run(f"CREATE TABLE wide AS SELECT c7, c1599 FROM {uri(clickhouse, 'table=wide')};", once=True)
    assert rows(app, "SELECT * FROM wide") == [(7, 1599 % 256)]


def test_conditions_on_types_that_are_texts_only_here(clickhouse: Database, run: App) -> None:
    clickhouse.execute(
        "CREATE TABLE t (id Int32, en Enum8('a' = 1), u UUID, d Date) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO t SELECT 1, 'a', toUUID('fcc0e0a1-1111-7abc-8def-000000000001'), toDate('2024-02-29')",
    )
    for condition, found in (
        ("en = 'other'", []),
        ("u = 'none'", []),
        ("u > 'f' AND en < 'b'", [(1,)]),
        ("d > DATE '1900-01-01' AND d < DATE '2300-01-01' AND d = DATE '2024-02-29'", [(1,)]),
    ):
        app = run(f"CREATE TABLE t AS SELECT id FROM {uri(clickhouse, 'table=t')} WHERE {condition};", once=True)
        assert rows(app, "SELECT * FROM t") == found, condition


def test_a_certificate_is_verified(clickhouse: Database, run: App) -> None:
    clickhouse.execute(*USERS)
    server: Any = clickhouse.server
    place = uri(clickhouse, "table=users").replace(f":{server.port}/", f":{server.encrypted_port}/")
    for options in ("'ssl.mode' = 'require'", f"'ssl.mode' = 'verify-full', 'ssl.root.cert' = '{server.certificate}'"):
        app = run(f"CREATE TABLE users AS SELECT * FROM {place} WITH ({options});", once=True)
        assert len(rows(app, "SELECT id FROM users")) == 2
    with pytest.raises(mp.MillpondError, match=r"MP506(.|\n)*ertificate"):
        run(f"CREATE TABLE users AS SELECT * FROM {place} WITH ('ssl.mode' = 'verify-full');", once=True)


def test_a_server_that_goes_away_leaves_the_table_usable(own_chdb: Server, run: App, tmp_path: Path) -> None:
    database = own_chdb.database()
    database.execute(*USERS, "CREATE TABLE out (id Int64) ENGINE = MergeTree ORDER BY id")
    options = "'poll.interval' = '50ms', 'retry.interval' = '50ms', 'retry.max.delay' = '200ms', 'key' = 'id'"
    write(tmp_path, trade(1))
    app = run(
        f"CREATE TABLE users AS SELECT * FROM {database.uri}?table=users WITH ({options});",
        STREAM,
        f"INSERT INTO {database.uri}?table=out SELECT id FROM trades;",
    )
    until(lambda: database.rows("SELECT id FROM out") == [(1,)])
    own_chdb.stop()
    until(lambda: "disconnected" in {row["health"] for row in app.query("SHOW SOURCES").rows()})
    assert len(rows(app, "SELECT id FROM users")) == 2
    write(tmp_path, trade(2))
    until(lambda: "retrying" in {row["state"] for row in app.query("SHOW FLOWS").rows()})
    own_chdb.start()
    database.execute("INSERT INTO users SELECT 3, 'Cy', NULL")
    until(lambda: len(rows(app, "SELECT id FROM users")) == 3)
    until(lambda: database.rows("SELECT id FROM out ORDER BY id") == [(1,), (2,)])


def test_values_that_a_column_cannot_store_are_dead_letters(clickhouse: Database, run: App, tmp_path: Path) -> None:
    """The server would store other values for most of them."""
    clickhouse.execute(
        "CREATE TABLE out (id UInt8, symbol Nullable(String), price Decimal(4, 2), at DateTime, en Enum8('A' = 1))"
        " ENGINE = MergeTree ORDER BY id"
    )
    write(tmp_path, *map(trade, range(1, 6)))
    app = run(
        STREAM,
        f"INSERT INTO {uri(clickhouse, 'table=out')} SELECT"
        " CASE id WHEN 2 THEN 300 ELSE id END AS id, IF(id = 1, NULL, symbol) AS symbol,"
        " IF(id = 3, NULL, price) AS price, IF(id = 5, 'B', 'A') AS en,"
        " CASE id WHEN 4 THEN TIMESTAMP '1960-01-01 00:00:00' ELSE TIMESTAMP '2024-01-01 10:00:00' END AS at"
        " FROM trades;",
        once=True,
    )
    assert clickhouse.rows("SELECT id, symbol, price, toUnixTimestamp(at), toString(en) FROM out") == [
        (1, None, Decimal("1.50"), 1704103200, "A")
    ]
    letters = app.query("SELECT code, reason FROM dead_letters").rows()
    assert [row["code"] for row in letters] == ["MP603"] * 4
    reasons = " ".join(sorted(row["reason"] for row in letters))
    for part in ("'id', UInt8, cannot store", "'price', Decimal, cannot store a value: NULL", "'at', DateTime"):
        assert part in reasons


@pytest.mark.process
def test_an_output_that_is_sent_again_after_a_kill_is_recognized(chdb_server: Server, tmp_path: Path) -> None:
    database = chdb_server.database()
    window = "non_replicated_deduplication_window = 100"
    database.execute(f"CREATE TABLE out (id Int64) ENGINE = MergeTree ORDER BY id SETTINGS {window}")
    write(tmp_path, trade(1), trade(2))
    (tmp_path / "app.sql").write_text(f"{STREAM}\nINSERT INTO {database.uri}?table=out SELECT id FROM trades;")
    command = [sys.executable, "-m", "millpond.cli.main", "run", "app.sql", "--once", "--state", "state"]
    fault = {**os.environ, "MILLPOND_FAULT": "sink.applied"}
    killed = subprocess.run(command, cwd=tmp_path, env=fault, timeout=240, capture_output=True, check=False)
    assert killed.returncode == 137, killed.stderr.decode()
    mp.App(tmp_path / "app.sql", state=tmp_path / "state").run_once()
    assert database.rows("SELECT id FROM out ORDER BY id") == [(1,), (2,)]
