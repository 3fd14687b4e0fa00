"""A damaged folder opens again after a repair, with what is sound, and the repair says what is lost."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from millpond.contracts.table import TableSpec
from millpond.errors import MillpondError
from millpond.schema import Column, Schema
from millpond.tables.repair import repair
from millpond.tables.store import open_store

KEYED = TableSpec("keyed", Schema.of([Column("k", pa.int64(), False), Column("v", pa.string())], ["k"]))
PLAIN = TableSpec("plain", Schema.of([Column("n", pa.int64())]))
COMMITS = 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten commits to each of two tables."""
    return tmp_path / "tables"


def fill(folder: Path, checkpoint_at: int | None) -> None:
    store = open_store(folder)
    store.create(KEYED)
    store.create(PLAIN)
    for turn in range(COMMITS):
        with store.begin() as tx:
            tx.table("keyed").upsert([{"k": turn, "v": "x" * 50}])
            tx.table("plain").insert([{"n": turn}, {"n": -turn}])
            tx.table("plain").delete("n = ?", [1 - turn])
        if turn == checkpoint_at:
            store.checkpoint()
    store.close()


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(bytes(data))


def test_a_sound_folder_is_left_alone(folder: Path) -> None:
    fill(folder, 4)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert repair(folder) == []
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_commits_before_the_damage_are_kept(folder: Path, share: float) -> None:
    fill(folder, None)
    log = folder / "log-000001"
    flip(log, int(log.stat().st_size * share))
    with pytest.raises(MillpondError, match="MP804"):
        open_store(folder)
    problems_found = " ".join(repair(folder))
    assert "are lost" in problems_found
    store = open_store(folder)
    kept = store.table("keyed").values("k")
    assert kept == list(range(len(kept)))
    assert 0 < len(kept) < COMMITS
    assert max(store.table("plain").values("n")) == len(kept) - 1
    store.close()
    assert repair(folder) == []


def test_a_lost_table_is_empty_and_the_others_are_whole(folder: Path) -> None:
    fill(folder, 4)
    flip(next(folder.glob("table-000002*")), 100)
    with pytest.raises(MillpondError, match="MP804"):
        open_store(folder)
    problems_found = " ".join(repair(folder))
    assert "rows of table 'plain' are lost" in problems_found
    assert "keyed" not in problems_found
    store = open_store(folder)
    assert store.table("keyed").values("k") == list(range(COMMITS))
    assert store.table("plain").values("n") == []
    store.table("plain").insert([{"n": 1}])
    store.close()


def test_a_damaged_manifest_after_a_checkpoint_cannot_be_repaired(folder: Path) -> None:
    fill(folder, 4)
    flip(folder / "manifest.json", 60)
    with pytest.raises(MillpondError, match="MP804"):
        repair(folder)


def test_the_damaged_files_are_kept_beside(folder: Path) -> None:
    fill(folder, None)
    flip(folder / "log-000001", 2000)
    damaged = (folder / "log-000001").read_bytes()
    repair(folder)
    assert (folder.with_name("tables-damaged-1") / "log-000001").read_bytes() == damaged
