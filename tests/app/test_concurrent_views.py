"""Changes of several threads to tables under one view: none is refused without need, and the view misses nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import ConflictError

TEXT = """
CREATE TABLE users (id INT PRIMARY KEY, tier STRING);
CREATE TABLE orders (id INT PRIMARY KEY, user_id INT);
CREATE TABLE per_tier AS SELECT u.tier, COUNT(*) AS n FROM orders o JOIN users u ON u.id = o.user_id GROUP BY u.tier;
"""
TURNS = 3


@pytest.fixture
def app(tmp_path: Path, spark: Any) -> Iterator[mp.App]:
    made = mp.App(sql=TEXT, state=tmp_path / "state", spark=spark)
    made.table("users").insert([{"id": 0, "tier": "t0"}])
    yield made
    made.stop()


def in_threads(*works: Callable[[int], object]) -> list[Exception]:
    """Each work on a thread of its own, turn after turn; what went wrong."""
    failures: list[Exception] = []

    def run(work: Callable[[int], object]) -> None:
        try:
            for turn in range(1, TURNS + 1):
                work(turn)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def test_threads_that_change_tables_under_one_view_never_conflict(app: mp.App) -> None:
    users, orders = app.table("users"), app.table("orders")
    failures = in_threads(
        lambda turn: users.upsert([{"id": turn, "tier": f"t{turn}"}]),
        lambda turn: orders.upsert([{"id": i, "user_id": i} for i in range(turn + 1)]),
        lambda turn: app.execute(f"UPSERT INTO orders VALUES ({100 + turn}, 0)"),
    )
    assert failures == []
    expected = [{"tier": "t0", "n": 1 + TURNS}] + [{"tier": f"t{t}", "n": 1} for t in range(1, TURNS + 1)]
    assert app.table("per_tier").to_arrow().sort_by("tier").to_pylist() == expected


def test_a_transaction_that_would_leave_a_view_behind_is_a_conflict_and_can_be_tried_again(app: mp.App) -> None:
    def add_user() -> None:
        with app.transaction() as tx:
            tx.table("users").insert([{"id": 1, "tier": "t1"}])
            if len(app.table("orders")) == 0:
                # Another row of another table: only the view over both is hurt.
                other = threading.Thread(target=lambda: app.table("orders").insert([{"id": 7, "user_id": 1}]))
                other.start()
                other.join()

    with pytest.raises(ConflictError, match=r"MP405.*a view"):
        add_user()
    assert len(app.table("users")) == 1
    add_user()
    assert app.table("per_tier").to_arrow().to_pylist() == [{"tier": "t1", "n": 1}]
