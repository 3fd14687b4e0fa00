"""Tables that get other columns: all of them in one commit, there after a restart."""

from pathlib import Path

import pyarrow as pa
import pytest

from millpond.contracts.table import TableSpec
from millpond.schema import Column, Schema
from millpond.tables.store import open_store

OLD = Schema((Column("k", pa.int32()), Column("v", pa.string())), ("k",))
NEW = Schema((Column("k", pa.int32()), Column("v", pa.string()), Column("w", pa.int64())), ("k",))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_reshaped_tables_hold_their_new_rows_after_a_restart_and_go_on(tmp_path: Path, checkpoint: bool) -> None:
    store = open_store(tmp_path)
    for name in ("a", "b"):
        store.create(TableSpec(name, OLD)).insert([{"k": 1, "v": "x"}, {"k": 2, "v": "y"}])
    rows = store.table("a").to_arrow().append_column("w", pa.array([7, 8], pa.int64()))
    store.reshape([(TableSpec("a", NEW), rows), (TableSpec("b", NEW), rows.slice(0, 0))], {"meaning": "new"})
    store.table("a").upsert([{"k": 2, "v": "z", "w": 9}])
    if checkpoint:
        store.checkpoint()
    store.create(TableSpec("c", OLD)).insert([{"k": 5, "v": "c"}])
    store.close()
    again = open_store(tmp_path)
    expected = [{"k": 1, "v": "x", "w": 7}, {"k": 2, "v": "z", "w": 9}]
    assert again.table("a").to_arrow().to_pylist() == expected
    assert again.table("a").get(2) == expected[1]
    assert len(again.table("b")) == 0
    assert again.table("c").get(5) == {"k": 5, "v": "c"}
    assert again.get("meaning") == "new"
    again.close()
