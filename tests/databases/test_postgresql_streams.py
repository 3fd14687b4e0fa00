"""The changes of a table of PostgreSQL as a stream: each change is an event."""

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.databases.servers import Database, Server, drop_slots, until
from tests.databases.test_postgresql_changes import USERS, rows

import millpond as mp
from millpond.cli.main import main
from millpond.engine.feeds import change_feeder

App = Callable[..., mp.App]
LOG = "CREATE TABLE log AS SELECT id, name, _op AS op, _before.name AS was, _offset AS n FROM changes;"


@pytest.fixture
def database(postgresql: Database) -> Iterator[Database]:
    yield postgresql
    drop_slots(postgresql)


def streamed(database: Database, table: str = "users", **options: str) -> str:
    given = {"cdc": "true", "retry.interval": "50ms", "retry.max.delay": "200ms", **options}
    listed = ", ".join(f"'{name.replace('_', '.')}' = '{value}'" for name, value in given.items())
    return f"CREATE STREAM changes FROM {database.uri}?table={table} WITH ({listed});"


def events(app: mp.App, columns: str = "id, name, op, was") -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in app.query(f"SELECT {columns} FROM log ORDER BY n").rows()]


SNAPSHOT = [(1, "Ann", "snapshot", None), (2, "Bo", "snapshot", None)]


def test_each_change_is_an_event_with_its_operation_and_the_row_before(database: Database, run: App) -> None:
    database.execute(*USERS, "ALTER TABLE users REPLICA IDENTITY FULL")
    app = run(streamed(database), LOG)
    database.transaction("INSERT INTO users VALUES (3, 'Cy', 3)", "UPDATE users SET name = 'Bob' WHERE id = 2")
    database.execute("DELETE FROM users WHERE id = 1")
    until(lambda: len(events(app)) == 5, lambda: (events(app), app.query("SHOW SOURCES").rows()))
    assert events(app)[:2] == SNAPSHOT
    assert events(app)[2:] == [
        (3, "Cy", "insert", None),
        (2, "Bob", "update", "Bo"),
        (1, "Ann", "delete", "Ann"),
    ]
    assert events(app, "n") == [(0,), (1,), (2,), (3,), (4,)]


def test_without_a_full_identity_a_delete_has_only_its_key(database: Database, run: App) -> None:
    database.execute(*USERS)
    app = run(
        streamed(database, initial_load="none"),
        "CREATE TABLE log AS SELECT id, name, _op AS op, _before AS was, _timestamp AS at, _offset AS n FROM changes;",
    )
    database.execute("UPDATE users SET name = 'Bob' WHERE id = 2", "UPDATE users SET id = 5 WHERE id = 2")
    database.execute("DELETE FROM users WHERE id = 1")
    until(lambda: len(events(app, "id")) == 3)
    key_only = [{"id": key, "name": None, "credit": None} for key in (2, 1)]
    found = [(2, "Bob", "update", None), (5, "Bob", "update", key_only[0]), (1, None, "delete", key_only[1])]
    assert events(app) == found
    age = dt.datetime.now(dt.UTC) - events(app, "at")[0][0]
    assert dt.timedelta(0) <= age < dt.timedelta(minutes=5)


def test_once_takes_what_was_there_and_the_next_start_continues(database: Database, run: App) -> None:
    database.execute(*USERS)
    run(streamed(database), LOG, once=True)
    database.execute("INSERT INTO users SELECT g, 'n', g FROM generate_series(10, 30000) g")
    app = run(streamed(database), LOG, once=True)
    assert rows(app, "SELECT count(*), count(DISTINCT id), max(n) FROM log") == [(29993, 29993, 29992)]


def test_a_transaction_is_one_batch(database: Database, run: App) -> None:
    database.execute(*USERS)
    text = streamed(database, max_rows_per_batch="10")
    app = run(text, "CREATE TABLE totals AS SELECT _op AS op, count(*) AS n FROM changes GROUP BY _op;")
    for _ in range(5):
        database.transaction("DELETE FROM users", "INSERT INTO users SELECT g, 'n', g FROM generate_series(1, 1000) g")
        query = "SELECT coalesce(max(n), 0) % 1000 FROM totals WHERE op = 'insert'"
        assert rows(app, query) == [(0,)]
    until(lambda: rows(app, "SELECT n FROM totals WHERE op = 'insert'") == [(5000,)])


def test_debezium_gives_its_envelope(database: Database, run: App) -> None:
    database.execute(*USERS, "ALTER TABLE users REPLICA IDENTITY FULL")
    app = run(
        streamed(database, cdc_format="debezium"),
        "CREATE TABLE log AS SELECT before.id AS was, after.id AS id, op, ts_ms, source.`table` AS t,"
        " source.snapshot AS s, source.lsn AS lsn, _offset AS n FROM changes;",
    )
    database.execute("INSERT INTO users VALUES (3, 'Cy', 3)", "UPDATE users SET id = 4 WHERE id = 3")
    database.execute("DELETE FROM users WHERE id = 4")
    until(lambda: len(events(app, "op")) == 5)
    found = [(None, 1, "r"), (None, 2, "r"), (None, 3, "c"), (3, 4, "u"), (4, None, "d")]
    assert events(app, "was, id, op") == found
    assert {t for (t,) in events(app, "t")} == {"users"}
    assert [s for (s,) in events(app, "s")] == ["true", "true", "false", "false", "false"]
    positions = [lsn for (lsn,) in events(app, "lsn")][2:]
    assert positions == sorted(set(positions))
    assert all(ts > 1_600_000_000_000 for (ts,) in events(app, "ts_ms"))


def test_a_server_that_restarts_is_followed_again(own_postgresql: Server, run: App) -> None:
    database = own_postgresql.database()
    database.execute(*USERS)
    app = run(streamed(database), LOG)
    own_postgresql.stop()
    until(lambda: app.query("SHOW SOURCES").rows()[0]["health"] == "disconnected")
    own_postgresql.start()
    database.execute("DELETE FROM users WHERE id = 1")
    until(lambda: events(app)[2:] == [(1, None, "delete", None)])
    assert app.query("SHOW SOURCES").rows()[0]["health"] == "healthy"


def test_a_slot_that_is_gone_continues_with_a_new_snapshot_or_fails(database: Database, run: App) -> None:
    database.execute(*USERS)
    run(streamed(database), LOG, once=True)
    drop_slots(database)
    app = run(streamed(database), LOG, once=True)
    assert events(app) == SNAPSHOT * 2
    drop_slots(database)
    with pytest.raises(mp.MillpondError, match="MP513"):
        run(streamed(database, cdc_lost="fail"), LOG, once=True)


def test_a_quiet_table_does_not_hold_back_the_log(
    database: Database, run: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feeder, "STORED_S", 0.2)
    database.execute(*USERS, "CREATE TABLE busy (n INT)")
    run(streamed(database), LOG)
    database.execute("INSERT INTO busy SELECT generate_series(1, 1000)")
    ((end,),) = database.rows("SELECT pg_current_wal_flush_lsn()::text")
    query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE database = current_database()"
    until(lambda: database.rows(query, [end]) == [(True,)])


def test_a_table_without_a_key_needs_a_full_identity(database: Database, run: App) -> None:
    database.execute("CREATE TABLE log (id INT, name TEXT)")
    with pytest.raises(mp.MillpondError, match=r"MP514(.|\n)*no primary key(.|\n)*REPLICA IDENTITY FULL"):
        run(streamed(database, "log"), LOG, once=True)
    database.execute("ALTER TABLE log REPLICA IDENTITY FULL", "INSERT INTO log VALUES (1, 'a'), (1, 'a')")
    assert len(events(run(streamed(database, "log"), LOG, once=True))) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", r"MP215(.|\n)*is a table, not a stream(.|\n)*'cdc' = 'true'"),
        (" WITH ('cdc' = 'true', 'cdc.fallback' = 'poll')", "MP303.*'cdc.fallback' has no effect"),
    ],
)
def test_what_is_not_a_stream_is_rejected(tmp_path: Path, options: str, message: str) -> None:
    text = f"CREATE STREAM s FROM postgresql://db/shop?table=t{options}; CREATE TABLE t AS SELECT * FROM s;"
    with pytest.raises(mp.MillpondError, match=message):
        mp.App(sql=text, state=tmp_path / "state")


@pytest.mark.process
def test_kills_neither_lose_nor_repeat_events(database: Database, tmp_path: Path) -> None:
    """Killed when the snapshot is stored, when its events are, when a transaction is passed on, and after a commit."""
    database.execute(*USERS)
    (tmp_path / "app.sql").write_text(f"{streamed(database)}\n{LOG}")
    command = [sys.executable, "-m", "millpond.cli.main", "run", "app.sql", "--once", "--state", "state"]

    def start(fault: str = "") -> int:
        environment = {**os.environ, "MILLPOND_FAULT": fault}
        done = subprocess.run(command, cwd=tmp_path, env=environment, timeout=240, capture_output=True, check=False)
        assert done.returncode in (0, 137), done.stderr.decode()
        return done.returncode

    assert [start("stream.snapshot"), start("feed.remembered")] == [137, 137]
    database.transaction("UPDATE users SET id = 9 WHERE id = 1", "INSERT INTO users VALUES (3, 'Cy', 3)")
    assert [start("stream.changes"), start("flow.committed"), start()] == [137, 137, 0]
    app = mp.App(tmp_path / "app.sql", state=tmp_path / "state")
    assert events(app) == [*SNAPSHOT, (9, "Ann", "update", None), (3, "Cy", "insert", None)]
    app.stop()


def test_doctor_lists_and_drops_the_slot_of_a_stream(
    database: Database, run: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database.execute(*USERS)
    run(streamed(database), LOG, once=True).stop()
    command = ["doctor", str(tmp_path / "app.sql"), "--state", str(tmp_path / "state")]
    assert main(command) == 0
    assert "replication slot millpond_app_" in capsys.readouterr().out
    assert main([*command, "--drop-slots"]) == 0
    assert capsys.readouterr().out.count(": dropped") == 2
    assert database.rows("SELECT 1 FROM pg_replication_slots WHERE database = current_database()") == []
