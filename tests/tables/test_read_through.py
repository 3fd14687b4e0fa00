"""A read-through cache in front of a table: hits, misses and evictions, and never a row that is not the newest."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.contracts.table import Table, TableSpec
from millpond.schema import Column, Schema
from millpond.tables import memory
from millpond.tables.store import TableStore, open_store
from millpond.testing.clock import Clock
from millpond.testing.tables import TableContract

SCHEMA = Schema.of([Column("k", pa.int64(), False), Column("v", pa.string())], ["k"])
CACHE = {"cache.max_size": 3}


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000.0)


@pytest.fixture(params=["memory", "sqlite", "spilled"])
def make(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Any]:
    """Makes a table of a backend behind a cache, with rows 1 to 9."""
    store = open_store(tmp_path / "tables", clock=clock)
    kept: dict[str, dict[str, Any]] = {
        "sqlite": {"path": str(tmp_path / "t.db")},
        "spilled": {"spill": True, "max_memory": 1},
        "memory": {},
    }
    backend = "sqlite" if request.param == "sqlite" else "memory"

    def made(**values: Any) -> tuple[TableStore, Table]:
        given = {name.replace("cache_", "cache."): value for name, value in values.items()}
        table = store.create(TableSpec("t", SCHEMA, backend, {**kept[request.param], **given}))
        table.insert([{"k": k, "v": f"v{k}"} for k in range(1, 10)])
        return store, table

    yield made
    store.close()


def figures(table: Table) -> tuple[int, int, int, int]:
    found = table.stats()
    return found.cache_rows, found.cache_hits, found.cache_misses, found.cache_evictions


def test_a_row_read_again_comes_from_the_cache(make: Any) -> None:
    _, table = make(cache_max_size=3)
    assert table.get(1) == table.get(1) == {"k": 1, "v": "v1"}
    assert table.contains(1)
    assert figures(table) == (1, 2, 1, 0)
    assert table.lookup([1, 2]).to_pylist() == [{"k": 1, "v": "v1"}, {"k": 2, "v": "v2"}]
    assert figures(table) == (2, 3, 2, 0)
    assert table.get(99) is None
    assert not table.contains(99)
    assert figures(table) == (2, 3, 4, 0)


def test_the_least_recently_used_row_goes_first(make: Any) -> None:
    _, table = make(cache_max_size=3)
    for k in (1, 2, 3, 1, 4):
        table.get(k)
    assert figures(table) == (3, 1, 4, 1)
    # 2 is out; 1 was used since.
    table.get(1)
    assert figures(table)[1:] == (2, 4, 1)
    table.get(2)
    assert figures(table)[1:] == (2, 5, 2)


def test_more_rows_than_fit_are_all_returned_and_the_last_kept(make: Any) -> None:
    _, table = make(cache_max_size=3)
    assert table.lookup([9, 7, 5, 3, 1]).num_rows == 5
    assert figures(table) == (3, 0, 5, 0)
    assert sorted(r["k"] for r in table.lookup([1, 3, 5, 7]).to_pylist()) == [1, 3, 5, 7]


def test_rows_of_many_readings_come_back_in_one(make: Any) -> None:
    _, table = make(cache_max_size=100)
    for k in (3, 9, 1, 7, 4, 2):
        table.get(k)
    before = table.stats().cache_misses
    assert table.lookup([1, 2, 3, 4, 7, 9]).column("v").to_pylist() == ["v1", "v2", "v3", "v4", "v7", "v9"]
    assert table.stats().cache_misses == before


def test_a_row_older_than_its_time_to_live_is_read_again(make: Any, clock: Clock) -> None:
    _, table = make(cache_ttl=5_000_000)
    table.get(1)
    clock.now += 4.9
    table.get(1)
    assert figures(table) == (1, 1, 1, 0)
    clock.now += 0.1
    table.get(1)
    assert figures(table) == (1, 1, 2, 1)


def test_no_row_is_older_than_the_last_commit(make: Any) -> None:
    store, table = make(cache_max_size=100)
    everything = list(range(1, 10))
    table.lookup(everything)
    table.upsert([{"k": 1, "v": "new"}])
    table.update("k = 2", {"v": "changed"})
    table.update("k = 3", {"k": 33})
    table.delete(keys=[4])
    with store.begin() as tx:
        tx.table("t").update("k = 5", {"v": "in a transaction"})
    found = {r["k"]: r["v"] for r in table.lookup([*everything, 33]).to_pylist()}
    kept = {k: f"v{k}" for k in (6, 7, 8, 9)}
    assert found == {1: "new", 2: "changed", 33: "v3", 5: "in a transaction", **kept}
    assert [table.get(k) for k in (3, 4)] == [None, None]
    assert not table.contains(4)
    # What no commit touched is still there: 6, 7, 8 and 9.
    assert table.stats().cache_hits == 4


def test_a_commit_that_fails_leaves_the_cache_right(make: Any) -> None:
    store, table = make(cache_max_size=100)
    table.get(1)
    tx = store.begin()
    tx.table("t").upsert([{"k": 1, "v": "mine"}])
    tx.rollback()
    late = store.begin()
    late.table("t").upsert([{"k": 1, "v": "late"}])
    table.upsert([{"k": 1, "v": "first"}])
    with pytest.raises(Exception, match="MP405"):
        late.commit()
    assert table.get(1) == {"k": 1, "v": "first"}


def test_a_transaction_sees_its_own_versions(make: Any) -> None:
    store, table = make(cache_max_size=100)
    table.lookup([1, 2])
    tx = store.begin()
    inside = tx.table("t")
    hits = table.stats().cache_hits
    assert inside.get(1) == {"k": 1, "v": "v1"}
    assert table.stats().cache_hits == hits + 1
    inside.upsert([{"k": 1, "v": "mine"}])
    table.upsert([{"k": 2, "v": "theirs"}])
    assert inside.lookup([1, 2]).to_pylist() in (
        [{"k": 1, "v": "mine"}, {"k": 2, "v": "v2"}],
        [{"k": 2, "v": "v2"}, {"k": 1, "v": "mine"}],
    )
    assert table.get(1) == {"k": 1, "v": "v1"}
    assert table.get(2) == {"k": 2, "v": "theirs"}
    tx.commit()
    assert table.get(1) == {"k": 1, "v": "mine"}


def test_an_older_snapshot_is_read_past_the_cache(make: Any) -> None:
    _, table = make(cache_max_size=100)
    old = table.snapshot()
    table.upsert([{"k": 1, "v": "new"}])
    table.get(1)
    assert (old.get(1), table.get(1)) == ({"k": 1, "v": "v1"}, {"k": 1, "v": "new"})


def test_compaction_renumbers_rows_behind_the_cache(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_DEAD_MIN", 4)
    store, table = make(cache_max_size=100)
    table.lookup(list(range(1, 10)))
    table.delete("k <= 6")
    store.compact()
    table.upsert([{"k": 20, "v": "v20"}])
    assert {k: (table.get(k) or {}).get("v") for k in (1, 7, 8, 9, 20)} == {
        1: None,
        7: "v7",
        8: "v8",
        9: "v9",
        20: "v20",
    }


def test_writing_reads_nothing_into_the_cache(make: Any) -> None:
    _, table = make(cache_max_size=100)
    table.upsert([{"k": k, "v": "w"} for k in range(1, 10)])
    table.find("v = 'w'")
    assert figures(table) == (0, 0, 0, 0)


def test_readers_and_a_writer_at_once_see_no_old_row(make: Any) -> None:
    """Each reader asks what has been committed before it reads: it must never get less."""
    _, table = make(cache_max_size=4)
    committed, wrong = [0], []

    def read() -> None:
        while committed[0] < 60:
            at_least = committed[0]
            row = table.get(1)
            if int(row["v"].removeprefix("v")) < at_least:
                wrong.append((row, at_least))

    table.upsert([{"k": 1, "v": "v0"}])
    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, 61):
        table.upsert([{"k": 1, "v": f"v{number}"}])
        committed[0] = number
    for reader in readers:
        reader.join()
    assert not wrong


class TestContractBehindACache(TableContract):
    """The contract holds behind a cache too small for anything."""

    backend = "sqlite"

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.options = {"path": str(tmp_path / "tables.db"), "cache.max_size": 2}
