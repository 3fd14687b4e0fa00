"""A compaction runs beside readers and the writer, and has what they did meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.contracts.table import TableSpec
from millpond.errors import ConflictError
from millpond.schema import Column, Schema
from millpond.tables import memory
from millpond.tables.store import TableStore, open_store

SPEC = TableSpec("t", Schema.of([Column("k", pa.int64(), False), Column("v", pa.string())], ["k"]), indexes=(("v",),))
ROWS = 20_000
WAIT_S = 60.0


class Gate:
    """Holds a compaction that has looked at the table and has not yet taken anything over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        compacted = memory.compacted  # type: ignore[attr-defined]

        def held(*given: Any) -> Any:
            done = compacted(*given)
            self.reached.set()
            assert self.open.wait(WAIT_S)
            return done

        monkeypatch.setattr(memory, "compacted", held)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.open.set()


def half_dead(folder: Path) -> TableStore:
    """A table whose compaction is due."""
    store = open_store(folder)
    table = store.create(SPEC)
    table.insert([{"k": k, "v": f"v{k % 7}"} for k in range(ROWS)])
    table.delete("k >= 5000")
    return store


def content(store: TableStore) -> dict[int, str]:
    return {row["k"]: row["v"] for row in store.table("t").to_arrow().to_pylist()}


def test_commits_beside_a_compaction_are_in_its_result(tmp_path: Path, gate: Gate) -> None:
    store = half_dead(tmp_path)
    table, expected = store.table("t"), {k: f"v{k % 7}" for k in range(5000)}
    assert gate.reached.wait(WAIT_S)
    quiet, clashing = store.begin(), store.begin()
    quiet.table("t").update("k = 30", {"v": "mine"})
    clashing.table("t").delete(keys=[10])
    version = table.version
    table.upsert([{"k": k, "v": "new"} for k in range(10, 20)])
    table.delete(keys=[0, 1, 2])
    table.insert([{"k": 1, "v": "again"}, {"k": 9000, "v": "back"}, {"k": ROWS, "v": "more"}])
    table.insert([{"k": ROWS + 1, "v": "for a moment"}])
    table.delete(keys=[ROWS + 1])
    expected |= dict.fromkeys(range(10, 20), "new") | {1: "again", 9000: "back", ROWS: "more"}
    del expected[0], expected[2]
    assert (content(store), table.stats().compactions) == (expected, 0)
    gate.open.set()
    store.compact()
    assert table.stats().compactions == 1
    assert content(store) == expected
    assert table.lookup(list(range(30))).num_rows == 28
    assert (table.get(1), table.get(2), table.contains(ROWS + 1)) == ({"k": 1, "v": "again"}, None, False)
    assert sorted(table.lookup(["new"], by="v").column("k").to_pylist()) == list(range(10, 20))
    assert len(table.changes_since(version) or ()) == 5
    quiet.commit()
    with pytest.raises(ConflictError, match="MP405"):
        clashing.commit()
    expected[30] = "mine"
    store.close()
    again = open_store(tmp_path)
    assert content(again) == expected
    again.close()


def test_a_table_that_got_an_index_meanwhile_is_compacted_later(tmp_path: Path, gate: Gate) -> None:
    store = half_dead(tmp_path)
    table = store.table("t")
    assert gate.reached.wait(WAIT_S)
    table.create_index("k", "v")
    gate.open.set()
    store.compact()
    assert table.stats().compactions == 0
    table.delete(keys=[0])
    store.compact()
    assert table.stats().compactions == 1
    assert table.lookup([(1, "v1")], by=["k", "v"]).num_rows == 1
    store.close()


def test_a_store_closes_while_a_compaction_waits_for_a_transaction(tmp_path: Path, gate: Gate) -> None:
    store = half_dead(tmp_path)
    assert gate.reached.wait(WAIT_S)
    tx = store.begin(locks=["t"])
    gate.open.set()
    store.close()
    tx.rollback()
    again = open_store(tmp_path)
    assert len(again.table("t")) == 5000
    again.close()


def test_a_table_that_is_dropped_meanwhile_stays_dropped(tmp_path: Path, gate: Gate) -> None:
    store = half_dead(tmp_path)
    assert gate.reached.wait(WAIT_S)
    store.drop("t")
    gate.open.set()
    store.compact()
    assert store.names() == ()
    store.close()


def test_a_writer_waits_before_dead_rows_take_all_memory(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    gate.open.set()
    monkeypatch.setattr(memory, "_DEAD_MIN", 100)
    store = open_store(None)
    table = store.create(SPEC)
    for turn in range(200):
        table.upsert([{"k": k, "v": str(turn)} for k in range(50)])
        version = store.published[table.id]
        assert version.rows - version.live <= memory._PATIENCE * 100 + 50
    store.compact()
    assert table.stats().compactions > 0
