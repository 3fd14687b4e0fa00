"""Rows beyond a table's memory: in files, read as if they were not, found out when damaged, gone when not needed."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.contracts.table import Store, Table, TableSpec
from millpond.errors import MillpondError, StateError
from millpond.schema import Column, Schema
from millpond.tables import memory
from millpond.tables.store import open_store
from millpond.testing.table_harness import no_room_beyond

SCHEMA = Schema.of([Column("k", pa.int64(), False), Column("v", pa.string()), Column("tier", pa.string())], ["k"])
LIMIT = 200_000
ROWS = 10_000


def rows(first: int, end: int, word: str = "first") -> list[dict[str, Any]]:
    return [{"k": k, "v": f"{word} {k} {'x' * 60}", "tier": f"t{k % 7}"} for k in range(first, end)]


def spec(**more: Any) -> TableSpec:
    return TableSpec("t", SCHEMA, values={"spill": True, "max_memory": LIMIT, **more}, indexes=(("tier",),))


def filled(store: Store, **more: Any) -> Table:
    table = store.create(spec(**more))
    for first in range(0, ROWS, 1000):
        table.insert(rows(first, first + 1000))
    return table


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("spill/*/*.arrow"))


def test_a_table_larger_than_its_memory_reads_as_any_other(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    table = filled(store)
    figures = table.stats()
    assert figures.bytes_spilled > LIMIT
    assert sum(file.stat().st_size for file in files(tmp_path)) == figures.bytes_spilled
    assert table.get(17) == rows(17, 18)[0]
    assert table.lookup([1, 9999, 5000, -1]).num_rows == 3
    assert table.lookup(["t3"], by="tier").num_rows == table.count("tier = 't3'") == len(range(3, ROWS, 7))
    assert table.find("k BETWEEN 4998 AND 5001").column("v").to_pylist() == [r["v"] for r in rows(4998, 5002)]
    assert [n for batch in table.scan() for n in batch.column("k").to_pylist()] == list(range(ROWS))
    assert table.scalar("SUM(k)") == sum(range(ROWS))
    store.close()


def test_rows_in_files_are_changed_and_removed_and_older_versions_stay(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    table = filled(store)
    before = table.snapshot()
    assert table.update("k < 100", {"v": "changed"}) == 100
    assert table.delete("k % 2 = 1") == ROWS // 2
    table.upsert(rows(0, 10, "again") + rows(ROWS, ROWS + 5))
    assert (table.get(0), table.get(11), table.get(ROWS)) == (rows(0, 1, "again")[0], None, rows(ROWS, ROWS + 1)[0])
    assert table.values("v", "k = 50") == ["changed"]
    assert (len(before), before.get(11), before.get(0)) == (ROWS, rows(11, 12)[0], rows(0, 1)[0])
    assert len(table.snapshot(table.version - 1)) == ROWS // 2
    store.close()


def test_what_memory_holds_stays_within_the_limit_the_index_included(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    table = store.create(TableSpec("t", SCHEMA, values={"spill": True, "max_memory": 4_000_000}))
    over = []
    for first in range(0, 60_000, 1000):
        table.insert(rows(first, first + 1000))
        over.append(table.stats().bytes_memory > 4_000_000)
    assert table.stats().bytes_spilled > 4_000_000
    # When the index grows the commit after it makes room.
    assert not any(a and b for a, b in itertools.pairwise(over))
    store.close()


def test_an_index_beyond_the_limit_does_not_make_every_commit_write_a_file(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    table = filled(store)
    assert table.stats().bytes_memory > LIMIT
    before = files(tmp_path)
    for k in range(ROWS, ROWS + 20):
        table.insert(rows(k, k + 1))
    assert files(tmp_path) == before
    store.close()


def test_small_files_are_merged(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    table = store.create(TableSpec("t", SCHEMA, values={"spill": True, "max_memory": 1}))
    for k in range(64):
        table.insert(rows(k, k + 1))
    gc.collect()
    assert len(files(tmp_path)) <= 8
    assert table.to_arrow().column("k").to_pylist() == list(range(64))
    store.close()


def test_files_that_are_merged_into_others_go_at_once(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    table = store.create(TableSpec("t", SCHEMA, values={"spill": True, "max_memory": 1}))
    table.insert(rows(0, 9000))
    table.delete("k < 8000")
    store.compact()
    assert table.stats().compactions == 1
    first = files(tmp_path)
    for k in range(9000, 12_000, 1000):
        table.insert(rows(k, k + 1000))
    gc.collect()
    assert not set(first) & set(files(tmp_path))
    assert sum(file.stat().st_size for file in files(tmp_path)) == table.stats().bytes_spilled
    assert table.snapshot(2).count() == 1000
    store.close()


def test_compaction_writes_only_files_that_lost_rows_and_removes_the_old_ones(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    table = filled(store)
    spilled = table.stats().bytes_spilled
    table.delete("k < 8000")
    store.compact()
    gc.collect()
    figures = table.stats()
    assert figures.compactions == 1
    assert sum(file.stat().st_size for file in files(tmp_path)) == figures.bytes_spilled < spilled / 2
    assert table.to_arrow().column("k").to_pylist() == list(range(8000, ROWS))
    assert table.get(9000) == rows(9000, 9001)[0]
    store.close()


@pytest.mark.parametrize("end", [lambda store: store.close(), lambda store: store.drop("t")], ids=["closed", "dropped"])
def test_files_go_with_the_table(tmp_path: Path, end: Callable[[Store], None]) -> None:
    store = open_store(tmp_path)
    table = filled(store)
    reader = table.snapshot()
    assert files(tmp_path)
    end(store)
    assert not files(tmp_path)
    assert reader.get(3) == rows(3, 4)[0]


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_durable_table_is_spilled_again_after_a_restart(tmp_path: Path, checkpoint: bool, compression: str) -> None:
    store = open_store(tmp_path)
    filled(store, compression=compression).delete(keys=[3])
    if checkpoint:
        store.checkpoint()
    store.close()
    again = open_store(tmp_path)
    # Recovery alone keeps to the limit, before anybody gives the table's options.
    figures = again.table("t").stats()
    assert figures.bytes_spilled > LIMIT
    table = again.create(spec(compression=compression))
    assert (len(table), table.get(3), table.get(4)) == (ROWS - 1, None, rows(4, 5)[0])
    again.close()


def test_a_table_that_is_not_durable_spills_and_is_empty_after_a_restart(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state")
    table = filled(store, durable=False, spill=str(tmp_path / "elsewhere"))
    assert table.stats().bytes_spilled == sum(f.stat().st_size for f in (tmp_path / "elsewhere").glob("*/*.arrow")) > 0
    store.close()
    assert not list((tmp_path / "elsewhere").glob("*/*.arrow"))
    again = open_store(tmp_path / "state")
    assert len(again.create(spec(durable=False))) == 0
    again.close()


def test_spilling_may_begin_with_a_restart_and_end_with_one(tmp_path: Path) -> None:
    plain = TableSpec("t", SCHEMA, indexes=(("tier",),))
    store = open_store(tmp_path)
    store.create(plain).insert(rows(0, ROWS))
    store.close()
    spilling = open_store(tmp_path)
    assert spilling.create(spec()).stats().bytes_spilled > LIMIT
    spilling.close()
    last = open_store(tmp_path)
    table = last.create(plain)
    assert table.insert(rows(ROWS, ROWS + 1)) == 1
    assert table.delete("k >= 100") == ROWS - 99
    last.compact()
    assert (table.stats().bytes_spilled, table.count("tier = 't3'")) == (0, 14)
    last.close()


def test_a_flipped_byte_is_found_and_named_and_not_served(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    table = filled(store)
    file = files(tmp_path)[0]
    sound = file.read_bytes()
    readings: list[Callable[[], Any]] = [
        lambda: table.get(0),
        lambda: table.lookup([0, 1, 2]),
        lambda: table.find("v LIKE 'x%'"),
        table.to_arrow,
        lambda: table.update("k = 0", {"v": "new"}),
        store.checkpoint,
    ]
    for place in (len(sound) // 3, len(sound) // 2, len(sound) - 9):
        file.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        for read in readings:
            with pytest.raises(MillpondError, match=rf"MP407.*{file.name}"):
                read()
    file.write_bytes(sound[:1000])
    with pytest.raises(MillpondError, match=rf"MP407.*{file.name}"):
        table.get(0)
    file.write_bytes(sound)
    assert table.get(0) == rows(0, 1)[0]
    store.close()


def test_a_disk_that_is_full_refuses_the_change_and_nothing_else(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    table = filled(store)
    version, there = table.version, files(tmp_path)
    with no_room_beyond(50_000):
        tx = store.begin()
        tx.put("mark", 1)
        tx.table("t").insert(rows(ROWS, ROWS + 3000))
        with pytest.raises(StateError, match=r"MP805.*Rows cannot be spilled.*full"):
            tx.commit()
        assert (table.version, len(table), store.get("mark")) == (version, ROWS, None)
        assert table.get(ROWS - 1) == rows(ROWS - 1, ROWS)[0]
        gc.collect()
        assert files(tmp_path) == there
        assert not list(tmp_path.glob("spill/*/*.new"))
    assert table.insert(rows(ROWS, ROWS + 3000)) == 3000
    store.close()
    again = open_store(tmp_path)
    assert len(again.table("t")) == ROWS + 3000
    again.close()


def test_a_compaction_that_finds_no_room_leaves_the_commit_as_it_is(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    table = filled(store, durable=False)
    # Removing every other row makes all files new ones, which must fit beside the old ones.
    with no_room_beyond(50_000):
        assert table.delete("k % 2 = 0 OR k < 2000") == ROWS // 2 + 1000
        store.compact()
        assert (len(table), table.stats().compactions) == (ROWS // 2 - 1000, 0)
    table.delete(keys=[ROWS - 1])
    store.compact()
    assert (len(table), table.stats().compactions) == (ROWS // 2 - 1001, 1)
    store.close()


def test_what_another_process_spills_is_left_alone(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    first = open_store(tmp_path / "a")
    one = filled(first, spill=str(shared))
    second = open_store(tmp_path / "b")
    filled(second, spill=str(shared))
    second.close()
    assert one.get(0) == rows(0, 1)[0]
    assert sum(f.stat().st_size for f in shared.glob("*/*.arrow")) == one.stats().bytes_spilled
    (shared / "t-left" / "lock").parent.mkdir()
    (shared / "t-left" / "lock").touch()
    (shared / "t-left" / "00000001.arrow.new").write_bytes(b"half")
    (shared / "mine").mkdir()
    open_store(tmp_path / "c").create(spec(spill=str(shared)))
    assert not (shared / "t-left").exists()
    assert (shared / "mine").exists()
    assert one.count("k >= 0") == ROWS
    first.close()


def test_memory_is_the_table_without_spill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_DEAD_MIN", 16)
    table = open_store(None).create(TableSpec("t", SCHEMA, values={"max_memory": LIMIT, "spill": False}))
    with pytest.raises(MillpondError, match=r"MP406"):
        table.insert(rows(0, ROWS))
    assert table.stats().bytes_spilled == 0
