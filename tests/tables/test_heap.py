"""Heaps stay right when all hashes collide, and old versions stay readable while a heap grows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.contracts.table import TableSpec
from millpond.schema import Column, Schema
from millpond.tables import hashing, heap
from millpond.tables.store import open_store

SPEC = TableSpec("t", Schema.of([Column("k", pa.int64(), False), Column("v", pa.int64())], ["k"]), indexes=(("v",),))


def rows(wanted: range, value: int) -> pa.Table:
    return pa.table({"k": pa.array(wanted, pa.int64()), "v": pa.array([value] * len(wanted), pa.int64())})


def test_keys_whose_hashes_all_collide_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "hash_columns", lambda columns: np.zeros(len(columns[0]), dtype=np.uint64))
    monkeypatch.setattr(hashing, "hash_key", lambda parts: 0)
    table = open_store(None).create(SPEC)
    table.insert(rows(range(20), 1))
    table.upsert(rows(range(10, 30), 2))
    table.delete(keys=[3, 4, 12])
    table.upsert(rows(range(4, 6), 3))
    wanted = dict.fromkeys(range(10), 1) | dict.fromkeys(range(10, 30), 2) | {4: 3, 5: 3}
    for gone in (3, 12):
        del wanted[gone]
    assert {r["k"]: r["v"] for r in table.to_arrow().to_pylist()} == wanted
    found = table.lookup(pa.array(range(-5, 40)))
    assert {r["k"]: r["v"] for r in found.to_pylist()} == wanted
    assert [table.contains(k) for k in range(-5, 40)] == [k in wanted for k in range(-5, 40)]
    assert table.lookup([3], by="v").num_rows == 2


def test_an_old_version_is_read_while_the_heap_grows() -> None:
    table = open_store(None).create(SPEC)
    table.insert(rows(range(100), 0))
    old = table.snapshot()
    for turn in range(1, 30):
        table.upsert(rows(range(50 * turn, 50 * turn + 1000), turn))
    assert old.lookup(pa.array(range(200))).column("v").to_pylist() == [0] * 100
    assert [old.get(k) for k in (0, 99, 100)] == [{"k": 0, "v": 0}, {"k": 99, "v": 0}, None]
    assert old.lookup([0], by="v").num_rows == len(old) == 100


def test_an_older_version_lacks_the_rows_that_were_appended_later() -> None:
    table = open_store(None).create(SPEC)
    for first in range(0, 40, 10):
        table.insert(rows(range(first, first + 10), first))
    older = table.snapshot(2)
    assert older.to_arrow().column("k").to_pylist() == list(range(20))
    assert older.count("v >= 0") == len(older) == 20
    table.delete(keys=[0])
    assert table.snapshot(2).to_arrow().num_rows == 20
    assert table.snapshot(2).lookup([0, 10, 30], by="v").column("k").to_pylist() == list(range(20))


@pytest.mark.parametrize("hash_bits", [64, 10])
def test_many_keys_find_each_row_once_whatever_they_are(monkeypatch: pytest.MonkeyPatch, hash_bits: int) -> None:
    """Absent and repeated ones, those of rows that were deleted or replaced, and keys whose hashes are the same."""
    monkeypatch.setattr(heap, "_NEAR_ROWS", 0)
    monkeypatch.setattr(heap, "_MANY_KEYS", 2)
    keep = np.uint64((1 << hash_bits) - 1)
    hash_columns = hashing.hash_columns
    monkeypatch.setattr(hashing, "hash_columns", lambda columns: hash_columns(columns) & keep)
    store = open_store(None)
    table = store.create(TableSpec("t", Schema.of([Column("k", pa.string(), False), Column("n", pa.int64())], ["k"])))
    held = {f"key-{n}": n for n in range(300)}
    table.insert(pa.table({"k": list(held), "n": list(held.values())}))
    random = np.random.default_rng(5)
    absent = [f"none-{n}" for n in range(40)]

    def check(asked: list[str]) -> None:
        expected = sorted((k, held[k]) for k in set(asked) if k in held)
        for found in (table.lookup(asked), store.begin().table("t").lookup(asked)):
            assert sorted(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True)) == expected

    some = [f"key-{n}" for n in random.integers(0, 300, 100)]
    for few in range(0, 100, 5):
        check(some[few : few + 5])
    check(some)
    check([*some, *absent, *some[:10]])
    check(absent)
    gone, new = set(some[:5]), set(some[5:60]) - set(some[:5])
    table.delete(keys=sorted(gone))
    table.upsert([{"k": k, "n": -1} for k in sorted(new)])
    held = {k: n for k, n in held.items() if k not in gone} | dict.fromkeys(new, -1)
    check([*some, *absent])
    check(some[60:])
