"""Memory tables: their options, their compaction, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from millpond.contracts.table import TableSpec
from millpond.errors import MillpondError, TableError
from millpond.schema import Column, Schema
from millpond.tables import memory
from millpond.tables.store import open_store

SCHEMA = Schema.of([Column("k", pa.int64(), False), Column("v", pa.string())], ["k"])


def test_a_full_table_refuses_more_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_DEAD_MIN", 16)
    store = open_store(None)
    table = store.create(TableSpec("t", SCHEMA, values={"max_memory": 200_000}))
    with pytest.raises(TableError, match="MP406"):
        table.insert([{"k": k, "v": "x" * 1000} for k in range(1000)])
    assert len(table) == 0
    for turn in range(30):
        table.upsert([{"k": k, "v": str(turn) * 500} for k in range(50)])
    assert len(table) == 50
    table.delete("true")
    table.insert([{"k": 1}])
    store.compact()
    assert table.stats().compactions > 0


def test_a_table_that_is_not_durable_is_empty_after_a_restart(tmp_path: Path) -> None:
    spec = TableSpec("t", SCHEMA, values={"durable": False})
    store = open_store(tmp_path)
    store.create(spec).insert([{"k": 1}])
    store.create(TableSpec("kept", SCHEMA)).insert([{"k": 2}])
    store.checkpoint()
    store.table("t").insert([{"k": 3}])
    store.close()
    again = open_store(tmp_path)
    assert len(again.create(spec)) == 0
    assert len(again.table("kept")) == 1
    again.close()


def test_a_transaction_over_a_compaction_still_finds_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_DEAD_MIN", 16)
    store = open_store(None)
    table = store.create(TableSpec("t", SCHEMA))
    table.insert([{"k": k, "v": "a"} for k in range(20)])
    quiet, clashing = store.begin(), store.begin()
    quiet.table("t").update("k = 3", {"v": "mine"})
    clashing.table("t").delete(keys=[15])
    for turn in range(5):
        table.upsert([{"k": k, "v": str(turn)} for k in range(10, 20)])
        store.compact()
    assert table.stats().compactions > 0
    quiet.commit()
    assert table.get(3) == {"k": 3, "v": "mine"}
    with pytest.raises(MillpondError, match="MP405"):
        clashing.commit()


def test_changes_are_known_across_a_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_DEAD_MIN", 16)
    store = open_store(None)
    table = store.create(TableSpec("t", SCHEMA))
    table.insert([{"k": k, "v": "a"} for k in range(10)])
    version, held = table.version, dict.fromkeys(range(10), "a")
    for turn in range(8):
        table.upsert([{"k": k, "v": str(turn)} for k in range(turn, 10)])
        store.compact()
    assert table.stats().compactions > 0
    for change in table.changes_since(version) or ():
        for row in change.removed.to_pylist():
            assert held.pop(row["k"]) == row["v"]
        held.update({row["k"]: row["v"] for row in change.added.to_pylist()})
    assert held == {row["k"]: row["v"] for row in table.to_arrow().to_pylist()}


def test_a_sqlite_table_needs_a_path() -> None:
    with pytest.raises(MillpondError, match="MP305"):
        open_store(None).create(TableSpec("t", Schema.of([Column("n", pa.int64())]), "sqlite"))


def test_a_table_locked_by_its_own_thread_does_not_hang() -> None:
    store = open_store(None)
    table = store.create(TableSpec("t", SCHEMA))
    with store.begin(locks=["t"]) as tx:
        with pytest.raises(TableError, match="MP409"):
            table.insert([{"k": 1}])
        tx.table("t").insert([{"k": 1}])
    assert len(table) == 1


def test_the_log_is_replaced_by_a_checkpoint_when_it_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.tables.durable._LOG_BYTES_MIN", 100_000)
    store = open_store(tmp_path)
    table = store.create(TableSpec("t", SCHEMA))
    for turn in range(200):
        table.upsert([{"k": k, "v": f"{turn}" * 20} for k in range(50)])
    store.close()
    assert (tmp_path / "manifest.json").exists()
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) < 600_000
    again = open_store(tmp_path)
    assert set(again.table("t").values("v")) == {"199" * 20}
    again.close()


def test_bytes_on_disk_are_those_of_the_log_and_the_checkpoint(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    table, other = store.create(TableSpec("t", SCHEMA)), store.create(TableSpec("other", SCHEMA))
    table.insert([{"k": k, "v": "x" * 100} for k in range(1000)])
    in_log = table.stats().bytes_disk
    assert 100_000 < in_log < (tmp_path / "log-000001").stat().st_size
    assert other.stats().bytes_disk == 0
    store.close()
    store = open_store(tmp_path)
    table = store.table("t")
    assert table.stats().bytes_disk == in_log
    store.checkpoint()
    in_checkpoint = next(tmp_path.glob("table-000001-*")).stat().st_size
    assert table.stats().bytes_disk == in_checkpoint
    table.delete(keys=[1])
    assert table.stats().bytes_disk > in_checkpoint
    store.close()


def test_a_key_of_a_wrong_kind_is_reported_as_a_key() -> None:
    table = open_store(None).create(TableSpec("t", SCHEMA))
    for ask in (lambda: table.get("x"), lambda: table.lookup(["x"]), lambda: table.delete(keys=["x"])):
        with pytest.raises(MillpondError, match=r"MP404.*'k' is BIGINT.*\n.*Pass keys of the column's type"):
            ask()
