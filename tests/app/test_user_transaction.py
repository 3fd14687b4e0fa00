"""`app.transact`: tried again when it conflicts. And what `dir()` lists: what is documented, nothing else."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import ConflictError, MillpondError

ACCOUNTS = """
CREATE TABLE accounts (id INT PRIMARY KEY, balance INT);
INSERT INTO accounts VALUES (1, 100), (2, 0);
"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[mp.App]:
    made = mp.App(sql=ACCOUNTS, state=tmp_path / "state")
    made.run_once()
    yield made
    made.stop()


def test_a_transaction_that_conflicts_is_run_again_on_the_newer_rows(app: mp.App) -> None:
    seen: list[int] = []

    def add(tx: Any) -> int:
        balance = tx.table("accounts").get(1)["balance"]
        if not seen:
            app.execute("UPDATE accounts SET balance = 7 WHERE id = 1")
        seen.append(balance)
        tx.table("accounts").update("id = 1", {"balance": balance + 1})
        return balance + 1

    assert app.transact(add) == 8
    assert seen == [100, 7]
    assert app.table("accounts").get(1) == {"id": 1, "balance": 8}


def test_tries_are_bounded_and_the_conflict_is_raised_then(app: mp.App) -> None:
    runs: list[None] = []

    def always_conflicts(tx: Any) -> None:
        runs.append(None)
        app.execute(f"UPDATE accounts SET balance = {len(runs)} WHERE id = 1")
        tx.table("accounts").update("id = 1", {"balance": -1})

    with pytest.raises(ConflictError, match="MP405"):
        app.transact(always_conflicts, tries=3)
    assert len(runs) == 3
    assert app.table("accounts").get(1) == {"id": 1, "balance": 3}


def test_any_other_error_is_raised_at_once_and_changes_nothing(app: mp.App) -> None:
    def fails(tx: Any) -> None:
        tx.table("accounts").delete(keys=[1])
        tx.table("accounts").insert([{"id": 2}])

    with pytest.raises(MillpondError, match="MP402"):
        app.transact(fails)
    assert len(app.table("accounts")) == 2


def test_writers_side_by_side_lose_no_change(app: mp.App) -> None:
    def pay() -> None:
        for _ in range(20):
            app.transact(lambda tx: tx.execute("UPDATE accounts SET balance = balance - 1 WHERE id = 1"), tries=100)

    threads = [threading.Thread(target=pay) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert app.table("accounts").get(1) == {"id": 1, "balance": 40}


def test_dir_lists_what_is_public_and_all_of_it_is_documented(app: mp.App) -> None:
    table = app.table("accounts")
    with app.transaction() as tx:
        things: list[Any] = [
            app,
            table,
            table.snapshot(),
            tx,
            tx.table("accounts"),
            app.query("SELECT id FROM accounts"),
        ]
        for thing in things:
            names = dir(thing)
            assert names
            assert [name for name in names if name.startswith("_")] == []
            for name in names:
                found = inspect.getattr_static(type(thing), name, None) or getattr(thing, name)
                assert inspect.getdoc(found), f"{type(thing).__name__}.{name} has no docstring"
    assert {"get", "find", "upsert", "scan", "version", "stats", "create_index", "copy"} <= set(dir(table))
    assert not {"acquire", "define", "prepare", "rows", "spec", "evaluator"} & set(dir(table))
    assert dir(tx) == ["execute", "table"]
