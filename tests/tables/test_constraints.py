"""CHECK constraints of tables: every way to change a row is held to them, after a restart too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.contracts.table import Table, TableSpec
from millpond.errors import ConstraintError
from millpond.schema import Check, Column, Schema
from millpond.tables.store import open_store

POSITIVE, FEW = Check("t_n_check", "n >= 0"), Check("few", "n < 10 OR name = 'many'")
COLUMNS = (Column("id", pa.int64(), False), Column("n", pa.int32()), Column("name", pa.string()))
SCHEMA = Schema(COLUMNS, ("id",), (POSITIVE, FEW))
ROWS: list[dict[str, Any]] = [
    {"id": 1, "n": 1, "name": "a"},
    {"id": 2, "n": None, "name": None},
    {"id": 3, "n": 50, "name": "many"},
]


@pytest.fixture(params=["memory", "sqlite", "cache"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    values: dict[str, Any] = {"path": str(tmp_path / "t.db")} if request.param == "sqlite" else {}
    if request.param == "cache":
        values = {"max_size": 100, "ttl": None}
    store = open_store(tmp_path / "state")
    made = store.create(TableSpec("t", SCHEMA, request.param, values))
    made.insert(ROWS)
    yield made
    store.close()


CHANGES: list[Callable[[Table], object]] = [
    lambda t: t.insert([{"id": 9, "n": -1, "name": None}]),
    lambda t: t.insert([{"id": 8, "n": 1, "name": None}, {"id": 9, "n": 10, "name": "x"}]),
    lambda t: t.insert(pa.table({"id": [9], "n": pa.array([-1], pa.int32())})),
    lambda t: t.upsert([{"id": 1, "n": -1, "name": "a"}]),
    lambda t: t.upsert([{"id": 3, "name": "few"}]),
    lambda t: t.update("id = 1", {"n": -5}),
    lambda t: t.replace(pa.table({"id": [1], "n": pa.array([-1], pa.int32()), "name": ["a"]})),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_breaks_a_constraint_changes_nothing(table: Any, change: Callable[[Table], object]) -> None:
    with pytest.raises(ConstraintError, match=r"MP413.*(id = \d).*violates the constraint"):
        change(table)
    assert sorted(table.to_arrow().to_pylist(), key=lambda r: r["id"]) == ROWS


def test_null_passes(table: Any) -> None:
    assert table.update("id = 3", {"name": None}) == 1
    assert table.insert([{"id": 9, "n": None, "name": None}]) == 1


def test_a_constraint_holds_after_a_restart_and_in_transactions(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state")
    store.create(TableSpec("t", SCHEMA)).insert(ROWS)
    store.checkpoint()
    store.close()
    store = open_store(tmp_path / "state")
    assert store.table("t").schema.checks == (POSITIVE, FEW)
    with store.begin() as tx:
        tx.table("t").upsert([{"id": 1, "n": 1, "name": "b"}])
        with pytest.raises(ConstraintError, match="MP413"):
            tx.table("t").insert([{"id": 4, "n": 1, "name": "b"}, {"id": 5, "n": -1, "name": "b"}])
        tx.commit()
    assert store.table("t").values("name", "id IN (1, 4, 5)") == ["b"]
    store.close()


def test_a_new_constraint_is_compared_with_the_rows_that_are_there(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state")
    store.create(TableSpec("t", Schema(COLUMNS, ("id",)))).insert(ROWS)
    with pytest.raises(ConstraintError, match=r"1 row of 't' violate the new constraint 'low'.*id = 3"):
        store.create(TableSpec("t", Schema(COLUMNS, ("id",), (Check("low", "n < 20"),))))
    assert store.table("t").insert([{"id": 7, "n": 70, "name": "x"}]) == 1
    store.create(TableSpec("t", Schema(COLUMNS, ("id",), (Check("low", "n < 80"),))))
    with pytest.raises(ConstraintError, match="MP413"):
        store.table("t").update("id = 7", {"n": 90})
    store.close()
