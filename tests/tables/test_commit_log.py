"""The commit log finds every damage: a torn end is cut off and reported, anything else is named and refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.contracts.table import TableSpec
from millpond.errors import StateError
from millpond.schema import Column, Schema
from millpond.tables.commit_log import Log, encode
from millpond.tables.store import open_store

SPEC = TableSpec("t", Schema.of([Column("k", pa.int64(), False), Column("v", pa.string())], ["k"]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a kill leaves of a store with three commits, each one row, and its log only."""
    store = open_store(tmp_path / "held")
    table = store.create(SPEC)
    for k in range(3):
        table.insert([{"k": k, "v": "x" * k}])
    shutil.copytree(tmp_path / "held", tmp_path / "tables")
    store.close()
    return tmp_path / "tables"


def record_starts(log: bytes) -> list[int]:
    starts, place = [], log.find(b"MPr1")
    while place >= 0:
        starts.append(place)
        place = log.find(b"MPr1", place + 1)
    return starts


def test_truncated_anywhere_it_holds_the_whole_records_before(folder: Path, tmp_path: Path) -> None:
    log = (folder / "log-000001").read_bytes()
    starts = record_starts(log)
    for size in range(starts[1], len(log), 13):
        torn = tmp_path / f"torn-{size}"
        shutil.copytree(folder, torn)
        (torn / "log-000001").write_bytes(log[:size])
        store = open_store(torn)
        # The first record makes the table; a record is whole when the next one starts within the size.
        whole = sum(start <= size for start in starts[2:])
        assert sorted(store.table("t").values("k")) == list(range(whole))
        assert [p.code for p in store.problems] == ([] if size in starts else ["MP808"])
        store.table("t").insert([{"k": 100}])
        store.close()
        again = open_store(torn)
        assert again.problems == []
        assert again.table("t").contains(100)
        again.close()


def test_a_flipped_byte_anywhere_is_named_and_nothing_is_served(folder: Path) -> None:
    path = folder / "log-000001"
    log = path.read_bytes()
    for place in range(0, len(log), 7):
        damaged = bytearray(log)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(StateError) as raised:
            open_store(folder)
        assert raised.value.code == "MP804"
        start = max(s for s in record_starts(log) if s <= place)
        assert f"{path} is damaged at byte {start}" in str(raised.value)
    path.write_bytes(log)
    open_store(folder).close()


def test_zeros_at_the_end_are_what_a_crash_leaves(folder: Path) -> None:
    path = folder / "log-000001"
    log = path.read_bytes()
    for zeros in (1, 20, 40, 400):
        path.write_bytes(log + bytes(zeros))
        store = open_store(folder)
        assert [p.code for p in store.problems] == ["MP808"]
        assert len(store.table("t")) == 3
        store.close()
        assert path.read_bytes() == log


def test_a_record_whose_end_never_reached_the_disk_is_cut_off(folder: Path) -> None:
    path = folder / "log-000001"
    log = path.read_bytes()
    start = record_starts(log)[-1]
    path.write_bytes(log[: start + 40] + bytes(len(log) - start - 40))
    store = open_store(folder)
    assert sorted(store.table("t").values("k")) == [0, 1]
    assert [p.code for p in store.problems] == ["MP808"]
    store.close()


def test_a_missing_record_is_damage(folder: Path) -> None:
    path = folder / "log-000001"
    log = path.read_bytes()
    first, second, third, *_ = record_starts(log)
    path.write_bytes(log[:second] + log[third:])
    with pytest.raises(StateError, match="record 2 is missing"):
        open_store(folder)
    assert first == 0


@pytest.mark.parametrize("name", ["manifest.json", "table-000001-000000000005.arrow"])
def test_a_flipped_byte_in_a_checkpoint_is_named(folder: Path, name: str) -> None:
    store = open_store(folder)
    store.checkpoint()
    store.close()
    path = folder / name
    whole = path.read_bytes()
    for place in range(0, len(whole), 11):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(StateError) as raised:
            open_store(folder)
        assert raised.value.code in ("MP804", "MP803")
        assert str(path) in str(raised.value)
    path.write_bytes(whole[:-1])
    with pytest.raises(StateError, match="MP804"):
        open_store(folder)
    path.write_bytes(whole)
    open_store(folder).close()


def test_a_missing_table_file_is_named(folder: Path) -> None:
    store = open_store(folder)
    store.checkpoint()
    store.close()
    path = next(folder.glob("table-*"))
    path.unlink()
    with pytest.raises(StateError, match=f"MP804.*{path.name}"):
        open_store(folder)


def test_a_log_goes_on_after_the_last_record(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", 0)
    log.append({"a": 1}, [b"xyz"])
    log.close()
    again = Log(tmp_path / "log", 1)
    again.append({"a": 2}, [])
    again.close()
    wanted = b"".join(bytes(p) for p in (*encode(1, {"a": 1}, [b"xyz"]), *encode(2, {"a": 2}, [])))
    assert (tmp_path / "log").read_bytes() == wanted


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_large_commit_is_read_back_as_it_was(tmp_path: Path, compression: str) -> None:
    """It is written in the pieces in which it lies in memory, slices and NULLs among them."""
    rows = pa.table(
        {"k": pa.array(range(200_000)), "v": pa.array([None if n % 3 else f"text {n}" for n in range(200_000)])}
    ).slice(1000, 150_000)
    store = open_store(tmp_path)
    table = store.create(TableSpec("t", SPEC.schema, values={"compression": compression}))
    table.insert(rows)
    table.delete("k % 2 = 0")
    expected = table.to_arrow()
    assert table.stats().bytes_disk > 200_000
    store.close()
    again = open_store(tmp_path)
    assert again.table("t").to_arrow().equals(expected)
    again.close()
