"""Tables that follow the changes of PostgreSQL by logical replication."""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.databases.servers import Database, PostgreSQL, Server, drop_slots, until
from tests.seeds import FRESH

import millpond as mp
from millpond.cli.main import main
from millpond.contracts.changes import Capture
from millpond.engine import capture
from millpond.sources.databases.postgresql import changes

App = Callable[..., mp.App]
USERS = (
    "CREATE TABLE users (id INT PRIMARY KEY, name TEXT, credit NUMERIC(12, 2))",
    "INSERT INTO users VALUES (1, 'Ann', 1.50), (2, 'Bo', NULL)",
)


@pytest.fixture
def database(postgresql: Database) -> Iterator[Database]:
    """A database whose slots are dropped at the end: the server has few."""
    yield postgresql
    drop_slots(postgresql)


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


def test_inserts_updates_deletes_key_changes_and_truncate(database: Database, run: App) -> None:
    database.execute(*USERS)
    app = run(captured(database))
    assert rows(app, "SELECT id, name, credit FROM users") == [(1, "Ann", Decimal("1.50")), (2, "Bo", None)]
    database.transaction(
        "INSERT INTO users VALUES (3, 'Cy', 3)",
        "UPDATE users SET name = 'Bob' WHERE id = 2",
        "UPDATE users SET id = 10 WHERE id = 1",
        "DELETE FROM users WHERE id = 3",
        "INSERT INTO users VALUES (1, 'new', 0.01)",
    )
    follows(app, database)
    assert rows(app, "SELECT id, name FROM users") == [(1, "new"), (2, "Bob"), (10, "Ann")]
    database.transaction("TRUNCATE users", "INSERT INTO users VALUES (7, 'after', NULL)")
    follows(app, database)


def test_a_transaction_over_several_tables_is_one_commit(database: Database, run: App) -> None:
    database.execute(*USERS, "CREATE TABLE orders (id INT PRIMARY KEY, user_id INT)")
    app = run(captured(database), captured(database, "orders"), "CREATE TABLE both AS SELECT count(*) AS n FROM users;")
    for n in range(20):
        database.transaction(
            f"INSERT INTO users VALUES ({100 + n}, 'x', 0)", f"INSERT INTO orders VALUES ({n}, {100 + n})"
        )
        query = "SELECT (SELECT count(*) FROM users) AS u, (SELECT count(*) FROM orders) AS o"
        ((users, orders),) = rows(app, query)
        assert users == orders + 2
    until(lambda: rows(app, "SELECT count(*) FROM orders") == [(20,)])
    assert database.rows("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(1,)]


def test_values_that_are_stored_apart_and_have_not_changed_stay(database: Database, run: App) -> None:
    database.execute(
        "CREATE TABLE texts (id INT PRIMARY KEY, n INT, body TEXT)",
        "ALTER TABLE texts ALTER body SET STORAGE EXTERNAL",
        "INSERT INTO texts VALUES (1, 1, repeat('long ', 2000)), (2, 1, repeat('more ', 2000))",
    )
    app = run(captured(database, "texts"))
    database.transaction("UPDATE texts SET n = 2 WHERE id = 1", "UPDATE texts SET id = 3, n = 3 WHERE id = 2")
    follows(app, database, "texts")
    assert rows(app, "SELECT id, n, length(body) FROM texts") == [(1, 2, 10000), (3, 3, 10000)]


def test_changes_while_the_app_is_stopped_are_taken_at_the_next_start(database: Database, run: App) -> None:
    database.execute(*USERS)
    run(captured(database), once=True)
    database.execute(
        "DELETE FROM users WHERE id = 1", "INSERT INTO users SELECT g, 'n', g FROM generate_series(10, 30000) g"
    )
    app = run(captured(database), once=True)
    assert rows(app, "SELECT count(*), sum(id) FROM users") == database.rows("SELECT count(*), sum(id) FROM users")


def test_a_table_that_is_added_later_has_its_own_snapshot(database: Database, run: App) -> None:
    database.execute(*USERS, "CREATE TABLE orders (id INT PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    run(captured(database), once=True)
    database.transaction("INSERT INTO orders VALUES (2)", "INSERT INTO users VALUES (3, 'Cy', 3)")
    app = run(captured(database), captured(database, "orders"))
    database.transaction("INSERT INTO orders VALUES (3)", "DELETE FROM users WHERE id = 1")
    follows(app, database)
    follows(app, database, "orders")


def test_a_query_over_captured_rows_is_a_view(database: Database, run: App) -> None:
    database.execute(*USERS)
    app = run(
        f"CREATE TABLE rich AS SELECT id, upper(name) AS name FROM {database.uri}?table=users WHERE credit > 1"
        " WITH ('cdc' = 'true');"
    )
    database.transaction("UPDATE users SET credit = 5 WHERE id = 2", "UPDATE users SET credit = 0 WHERE id = 1")
    until(lambda: rows(app, "SELECT * FROM rich") == [(2, "BO")])


def test_where_captures_rows_that_begin_and_cease_to_satisfy_it(database: Database, run: App) -> None:
    database.execute(*USERS)
    uri = f"""{database.uri}?table=users&where="name <> 'gone' AND credit >= 1" """
    app = run(f"CREATE TABLE users AS SELECT * FROM {uri} WITH ('cdc' = 'true');")
    assert rows(app, "SELECT id, name FROM users") == [(1, "Ann")]
    database.transaction("UPDATE users SET credit = 5 WHERE id = 2", "INSERT INTO users VALUES (3, 'Cy', 0)")
    until(lambda: rows(app, "SELECT id, name FROM users") == [(1, "Ann"), (2, "Bo")])
    database.execute("UPDATE users SET name = 'gone' WHERE id = 1", "UPDATE users SET credit = 1 WHERE id = 3")
    until(lambda: rows(app, "SELECT id, name FROM users") == [(2, "Bo"), (3, "Cy")])


@pytest.mark.parametrize("condition", ["lower(name) = 'ann'", "name LIKE 'A%'", "1 +", "u.id = 1"])
def test_a_where_that_only_the_server_can_evaluate_is_rejected(tmp_path: Path, condition: str) -> None:
    text = f"CREATE TABLE t AS SELECT * FROM 'postgresql://db/shop?table=t&where={condition}' WITH ('cdc' = 'true');"
    with pytest.raises(mp.MillpondError, match="MP508"):
        mp.App(sql=text.replace("'ann'", "''ann''").replace("'A%'", "''A%''"), state=tmp_path / "state")


def test_a_slot_that_is_gone_is_replaced_by_a_new_snapshot(database: Database, run: App) -> None:
    database.execute(*USERS)
    run(captured(database), once=True)
    drop_slots(database)
    database.execute("DELETE FROM users WHERE id = 1", "INSERT INTO users VALUES (3, 'Cy', NULL)")
    app = run(captured(database))
    follows(app, database)
    database.execute("DELETE FROM users WHERE id = 3")
    follows(app, database)


def test_with_fail_a_slot_that_is_gone_is_an_error(database: Database, run: App) -> None:
    database.execute(*USERS)
    text = captured(database, cdc_lost="fail")
    run(text, once=True)
    drop_slots(database)
    database.execute("DELETE FROM users WHERE id = 1")
    app = run(text)
    assert app.query("SHOW TABLES").rows()[1]["state"] == "stale"
    assert len(rows(app, "SELECT id FROM users")) == 2


def test_a_server_that_restarts_is_followed_again(own_postgresql: Server, run: App) -> None:
    database = own_postgresql.database()
    database.execute(*USERS)
    app = run(captured(database))
    own_postgresql.stop()
    until(lambda: app.query("SHOW SOURCES").rows()[0]["health"] == "disconnected")
    assert app.query("SHOW TABLES").rows()[1]["state"] == "stale"
    own_postgresql.start()
    database.execute("DELETE FROM users WHERE id = 1")
    follows(app, database)
    until(lambda: app.query("SHOW SOURCES").rows()[0]["health"] == "healthy")


def test_without_a_key_the_error_names_what_is_needed(database: Database, run: App) -> None:
    database.execute("CREATE TABLE log (a INT, b TEXT)", "INSERT INTO log VALUES (1, 'x')")
    with pytest.raises(mp.MillpondError, match=r"MP514(.|\n)*no primary key(.|\n)*REPLICA IDENTITY FULL"):
        run(captured(database, "log"), once=True)
    with pytest.raises(mp.MillpondError, match=r"MP514(.|\n)*does not send its key(.|\n)*REPLICA IDENTITY FULL"):
        run(captured(database, "log", key="a"), once=True, accept=True)
    database.execute("ALTER TABLE log REPLICA IDENTITY FULL")
    app = run(captured(database, "log", key="a"), accept=True)
    database.transaction("INSERT INTO log VALUES (2, 'y')", "UPDATE log SET a = 5 WHERE a = 1")
    follows(app, database, "log")


def test_a_user_who_may_not_replicate_is_an_error_that_names_the_privilege(database: Database, run: App) -> None:
    database.execute(
        *USERS, "DROP ROLE IF EXISTS eve", "CREATE ROLE eve LOGIN PASSWORD 'pw'", "GRANT SELECT ON users TO eve"
    )
    uri = f"postgresql://eve:pw@localhost:{database.server.port}/{database.name}"
    text = f"CREATE TABLE users AS SELECT * FROM {uri}?table=users WITH ('cdc' = 'true'{{}});"
    with pytest.raises(mp.MillpondError, match=r'MP514(.|\n)*may not replicate(.|\n)*ALTER ROLE "eve" REPLICATION'):
        run(text.format(""), once=True)
    app = run(text.format(", 'cdc.fallback' = 'poll', 'poll.interval' = '50ms'"), accept=True)
    database.execute("DELETE FROM users WHERE id = 1")
    follows(app, database)


def test_latest_and_no_initial_load_begin_empty(database: Database, run: App) -> None:
    database.execute(*USERS)
    app = run(captured(database, cdc_start="latest"))
    database.execute("INSERT INTO users VALUES (3, 'Cy', 3)", "UPDATE users SET name = 'Bob' WHERE id = 2")
    until(lambda: rows(app, "SELECT id, name FROM users") == [(2, "Bob"), (3, "Cy")])


def test_latest_with_an_initial_load_has_the_existing_rows(database: Database, run: App) -> None:
    database.execute(*USERS)
    app = run(captured(database, cdc_start="latest", initial_load="full", cdc_format="native"))
    assert len(rows(app, "SELECT id FROM users")) == 2
    database.execute("DELETE FROM users WHERE id = 2")
    follows(app, database)


def test_each_table_has_its_own_initial_load(database: Database, run: App) -> None:
    tables = [f"CREATE TABLE {name} (id INT PRIMARY KEY)" for name in ("a", "b", "c")]
    database.execute(*tables, *(f"INSERT INTO {name} VALUES (1)" for name in ("a", "b", "c")))
    texts = [captured(database, "a", initial_load="none"), captured(database, "b")]
    run(*texts, once=True)
    database.execute(*(f"INSERT INTO {name} VALUES (2)" for name in ("a", "b", "c")))
    app = run(*texts, captured(database, "c", initial_load="none"))
    database.execute("INSERT INTO c VALUES (3)")
    until(lambda: rows(app, "SELECT id FROM c") == [(3,)])
    assert (rows(app, "SELECT id FROM a"), rows(app, "SELECT id FROM b")) == ([(2,)], [(1,), (2,)])


def test_capture_starts_at_a_position_of_a_slot(database: Database, run: App) -> None:
    database.execute(*USERS, "CREATE PUBLICATION mine FOR TABLE users")
    ((at,),) = database.rows("SELECT lsn::text FROM pg_create_logical_replication_slot('my_slot2', 'pgoutput')")
    database.execute("INSERT INTO users VALUES (3, 'Cy', 3)")
    options = {"slot_name": "my_slot2", "publication_name": "mine"}
    app = run(captured(database, cdc_start=at, **options), once=True)
    assert rows(app, "SELECT id FROM users") == [(3,)]
    with pytest.raises(mp.MillpondError, match=r"MP508.*begins with the rows as they are now"):
        run(captured(database, cdc_start=at, initial_load="full"))


def test_a_slot_that_another_app_has_read_is_replaced_by_a_new_snapshot(
    database: Database, run: App, tmp_path: Path
) -> None:
    database.execute(*USERS)
    text = captured(database, slot_name="shared_slot")
    run(text, once=True).stop()
    for statement in ("INSERT INTO users VALUES (3, 'Cy', 3)", "DELETE FROM users WHERE id = 1"):
        database.execute(statement)
        other = mp.App(sql=text, state=tmp_path / "other")
        other.run_once()
        other.stop()
    app = run(text)
    follows(app, database)
    assert [p.code for p in app.progress().problems if "is further, at" in p.message] == ["MP513"]


def test_two_apps_cannot_read_one_slot(
    database: Database, run: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "BUSY_S", 0.2)
    database.execute(*USERS)
    text = captured(database, slot_name="one_slot")
    run(text)
    other = mp.App(sql=text, state=tmp_path / "other")
    with pytest.raises(mp.MillpondError, match=r"MP514(.|\n)*'one_slot' is used by another process(.|\n)*'slot.name'"):
        other.run_once()
    other.stop()


def test_a_table_that_is_made_anew_is_compared_with_a_new_snapshot(
    database: Database, run: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "ASKED_S", 0.05)
    database.execute(*USERS)
    app = run(captured(database))
    database.execute("DROP TABLE users", USERS[0], "INSERT INTO users VALUES (1, 'Eve', 1)")
    follows(app, database)
    database.execute("INSERT INTO users VALUES (2, 'Dan', 2)")
    follows(app, database)
    app.stop()
    database.execute("DROP TABLE users", USERS[0], "INSERT INTO users VALUES (7, 'Flo', 1)")
    follows(run(captured(database)), database)


def test_a_position_beyond_the_log_is_lost(database: Database, run: App) -> None:
    """As after a failover to a server that is behind."""
    database.execute(*USERS)
    app = run(captured(database), once=True)
    (source,) = app.plan.sources
    alone = changes.PostgresChanges(Capture("other", {source.id: source.spec}))
    try:
        position = alone.start()
        with pytest.raises(mp.MillpondError, match=r"MP513(.|\n)*its log ends before"):
            alone.follow(position + 10**12)
    finally:
        alone.close()


def test_changes_that_the_server_does_not_send_are_warned_of(database: Database, run: App) -> None:
    database.execute(
        "CREATE TABLE parts (id INT, n INT, twice INT GENERATED ALWAYS AS (n * 2) STORED, PRIMARY KEY (id))"
        " PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF parts FOR VALUES FROM (10) TO (20)",
        "INSERT INTO parts VALUES (1, 1), (2, 2)",
    )
    app = run(captured(database, "parts"))
    database.transaction("UPDATE parts SET id = 11 WHERE id = 1", "INSERT INTO parts VALUES (3, 3)")
    until(lambda: rows(app, "SELECT * FROM parts") == [(2, 2), (3, 3), (11, 1)])
    shown = " ".join(p.message for p in app.progress().problems if p.code == "MP515")
    assert "is captured without 'twice'" in shown
    assert "that are truncated, dropped, attached or detached are not captured" in shown


def test_the_log_that_a_slot_keeps_is_reported(database: Database, run: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "ASKED_S", 0.05)
    database.execute(*USERS)
    app = run(captured(database))
    # An open transaction holds the log back, as an app does that cannot follow.
    holder = database.connect()
    holder.execute("BEGIN")
    holder.execute("INSERT INTO users VALUES (3, 'Cy', 3)")
    database.execute("CREATE TABLE busy AS SELECT repeat('x', 1000) AS t FROM generate_series(1, 3000)")
    until(lambda: (app.stats()["sources"][0]["log_kept"] or 0) > 2_000_000, lambda: app.stats()["sources"])
    shown = dict(app.query("SHOW SOURCES").rows()[0])
    assert shown["lag"] is None
    holder.execute("COMMIT")
    holder.close()
    follows(app, database)
    until(lambda: app.stats()["sources"][0]["log_unread"] == 0)


def test_a_slot_that_was_invalidated_is_replaced_by_a_new_snapshot(
    run: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = PostgreSQL()
    server.settings = {"max_slot_wal_keep_size": "1MB"}
    try:
        server.start()
        database = server.database()
        database.execute(*USERS)
        run(captured(database), once=True).stop()
        for _ in range(4):
            database.execute("UPDATE users SET credit = 2 WHERE id = 2", "SELECT pg_switch_wal()")
        database.execute("CHECKPOINT")
        assert database.rows("SELECT wal_status FROM pg_replication_slots") == [("lost",)]
        assert main(["doctor", str(tmp_path / "app.sql"), "--state", str(tmp_path / "state")]) == 0
        assert "it was invalidated, and its changes are lost" in capsys.readouterr().out
        app = run(captured(database))
        follows(app, database)
        assert [p.code for p in app.progress().problems if "was invalidated" in p.message] == ["MP513"]
        database.execute("DELETE FROM users WHERE id = 1")
        follows(app, database)
        app.stop()
    finally:
        server.remove()


def test_named_slots_and_publications_are_used(database: Database, run: App) -> None:
    database.execute(
        *USERS,
        "CREATE PUBLICATION mine FOR ALL TABLES",
        "SELECT pg_create_logical_replication_slot('my_slot', 'pgoutput')",
    )
    app = run(captured(database, slot_name="my_slot", publication_name="mine"))
    database.execute("INSERT INTO users VALUES (3, 'Cy', 3)")
    follows(app, database)
    query = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    assert database.rows(query) == [("my_slot",)]


def test_columns_that_are_added_dropped_or_retyped(database: Database, run: App) -> None:
    database.execute(*USERS)
    app = run(captured(database))
    database.execute(
        "ALTER TABLE users ADD COLUMN age INT DEFAULT 7",
        "ALTER TABLE users DROP COLUMN credit",
        "ALTER TABLE users ALTER id TYPE BIGINT",
        "INSERT INTO users VALUES (3, 'Cy', 8)",
    )
    until(lambda: rows(app, "SELECT id, name, credit FROM users WHERE id = 3") == [(3, "Cy", None)])
    app = run(captured(database))
    assert rows(app, "SELECT id, name, age FROM users WHERE id = 3") == [(3, "Cy", 8)]


def test_a_quiet_table_does_not_hold_back_the_log(
    database: Database, run: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "REMEMBERED_S", 0.2)
    database.execute(*USERS, "CREATE TABLE busy (n INT)")
    run(captured(database))
    database.execute("INSERT INTO busy SELECT generate_series(1, 1000)")
    ((end,),) = database.rows("SELECT pg_current_wal_flush_lsn()::text")
    query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE database = current_database()"
    until(lambda: database.rows(query, [end]) == [(True,)])


def test_a_snapshot_and_its_changes_have_no_gap_beside_a_writer(database: Database, run: App) -> None:
    """A writer inserts, updates and deletes while the snapshot is taken and after it."""
    database.execute(
        "CREATE TABLE users (id INT PRIMARY KEY, n INT)",
        "INSERT INTO users SELECT g, 0 FROM generate_series(1, 5000) g",
    )
    stop, random_ = threading.Event(), random.Random(FRESH)

    upsert = (
        "INSERT INTO users SELECT g, 1 FROM generate_series({0}, {0} + 50) g"
        " ON CONFLICT (id) DO UPDATE SET n = users.n + 1"
    )

    def write() -> None:
        while not stop.is_set():
            delete = f"DELETE FROM users WHERE id % 17 = {random_.randrange(17)}"
            database.transaction(upsert.format(random_.randrange(6000)), delete)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        app = run(captured(database, fetch_size="500", parallel_readers="3"))
    finally:
        stop.set()
        writer.join()
    follows(app, database)


@pytest.mark.process
@pytest.mark.parametrize("point", ["load.committed", "capture.loaded", "capture.applied", "capture.committed"])
def test_a_kill_neither_loses_nor_repeats_changes(database: Database, tmp_path: Path, point: str) -> None:
    database.execute(*USERS)
    (tmp_path / "app.sql").write_text(captured(database))
    command = [sys.executable, "-m", "millpond.cli.main", "run", "app.sql", "--once", "--state", "state"]

    def start(fault: str = "") -> int:
        environment = {**os.environ, "MILLPOND_FAULT": fault}
        done = subprocess.run(command, cwd=tmp_path, env=environment, timeout=240, capture_output=True, check=False)
        assert done.returncode in (0, 137), done.stderr.decode()
        return done.returncode

    if point.startswith("capture.") and point != "capture.loaded":
        assert start() == 0
        database.transaction("UPDATE users SET id = 9 WHERE id = 1", "INSERT INTO users VALUES (3, 'Cy', 3)")
    assert start(point) == 137
    database.execute("DELETE FROM users WHERE id = 2")
    assert start() == 0
    app = mp.App(tmp_path / "app.sql", state=tmp_path / "state")
    assert rows(app, "SELECT * FROM users") == sorted(database.rows("SELECT * FROM users"))
    app.stop()


def test_a_wrong_wal_level_is_an_error_that_names_the_setting(run: App) -> None:
    server = PostgreSQL()
    server.settings = {"wal_level": "replica"}
    try:
        server.start()
        database = server.database()
        database.execute(*USERS)
        with pytest.raises(mp.MillpondError, match=r"MP514(.|\n)*wal_level is 'replica'(.|\n)*wal_level = logical"):
            run(captured(database), once=True)
    finally:
        server.remove()


def test_doctor_lists_and_drops_what_the_app_has_made(
    database: Database, run: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database.execute(*USERS)
    run(captured(database), once=True).stop()
    command = ["doctor", str(tmp_path / "app.sql"), "--state", str(tmp_path / "state")]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "replication slot millpond_app_" in shown
    assert "is not in use" in shown
    assert "publication millpond_app_" in shown
    assert main([*command, "--drop-slots"]) == 0
    assert capsys.readouterr().out.count(": dropped") == 2
    query = "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database() UNION ALL"
    assert database.rows(f"{query} SELECT pubname::text FROM pg_publication") == []
    assert main(command) == 0
    assert "has made no replication slot" in capsys.readouterr().out
