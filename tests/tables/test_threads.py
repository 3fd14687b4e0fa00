"""Readers beside a writer: every answer is of one version, whatever is committed meanwhile."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millpond.contracts.table import TableSpec
from millpond.schema import Column, Schema
from millpond.tables import memory
from millpond.tables.store import open_store

KEYS = 500
READERS = 8
SECONDS = 60.0 if os.environ.get("MILLPOND_SOAK") else 3.0
# What the process may grow by once it has warmed up: recent commits are kept, and allocators hold pages back.
GROWTH_BYTES_MAX = 256 * 1024 * 1024
SCHEMA = Schema.of([Column("k", pa.int64(), False), Column("v", pa.int64()), Column("s", pa.string())], ["k"])


def content(turn: int) -> pa.Table:
    """All keys with one value, so that a mixture of two commits shows."""
    columns = {"k": pa.array(np.arange(KEYS)), "v": pa.array(np.full(KEYS, turn))}
    return pa.table({**columns, "s": pa.array([f"s{turn % 3}"] * KEYS)})


def test_readers_never_see_half_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_DEAD_MIN", 2000)
    store = open_store(None)
    left, right, single = (
        store.create(TableSpec(name, SCHEMA, indexes=(("s",),))) for name in ("left", "right", "single")
    )
    with store.begin() as tx:
        for name in ("left", "right"):
            tx.table(name).insert(content(0))
    single.insert([{"k": 0, "v": 0, "s": "s0"}])
    stop, wrong, reads = threading.Event(), [], [0] * READERS

    def same(table: pa.Table, rows: int = KEYS) -> int:
        found = pc.count_distinct(table.column("v")).as_py()
        assert (table.num_rows, found) == (rows, 1), f"{table.num_rows} rows, {found} values"
        return int(table.column("v")[0].as_py())

    def newest(row: dict[str, Any] | None, seen: int) -> int:
        assert row is not None
        assert row["s"] == f"s{row['v'] % 3}"
        assert row["v"] >= seen, "an older row after a newer one"
        return int(row["v"])

    def read(number: int) -> None:
        keys = pa.array(np.random.default_rng(number).permutation(KEYS))
        seen = 0
        try:
            while not stop.is_set():
                seen = newest(single.get(0), seen)
                seen = newest(single.lookup([0]).to_pylist()[0], seen)
                seen = newest(single.find("s IN ('s0', 's1', 's2')").to_pylist()[0], seen)
                same(left.lookup(keys))
                same(left.to_arrow())
                same(right.find("k >= 0"))
                assert left.find("s IN ('s0', 's1', 's2')").num_rows == KEYS
                row = left.get(int(keys[0].as_py()))
                assert row is not None
                assert row["s"] == f"s{row['v'] % 3}"
                with store.begin() as both:
                    assert same(both.table("left").to_arrow()) == same(both.table("right").lookup(keys))
                reads[number] += 1
        except BaseException as error:
            wrong.append(error)
            stop.set()

    threads = [threading.Thread(target=read, args=(n,)) for n in range(len(reads))]
    for thread in threads:
        thread.start()
    begin, turn, warm = time.monotonic(), 0, 0
    while time.monotonic() < begin + SECONDS and not stop.is_set():
        turn += 1
        with store.begin() as tx:
            for name in ("left", "right"):
                _change(tx.table(name), turn)
        single.upsert([{"k": 0, "v": turn, "s": f"s{turn % 3}"}])
        if not warm and time.monotonic() > begin + SECONDS / 3:
            warm = _resident_bytes()
    grown = _resident_bytes() - warm
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not wrong, wrong[0]
    assert min(reads) > 0
    assert turn > 0
    assert left.stats().compactions > 0
    assert grown < GROWTH_BYTES_MAX
    assert sum(table.stats().bytes_memory for table in (left, right, single)) < GROWTH_BYTES_MAX // 16


def _resident_bytes() -> int:
    """The memory that the process has from the system."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _change(table: Any, turn: int) -> None:
    """The same content each time by another way: replacing, updating, or deleting and inserting."""
    if turn % 3 == 0:
        table.upsert(content(turn))
    elif turn % 3 == 1:
        table.update("true", {"v": turn, "s": f"s{turn % 3}"})
    else:
        table.delete("true")
        table.insert(content(turn))


def test_writers_of_one_table_take_turns_and_lose_nothing() -> None:
    store = open_store(None)
    table = store.create(TableSpec("t", SCHEMA))
    table.insert([{"k": 0, "v": 0}])
    add = table.condition("v + 1").expression

    def work() -> None:
        for _ in range(50):
            table.update("k = 0", {"v": add})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert table.get(0) == {"k": 0, "v": 200, "s": None}
