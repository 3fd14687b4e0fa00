"""Cache tables: true LRU, a time to live by a settable clock, hits and misses."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millpond.contracts.table import Table, TableSpec
from millpond.schema import Column, Schema
from millpond.tables.store import TableStore, open_store
from millpond.testing.clock import Clock

SCHEMA = Schema.of([Column("k", pa.int64(), False), Column("v", pa.string())], ["k"])


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000.0)


@pytest.fixture
def store(clock: Clock) -> TableStore:
    return open_store(None, clock=clock)


def cache(store: TableStore, **values: object) -> Table:
    return store.create(TableSpec("c", SCHEMA, "cache", values))


def keys(table: Table) -> list[int]:
    return sorted(table.values("k"))


def test_the_least_recently_used_row_goes_first(store: TableStore) -> None:
    table = cache(store, max_size=3)
    for k in (1, 2, 3):
        table.insert([{"k": k}])
    assert table.get(1) is not None
    table.insert([{"k": 4}])
    assert keys(table) == [1, 3, 4]
    table.lookup([3])
    table.upsert([{"k": 5}])
    assert keys(table) == [3, 4, 5]
    table.find("k = 4")
    table.upsert([{"k": 3, "v": "written"}])
    table.insert([{"k": 6}])
    assert keys(table) == [3, 4, 6]


def test_looking_for_what_is_not_there_keeps_nothing(store: TableStore) -> None:
    table = cache(store, max_size=2)
    table.insert([{"k": 1}, {"k": 2}])
    table.get(9)
    table.contains(1)
    table.insert([{"k": 3}])
    assert keys(table) == [1, 3]


def test_more_rows_than_fit_keep_the_last(store: TableStore) -> None:
    table = cache(store, max_size=3)
    table.insert([{"k": k} for k in range(10)])
    assert keys(table) == [7, 8, 9]
    table.upsert(pa.table({"k": pa.array(range(100, 200))}))
    assert keys(table) == [197, 198, 199]
    assert table.get(198) == {"k": 198, "v": None}


def test_its_size_is_ten_thousand_unless_said(store: TableStore) -> None:
    table = cache(store)
    table.insert(pa.table({"k": pa.array(range(10_001))}))
    assert len(table) == 10_000
    assert not table.contains(0)


def test_a_row_is_gone_after_its_time_to_live(store: TableStore, clock: Clock) -> None:
    table = cache(store, ttl=60_000_000)
    table.insert([{"k": 1, "v": "old"}])
    clock.now += 40
    table.insert([{"k": 2}])
    table.get(1)
    clock.now += 20
    assert table.get(1) is None
    assert keys(table) == [2]
    assert len(table) == table.count() == table.stats().rows == 1
    assert table.lookup([1, 2]).num_rows == 1
    assert not table.exists("v = 'old'")
    table.insert([{"k": 1, "v": "new"}])
    assert table.get(1) == {"k": 1, "v": "new"}
    clock.now += 59
    table.upsert([{"k": 1, "v": "newer"}])
    clock.now += 59
    assert keys(table) == [1]


def test_expired_rows_do_not_push_out_others(store: TableStore, clock: Clock) -> None:
    table = cache(store, ttl=60_000_000, max_size=2)
    table.insert([{"k": 1}])
    clock.now += 60
    table.insert([{"k": 2}])
    table.insert([{"k": 3}])
    assert keys(table) == [2, 3]


def test_a_transaction_sees_no_expired_row(store: TableStore, clock: Clock) -> None:
    table = cache(store, ttl=60_000_000)
    table.insert([{"k": 1}])
    clock.now += 60
    with store.begin() as tx:
        inside = tx.table("c")
        assert inside.get(1) is None
        inside.insert([{"k": 1, "v": "again"}])
    assert table.get(1) == {"k": 1, "v": "again"}


def test_many_writes_stay_within_the_size(store: TableStore) -> None:
    table = cache(store, max_size=100)
    for turn in range(200):
        table.upsert([{"k": (turn * 37 + i) % 5000} for i in range(60)])
        assert len(table) <= 100
    assert table.stats().compactions > 0
    last = [(199 * 37 + i) % 5000 for i in range(60)]
    assert table.lookup(last).num_rows == 60


def test_hits_and_misses_are_counted(store: TableStore) -> None:
    table = cache(store)
    table.insert([{"k": 1}])
    table.get(1)
    table.get(2)
    table.lookup([1, 3, 4])
    stats = table.stats()
    assert (stats.lookups, stats.hits) == (5, 2)
