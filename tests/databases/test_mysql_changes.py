"""Tables that follow the changes of MariaDB by its binary log."""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.databases.servers import Database, MariaDB, Server, until
from tests.seeds import FRESH

import millpond as mp
from millpond.sources.databases.mysql import changes

App = Callable[..., mp.App]
USERS = (
    "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20), credit DECIMAL(12, 2))",
    "INSERT INTO users VALUES (1, 'Ann', 1.50), (2, 'Bo', NULL)",
)


def captured(database: Database, table: str = "users", **options: str) -> str:
    given = {"cdc": "true", "retry.interval": "50ms", "retry.max.delay": "200ms", **options}
    listed = ", ".join(f"'{name.replace('_', '.')}' = '{value}'" for name, value in given.items())
    return f"CREATE TABLE {table} AS SELECT * FROM {database.uri}?table={table} WITH ({listed});"


def rows(app: mp.App, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in app.query(query).rows())


def follows(app: mp.App, database: Database, table: str = "users") -> None:
    """Wait until the table equals that of the server."""
    query = f"SELECT * FROM {table}"
    until(
        lambda: rows(app, query) == sorted(database.rows(query)),
        lambda: (rows(app, query), app.query("SHOW SOURCES").rows()),
    )


def test_inserts_updates_deletes_key_changes_and_truncate(mysql: Database, run: App) -> None:
    mysql.execute(*USERS)
    app = run(captured(mysql))
    assert rows(app, "SELECT id, name, credit FROM users") == [(1, "Ann", Decimal("1.50")), (2, "Bo", None)]
    mysql.transaction(
        "INSERT INTO users VALUES (3, 'Cy', 3)",
        "UPDATE users SET name = 'Bob' WHERE id = 2",
        "UPDATE users SET id = 10 WHERE id = 1",
        "DELETE FROM users WHERE id = 3",
        "INSERT INTO users VALUES (1, 'new', -0.01)",
    )
    follows(app, mysql)
    assert rows(app, "SELECT id, name FROM users") == [(1, "new"), (2, "Bob"), (10, "Ann")]
    mysql.execute("TRUNCATE TABLE users", "INSERT INTO users VALUES (7, 'after', NULL)")
    follows(app, mysql)
    mysql.execute("DROP TABLE users", *USERS)
    follows(app, mysql)


def test_transactions_over_tables_and_databases_are_one_commit_each(mysql: Database, run: App) -> None:
    other = mysql.server.database()
    mysql.execute(*USERS)
    other.execute("CREATE TABLE orders (id INT PRIMARY KEY, user_id INT)")
    app = run(captured(mysql), captured(other, "orders"))
    for n in range(20):
        mysql.transaction(
            f"INSERT INTO users VALUES ({100 + n}, 'x', 0)", f"INSERT INTO {other.name}.orders VALUES ({n}, {100 + n})"
        )
        query = "SELECT (SELECT count(*) FROM users) AS u, (SELECT count(*) FROM orders) AS o"
        ((users, orders),) = rows(app, query)
        assert users == orders + 2
    until(lambda: rows(app, "SELECT count(*) FROM orders") == [(20,)])


VALUES = (
    "(1, POINT(3, 4), -128, 255, -32768, 65535, -8388608, 16777215, -5, 4000000000, -9223372036854775808,"
    " 18446744073709551615, 1.1, 0.1, -12345678901234567890.0123456789, -1.5, 0.00001,"
    " 99999999999999999999999999999999999999, 'é', 'é', 'é', 'é',"
    " 'x', x'00ff00', x'ff00', x'00ff', '2024-02-29', '2024-01-01 10:00:00.123456', '2024-01-01 10:00:00.12',"
    " '2024-01-01 10:00:00', '2024-01-01 10:00:00.123', '-25:00:01', '838:59:59.5', 'b', 'a,c', '{\"a\": 1}', 2024,"
    " b'101', '6ccd780c-baba-1026-9564-5b8c656024db', '2001:db8::ff00:42:8329', '1.2.3.4', POINT(1, 2))",
    "(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '', '',"
    " '', '', '', '', '', '', '1000-01-01', '9999-12-31 23:59:59.999999', '1000-01-01 00:00:00', '1000-01-01',"
    " '1970-01-01 00:00:01', '00:00:00', '-00:00:00.5', 'a', '', NULL, 1901, b'1000000000', NULL, '::', '255.0.0.0',"
    " NULL)",
    "(3, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -0.5, -99999.99999, -1, 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x',"
    " '0000-00-00', '0000-00-00', '2024-00-10', '2024-02-29 23:59:59', '0000-00-00', '-838:59:59', '0:0:1', 'c',"
    " 'a,b,c', '[]', 2155, b'0', 'fcc0e0a1-1111-7abc-8def-000000000001', '::ffff:1.2.3.4', '0.0.0.0', NULL)",
)
EVERY = (
    "CREATE TABLE {} (id INT PRIMARY KEY, g0 POINT, t TINYINT, ut TINYINT UNSIGNED, s SMALLINT,"
    " us SMALLINT UNSIGNED, m MEDIUMINT, um MEDIUMINT UNSIGNED, i INT, ui INT UNSIGNED, b BIGINT, ub BIGINT UNSIGNED,"
    " f FLOAT, d DOUBLE,"
    " n DECIMAL(30, 10), n1 DECIMAL(2, 1), n2 DECIMAL(10, 5), n3 DECIMAL(38, 0), u8 VARCHAR(9),"
    " l1 VARCHAR(9) CHARACTER SET latin1,"
    " u16 CHAR(9) CHARACTER SET utf16, long_ VARCHAR(300), x TEXT, y VARBINARY(9), z BINARY(4), bl BLOB, day DATE,"
    " a6 DATETIME(6), a2 DATETIME(2), a0 DATETIME, ts TIMESTAMP(3) NULL, h TIME, h1 TIME(1), e ENUM('a', 'b', 'c'),"
    " st SET('a', 'b', 'c'), j JSON, yr YEAR, bits BIT(10), uu UUID, i6 INET6, i4 INET4, g POINT)"
)


@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
def test_every_type_is_the_same_by_a_snapshot_and_by_a_change(mysql: Database, run: App, metadata: str) -> None:
    """The same rows, once in the table when it is loaded, once written afterwards."""
    mysql.execute(
        f"SET GLOBAL binlog_row_metadata = '{metadata}'",
        "SET sql_mode = ''",
        *(EVERY.format(name) for name in ("loaded", "changed")),
        *(f"INSERT INTO loaded VALUES {row}" for row in VALUES),
    )
    zone = {"time_zone": "Europe/Berlin"}
    app = run(captured(mysql, "loaded", **zone), captured(mysql, "changed", **zone))
    mysql.execute("SET sql_mode = ''", *(f"INSERT INTO changed VALUES {row}" for row in VALUES))
    until(lambda: rows(app, "SELECT count(*) FROM changed") == [(3,)], app.query("SHOW SOURCES").rows)
    loaded, changed = (app.query(f"SELECT * FROM {name} ORDER BY id").rows() for name in ("loaded", "changed"))
    pairs = [(a[name], b[name], name) for a, b in zip(loaded, changed, strict=True) for name in a]
    assert [pair for pair in pairs if pair[0] != pair[1]] == []
    first, _, third = changed
    assert (first["ub"], first["n"]) == (Decimal(2**64 - 1), Decimal("-12345678901234567890.0123456789"))
    assert (first["l1"], first["u16"], first["z"], first["st"]) == ("é", "é", b"\xff\0\0\0", "a,c")
    assert (first["h"], first["h1"], first["bits"], first["i6"]) == (
        *("-25:00:01", "838:59:59.5", b"\0\x05", "2001:db8::ff00:42:8329"),
    )
    assert first["uu"] == "6ccd780c-baba-1026-9564-5b8c656024db"
    assert (third["day"], third["a6"], third["a2"], third["ts"]) == (None, None, None, None)
    mysql.execute("SET GLOBAL binlog_row_metadata = 'FULL'")


def test_changes_while_the_app_is_stopped_are_taken_at_the_next_start(mysql: Database, run: App) -> None:
    mysql.execute(*USERS)
    run(captured(mysql), once=True)
    mysql.execute(
        "DELETE FROM users WHERE id = 1",
        "FLUSH BINARY LOGS",
        "INSERT INTO users SELECT seq, 'n', seq FROM seq_10_to_30000",
    )
    app = run(captured(mysql), once=True)
    assert rows(app, "SELECT count(*), sum(id) FROM users") == mysql.rows("SELECT count(*), sum(id) FROM users")


def test_a_table_that_is_added_later_has_its_own_snapshot(mysql: Database, run: App) -> None:
    mysql.execute(*USERS, "CREATE TABLE orders (id INT PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    run(captured(mysql), once=True)
    mysql.transaction("INSERT INTO orders VALUES (2)", "INSERT INTO users VALUES (3, 'Cy', 3)")
    app = run(captured(mysql), captured(mysql, "orders"))
    mysql.transaction("INSERT INTO orders VALUES (3)", "DELETE FROM users WHERE id = 1")
    follows(app, mysql)
    follows(app, mysql, "orders")


@pytest.fixture
def own(own_mysql: Server) -> Database:
    """A database of a server whose log a test may remove."""
    return own_mysql.database()


def test_a_log_that_was_purged_is_replaced_by_a_new_snapshot_or_an_error(own: Database, run: App) -> None:
    own.execute(*USERS, "CREATE TABLE strict (id INT PRIMARY KEY)", "INSERT INTO strict VALUES (1)")
    text = [captured(own), captured(own, "strict", cdc_lost="fail", server_id="5")]
    run(*text, once=True)
    own.execute("DELETE FROM users WHERE id = 1", "DELETE FROM strict", "FLUSH BINARY LOGS")
    own.execute("INSERT INTO users VALUES (3, 'Cy', NULL)")
    ((file, *_),) = own.rows("SHOW MASTER STATUS")

    def is_purged() -> bool:
        # The server keeps a log as long as it has not noticed that its reader has left.
        own.execute(f"PURGE BINARY LOGS TO '{file}'")
        return bool(own.rows("SHOW BINARY LOGS")[0][0] == file)

    until(is_purged, lambda: own.rows("SHOW PROCESSLIST"))
    app = run(*text)
    follows(app, own)
    own.execute("DELETE FROM users WHERE id = 3")
    follows(app, own)
    until(lambda: {row["name"]: row["state"] for row in app.query("SHOW TABLES").rows()}["strict"] == "stale")
    assert rows(app, "SELECT id FROM strict") == [(1,)]


def test_a_log_that_begins_again_is_replaced_by_a_new_snapshot(
    own_mysql: Server, own: Database, run: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RESET MASTER beneath an app that follows, and beneath one that is stopped."""
    monkeypatch.setattr(changes, "ASKED_S", 0.05)
    own.execute(*USERS)
    app = run(captured(own))
    own.execute("RESET MASTER", "INSERT INTO users VALUES (3, 'Cy', 3)")
    follows(app, own)
    own.execute("DELETE FROM users WHERE id = 1")
    follows(app, own)
    app.stop()
    own.execute("RESET MASTER", "INSERT INTO users VALUES (4, 'Di', 4)")
    app = run(captured(own))
    follows(app, own)
    assert [p.code for p in app.progress().problems if "it was reset" in p.message] == ["MP513"]


def test_a_server_that_restarts_is_followed_again(own_mysql: Server, own: Database, run: App) -> None:
    own.execute(*USERS)
    app = run(captured(own))
    own_mysql.stop()
    until(lambda: app.query("SHOW SOURCES").rows()[0]["health"] == "disconnected")
    assert app.query("SHOW TABLES").rows()[1]["state"] == "stale"
    own_mysql.start()
    own.execute("DELETE FROM users WHERE id = 1")
    follows(app, own)
    until(lambda: app.query("SHOW SOURCES").rows()[0]["health"] == "healthy")


def test_rows_that_the_log_does_not_have_are_compared_with_a_new_snapshot(mysql: Database, run: App) -> None:
    """Statements instead of rows, parts of rows, a table in place of another, a distributed transaction."""
    mysql.execute(*USERS, "CREATE TABLE fresh LIKE users", "INSERT INTO fresh VALUES (5, 'Eve', 5)")
    app = run(captured(mysql))
    mysql.execute("SET binlog_format = 'STATEMENT'", "UPDATE users SET credit = 7 WHERE id = 1")
    follows(app, mysql)
    mysql.execute("SET binlog_row_image = 'MINIMAL'", "UPDATE users SET credit = 8 WHERE id = 1")
    follows(app, mysql)
    mysql.execute(
        "XA START 'a'", "INSERT INTO users VALUES (9, 'XA', 9)", "XA END 'a'", "XA PREPARE 'a'", "XA COMMIT 'a'"
    )
    follows(app, mysql)
    mysql.execute("RENAME TABLE users TO old, fresh TO users")
    follows(app, mysql)
    mysql.execute("DELETE FROM users WHERE id = 5")
    follows(app, mysql)


def test_without_a_key_the_error_names_what_is_needed(mysql: Database, run: App) -> None:
    mysql.execute("CREATE TABLE log (a INT, b TEXT)", "INSERT INTO log VALUES (1, 'x')")
    with pytest.raises(mp.MillpondError, match=r"MP514(.|\n)*no primary key(.|\n)*'key'"):
        run(captured(mysql, "log"), once=True)
    app = run(captured(mysql, "log", key="a"), accept=True)
    mysql.transaction("INSERT INTO log VALUES (2, 'y')", "UPDATE log SET a = 5 WHERE a = 1")
    follows(app, mysql, "log")


def test_a_user_who_may_not_replicate_is_an_error_that_names_the_privilege(mysql: Database, run: App) -> None:
    mysql.execute(
        *USERS, "CREATE OR REPLACE USER eve@'%' IDENTIFIED BY 'pw'", f"GRANT SELECT ON {mysql.name}.* TO eve@'%'"
    )
    uri = f"mysql://eve:pw@localhost:{mysql.server.port}/{mysql.name}"
    text = f"CREATE TABLE users AS SELECT * FROM {uri}?table=users WITH ('cdc' = 'true'{{}});"
    with pytest.raises(mp.MillpondError, match=r"MP514(.|\n)*may not replicate(.|\n)*GRANT REPLICATION SLAVE"):
        run(text.format(""), once=True)
    app = run(text.format(", 'cdc.fallback' = 'poll', 'poll.interval' = '50ms'"), accept=True)
    mysql.execute("DELETE FROM users WHERE id = 1")
    follows(app, mysql)
    mysql.execute("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO eve@'%'")
    app = run(text.format(""), accept=True)
    mysql.execute("DELETE FROM users WHERE id = 2")
    follows(app, mysql)


@pytest.mark.parametrize(
    ("setting", "value", "hint"), [("binlog_format", "MIXED", "ROW"), ("binlog_row_image", "MINIMAL", "FULL")]
)
def test_a_wrong_setting_of_the_log_is_an_error_that_names_it(
    mysql: Database, run: App, setting: str, value: str, hint: str
) -> None:
    mysql.execute(*USERS, f"SET GLOBAL {setting} = '{value}'")
    try:
        with pytest.raises(
            mp.MillpondError, match=rf"MP514(.|\n)*its {setting} is '{value}'(.|\n)*{setting} = '{hint}'"
        ):
            run(captured(mysql), once=True)
    finally:
        mysql.execute(f"SET GLOBAL {setting} = '{hint}'")


def test_a_server_without_a_log_is_an_error_that_names_the_setting(run: App) -> None:
    server = MariaDB()
    server.settings = {"skip-log-bin": "1"}
    try:
        server.start()
        database = server.database()
        database.execute(*USERS)
        with pytest.raises(mp.MillpondError, match=r"MP514(.|\n)*its log_bin is 'OFF'(.|\n)*log_bin and server_id"):
            run(captured(database), once=True)
    finally:
        server.remove()


def test_capture_starts_where_the_options_say(mysql: Database, run: App, tmp_path: Path) -> None:
    mysql.execute(*USERS)
    ((file, position, *_),) = mysql.rows("SHOW MASTER STATUS")
    ((gtids,),) = mysql.rows("SELECT @@gtid_binlog_pos")
    mysql.execute("INSERT INTO users VALUES (3, 'Cy', 3)", "UPDATE users SET name = 'Bob' WHERE id = 2")
    given = [{"binlog_file": file, "binlog_position": str(position), "server_id": "77"}, {"cdc_start": gtids}]
    for options in given:
        app = run(captured(mysql, **options), once=True, accept=True)
        assert rows(app, "SELECT id, name FROM users") == [(2, "Bob"), (3, "Cy")]
        app.stop()
        (tmp_path / "state").rename(tmp_path / f"state of {len(options)}")
    app = run(captured(mysql, cdc_start="latest", initial_load="none"))
    mysql.execute("INSERT INTO users VALUES (4, 'Di', 4)")
    until(lambda: rows(app, "SELECT id FROM users") == [(4,)])
    app.stop()
    (tmp_path / "state").rename(tmp_path / "state of none")
    follows(run(captured(mysql, cdc_start="latest", initial_load="full"), once=True), mysql)


def test_columns_that_are_added_dropped_or_retyped(mysql: Database, run: App) -> None:
    mysql.execute(*USERS)
    app = run(captured(mysql))
    mysql.execute(
        "ALTER TABLE users ADD COLUMN age INT DEFAULT 7",
        "ALTER TABLE users DROP COLUMN credit",
        "ALTER TABLE users MODIFY id BIGINT",
        "INSERT INTO users VALUES (3, 'Cy', 8)",
    )
    until(lambda: rows(app, "SELECT id, name, credit FROM users WHERE id = 3") == [(3, "Cy", None)])
    app = run(captured(mysql))
    assert rows(app, "SELECT id, name, age FROM users WHERE id = 3") == [(3, "Cy", 8)]


def test_a_compressed_log_is_read(mysql: Database, run: App) -> None:
    mysql.execute(*USERS, "SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10")
    try:
        app = run(captured(mysql))
        mysql.execute("INSERT INTO users SELECT seq, repeat('n', 20), seq FROM seq_10_to_2000")
        mysql.execute("UPDATE users SET name = repeat('m', 20) WHERE id > 100", "DELETE FROM users WHERE id % 3 = 0")
        follows(app, mysql)
    finally:
        mysql.execute("SET GLOBAL log_bin_compress = OFF")


def test_changes_that_foreign_keys_make_are_warned_of(mysql: Database, run: App) -> None:
    mysql.execute(
        *USERS,
        "CREATE TABLE orders (id INT PRIMARY KEY, user_id INT, CONSTRAINT of_user FOREIGN KEY (user_id) REFERENCES"
        " users (id) ON DELETE CASCADE)",
    )
    app = run(captured(mysql, "orders"))
    assert any(p.code == "MP515" and "of_user" in p.message for p in app.progress().problems)


def test_a_snapshot_and_its_changes_have_no_gap_beside_a_writer(mysql: Database, run: App) -> None:
    """A writer inserts, updates and deletes while the snapshot is taken and after it."""
    mysql.execute(
        "CREATE TABLE users (id INT PRIMARY KEY, n INT)", "INSERT INTO users SELECT seq, 0 FROM seq_1_to_5000"
    )
    stop, random_ = threading.Event(), random.Random(FRESH)
    upsert = "INSERT INTO users SELECT seq + {0}, 1 FROM seq_1_to_50 ON DUPLICATE KEY UPDATE n = users.n + 1"

    def write() -> None:
        while not stop.is_set():
            delete = f"DELETE FROM users WHERE id % 17 = {random_.randrange(17)}"
            mysql.transaction(upsert.format(random_.randrange(6000)), delete)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        app = run(captured(mysql, fetch_size="500"))
    finally:
        stop.set()
        writer.join()
    follows(app, mysql)


@pytest.mark.process
@pytest.mark.parametrize("point", ["load.committed", "capture.applied", "capture.committed"])
def test_a_kill_neither_loses_nor_repeats_changes(mysql: Database, tmp_path: Path, point: str) -> None:
    mysql.execute(*USERS)
    (tmp_path / "app.sql").write_text(captured(mysql))
    command = [sys.executable, "-m", "millpond.cli.main", "run", "app.sql", "--once", "--state", "state"]

    def start(fault: str = "") -> int:
        environment = {**os.environ, "MILLPOND_FAULT": fault}
        done = subprocess.run(command, cwd=tmp_path, env=environment, timeout=240, capture_output=True, check=False)
        assert done.returncode in (0, 137), done.stderr.decode()
        return done.returncode

    if point.startswith("capture."):
        assert start() == 0
        mysql.transaction("UPDATE users SET id = 9 WHERE id = 1", "INSERT INTO users VALUES (3, 'Cy', 3)")
    assert start(point) == 137
    mysql.execute("DELETE FROM users WHERE id = 2")
    assert start() == 0
    app = mp.App(tmp_path / "app.sql", state=tmp_path / "state")
    assert rows(app, "SELECT * FROM users") == sorted(mysql.rows("SELECT * FROM users"))
    app.stop()
