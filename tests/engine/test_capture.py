"""Tables that follow the changes of a database: snapshot and stream meet, transactions stay whole."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.journaled import Database

import millpond as mp
from millpond import registry
from millpond.faults import CAPTURE_POINTS
from millpond.registry import Registration, register

ACCOUNTS = "CREATE TABLE accounts AS SELECT * FROM 'journaled:bank.db?table=accounts';"
NOTES = "CREATE TABLE notes AS SELECT id, body, n FROM 'journaled:bank.db?table=notes';"


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    register(Registration("source", "journaled", "tests.engine.journaled", "PLUGIN"))


@pytest.fixture
def bank(tmp_path: Path) -> Database:
    database = Database(tmp_path / "bank.db")
    database.create("accounts", "id INTEGER PRIMARY KEY, owner TEXT, balance INTEGER")
    database.create("notes", "id INTEGER PRIMARY KEY, body TEXT, n INTEGER")
    database.transaction(*(f"INSERT INTO accounts VALUES ({n}, 'o{n}', 100)" for n in range(10)))
    return database


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., mp.App]]:
    """An app over some statements, with the same state each time."""
    apps: list[mp.App] = []

    def start(*statements: str, once: bool = False) -> mp.App:
        file = tmp_path / "app.sql"
        file.write_text("\n".join(statements))
        app = mp.App(file, state=tmp_path / "state")
        apps.append(app)
        if once:
            app.run_once()
        else:
            app.start()
            app.wait_ready("60s")
        return app

    yield start
    for app in apps:
        app.stop()


def until(condition: Callable[[], bool], limit_s: float = 60.0, said: Callable[[], object] = str) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"it never came: {said()}"
        time.sleep(0.01)


def rows(app: mp.App, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in app.table(table).find().to_pylist())


def same(app: mp.App, bank: Database, table: str) -> Callable[[], bool]:
    return lambda: rows(app, table) == sorted(bank.rows(f"SELECT * FROM {table}"))


def test_a_table_is_loaded_and_then_follows_every_change(run: Any, bank: Database) -> None:
    app = run(ACCOUNTS)
    assert rows(app, "accounts") == sorted(bank.rows("SELECT * FROM accounts"))
    assert app.table("accounts").schema.key == ("id",)
    bank.transaction(
        "INSERT INTO accounts VALUES (10, 'new', 5)",
        "UPDATE accounts SET balance = balance + 1 WHERE id < 5",
        "DELETE FROM accounts WHERE id = 9",
        "UPDATE accounts SET id = 77 WHERE id = 8",
        "INSERT INTO accounts VALUES (8, 'again', 1)",
        "UPDATE accounts SET balance = NULL WHERE id = 8",
    )
    until(same(app, bank, "accounts"))
    assert app.table("accounts").get(77)["owner"] == "o8"


def test_what_changes_while_it_is_loaded_is_neither_lost_nor_doubled(run: Any, bank: Database) -> None:
    stop = threading.Event()

    def write() -> None:
        n = 1000
        while not stop.is_set():
            bank.transaction(f"INSERT INTO accounts VALUES ({n}, 'w', 1)", f"DELETE FROM accounts WHERE id = {n - 7}")
            n += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        app = run(ACCOUNTS)
        until(lambda: len(app.table("accounts")) > 0)
    finally:
        stop.set()
        writer.join()
    until(same(app, bank, "accounts"))


def test_a_transaction_over_two_tables_is_one_commit(run: Any, bank: Database) -> None:
    """Money moves from accounts to notes and back: whoever reads both sees no sum but the right one."""
    bank.transaction("INSERT INTO notes VALUES (1, 'till', 0)")
    app = run(ACCOUNTS, NOTES)
    sums: set[int] = set()
    done = threading.Event()
    query = "SELECT (SELECT SUM(balance) FROM accounts) + (SELECT SUM(n) FROM notes) AS total"

    def read() -> None:
        while not done.is_set():
            sums.add(app.query(query).rows()[0]["total"])

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(60):
        amount = random.randint(-5, 5)
        bank.transaction(
            f"UPDATE accounts SET balance = balance - {amount} WHERE id = {n % 10}",
            f"UPDATE notes SET n = n + {amount} WHERE id = 1",
        )
    until(same(app, bank, "accounts"))
    until(same(app, bank, "notes"))
    done.set()
    reader.join()
    assert sums == {1000}


def test_values_that_are_not_sent_because_they_are_unchanged_stay(run: Any, bank: Database) -> None:
    long = "a long text that is not sent again"
    bank.transaction(*(f"INSERT INTO notes VALUES ({n}, '{long} {n}', 0)" for n in range(5)))
    app = run(NOTES)
    bank.transaction(
        "UPDATE notes SET n = 1 WHERE id < 3",
        # In one transaction: written, then left as it is, and its key changed.
        "UPDATE notes SET body = 'another text that is long enough' WHERE id = 1",
        "UPDATE notes SET n = 2 WHERE id = 1",
        "UPDATE notes SET id = 40, n = 3 WHERE id = 4",
        f"INSERT INTO notes VALUES (50, '{long} 50', 0)",
        "UPDATE notes SET n = 9 WHERE id = 50",
    )
    until(same(app, bank, "notes"))
    assert app.table("notes").get(40) == {"id": 40, "body": f"{long} 4", "n": 3}


def test_truncate_empties_the_table_in_its_place_among_the_changes(run: Any, bank: Database) -> None:
    app = run(ACCOUNTS)
    bank.transaction(
        "INSERT INTO accounts VALUES (20, 'x', 1)", "TRUNCATE accounts", "INSERT INTO accounts VALUES (21, 'y', 2)"
    )
    until(same(app, bank, "accounts"))
    assert rows(app, "accounts") == [(21, "y", 2)]


def test_a_query_with_conditions_is_a_view_over_what_is_captured(run: Any, bank: Database) -> None:
    app = run(
        "CREATE TABLE rich AS SELECT owner, balance * 2 AS twice FROM 'journaled:bank.db?table=accounts' "
        "WHERE balance > 50;"
    )
    assert len(app.table("rich")) == 10
    bank.transaction("UPDATE accounts SET balance = 7 WHERE id = 1", "UPDATE accounts SET balance = 70 WHERE id = 2")
    expected = sorted(bank.rows("SELECT owner, balance * 2 FROM accounts WHERE balance > 50"))
    until(lambda: rows(app, "rich") == expected)


def test_a_restart_goes_on_where_it_was_and_a_new_table_gets_its_own_snapshot(run: Any, bank: Database) -> None:
    app = run(ACCOUNTS)
    app.stop()
    bank.transaction("UPDATE accounts SET balance = 1 WHERE id = 1", "INSERT INTO notes VALUES (1, 'a', 1)")
    app = run(ACCOUNTS, NOTES)
    assert same(app, bank, "accounts")()
    assert same(app, bank, "notes")()
    bank.transaction("DELETE FROM notes WHERE id = 1", "DELETE FROM accounts WHERE id = 1")
    until(same(app, bank, "accounts"))
    until(same(app, bank, "notes"))


def test_once_takes_what_was_there_at_its_start(run: Any, bank: Database) -> None:
    run(ACCOUNTS, once=True).stop()
    bank.transaction("UPDATE accounts SET balance = 1 WHERE id = 1")
    app = run(ACCOUNTS, once=True)
    assert same(app, bank, "accounts")()


def test_a_log_that_has_forgotten_the_position_is_replaced_by_a_new_snapshot(run: Any, bank: Database) -> None:
    run(ACCOUNTS, once=True).stop()
    bank.transaction("DELETE FROM accounts WHERE id < 5")
    bank.transaction("INSERT INTO accounts VALUES (30, 'z', 0)")
    bank.execute("DELETE FROM log WHERE seq < (SELECT max(seq) FROM log)")
    app = run(ACCOUNTS)
    assert same(app, bank, "accounts")()
    assert "MP513" in [problem.code for problem in app.progress().problems]
    bank.transaction("INSERT INTO accounts VALUES (31, 'z', 0)")
    until(same(app, bank, "accounts"))


def test_a_server_that_goes_away_leaves_the_table_stale_until_it_is_back(run: Any, bank: Database) -> None:
    app = run(ACCOUNTS)
    bank.execute("ALTER TABLE log RENAME TO hidden_log")
    until(lambda: app.table("accounts").state == "stale")
    assert len(app.table("accounts")) == 10
    assert app.progress().sources[0].health == "disconnected", app.progress().failures
    bank.execute("ALTER TABLE hidden_log RENAME TO log")
    bank.transaction("DELETE FROM accounts WHERE id = 0")
    until(same(app, bank, "accounts"))
    until(lambda: app.table("accounts").state == "ready")


WORKER = """
import sys
import millpond as mp
from millpond.registry import Registration, register
register(Registration("source", "journaled", "tests.engine.journaled", "PLUGIN"))
app = mp.App(sys.argv[1], state=sys.argv[2])
app.start()
app.wait_ready("60s")
app.drain("1s")
sys.stdin.read()
app.stop()
"""


@pytest.mark.process
@pytest.mark.parametrize("point", [*CAPTURE_POINTS, "log.append.half", "commit.applied:3", "load.committed"])
def test_a_crash_at_any_step_loses_and_doubles_nothing(run: Any, bank: Database, tmp_path: Path, point: str) -> None:
    bank.transaction(*(f"INSERT INTO notes VALUES ({n}, 'x', {n})" for n in range(300)))
    (tmp_path / "app.sql").write_text(ACCOUNTS + NOTES)
    environment = {**os.environ, "MILLPOND_FAULT": point}
    command = [sys.executable, "-c", WORKER, str(tmp_path / "app.sql"), str(tmp_path / "state")]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        n = 1000
        while process.poll() is None:
            bank.transaction(
                f"INSERT INTO notes VALUES ({n}, 'n', {n})",
                f"UPDATE accounts SET balance = balance + 1 WHERE id = {n % 10}",
                f"DELETE FROM notes WHERE id = {n - 900}",
            )
            n += 1
        assert process.wait() == 137
    finally:
        process.kill()
        process.wait()
    app = run(ACCOUNTS, NOTES)
    assert same(app, bank, "accounts")()
    assert same(app, bank, "notes")()
