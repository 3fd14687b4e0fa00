"""A disk that refuses: a coded error, nothing half done, readers go on, and so do writers once there is room."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from millpond.contracts.table import TableSpec
from millpond.errors import StateError
from millpond.schema import Column, Schema
from millpond.tables.store import open_store
from millpond.testing.table_harness import no_room_beyond

SPEC = TableSpec("t", Schema.of([Column("k", pa.int64(), False), Column("v", pa.string())], ["k"]))
BIG = [{"k": k, "v": "x" * 100} for k in range(1000)]


def test_a_commit_that_does_not_fit_leaves_no_trace(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    table = store.create(SPEC)
    table.insert([{"k": -1, "v": "first"}])
    log = tmp_path / "log-000001"
    before = log.read_bytes()
    with no_room_beyond(len(before) + 5000):
        tx = store.begin()
        tx.put("mark", 1)
        tx.table("t").insert(BIG)
        with pytest.raises(StateError, match=r"MP805.*full"):
            tx.commit()
        assert log.read_bytes() == before
        assert table.to_arrow().to_pylist() == [{"k": -1, "v": "first"}]
        assert table.version == 1
        assert store.get("mark") is None
        table.insert([{"k": -2, "v": "small"}])
    table.insert(BIG)
    store.close()
    again = open_store(tmp_path)
    assert again.problems == []
    assert len(again.table("t")) == 1002
    again.close()


def test_a_checkpoint_that_does_not_fit_leaves_the_old_state(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    table = store.create(SPEC)
    table.insert(BIG)
    with no_room_beyond(1000), pytest.raises(StateError, match="MP805"):
        store.checkpoint()
    table.insert([{"k": -1}])
    store.close()
    again = open_store(tmp_path)
    assert len(again.table("t")) == 1001
    again.checkpoint()
    again.close()
    last = open_store(tmp_path)
    assert len(last.table("t")) == 1001
    last.close()


def test_a_folder_that_cannot_be_made_is_a_coded_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StateError, match="MP805"):
        open_store(tmp_path / "file" / "tables")


def test_a_log_that_cannot_go_on_in_a_new_file_goes_on_in_the_old(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    table = store.create(SPEC)
    (tmp_path / "log-000002").mkdir()
    with pytest.raises(StateError, match="MP805"):
        store.checkpoint()
    (tmp_path / "log-000002").rmdir()
    table.insert(BIG)
    store.checkpoint()
    store.close()
    again = open_store(tmp_path)
    assert len(again.table("t")) == 1000
    again.close()
