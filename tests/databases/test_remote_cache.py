"""The read-through cache in front of a table on a server: what it saves, and never a row that is not the newest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.databases.servers import Database, Server, until

import millpond as mp
from millpond.contracts.table import Table, TableSpec
from millpond.schema import Column, Schema
from millpond.tables.store import TableStore, open_store
from millpond.testing.clock import Clock
from millpond.testing.tables import TableContract

SCHEMA = Schema.of([Column("k", pa.int64(), False), Column("v", pa.string())], ["k"])


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000.0)


@pytest.fixture
def make(redis: Database, tmp_path: Path, clock: Clock) -> Iterator[Any]:
    """Makes a table in Redis behind a cache, with rows 1 to 9."""
    store = open_store(tmp_path / "tables", clock=clock)

    def made(**values: Any) -> tuple[TableStore, Table]:
        given = {name.replace("cache_", "cache."): value for name, value in values.items()}
        table = store.create(TableSpec("t", SCHEMA, "redis", {"url": redis.uri, **given}))
        table.insert([{"k": k, "v": f"v{k}"} for k in range(1, 10)])
        return store, table

    yield made
    store.close()


def figures(table: Table) -> tuple[int, int, int, int]:
    found = table.stats()
    return found.cache_rows, found.cache_hits, found.cache_misses, found.cache_evictions


def since(table: Table, before: tuple[int, int, int, int]) -> tuple[int, ...]:
    """Hits and misses since some figures."""
    return tuple(now - then for now, then in zip(figures(table)[1:3], before[1:3], strict=True))


def test_a_row_read_again_is_not_asked_for(make: Any, redis: Database) -> None:
    _, table = make(cache_max_size=100)
    before = figures(table)
    assert table.get(1) == {"k": 1, "v": "v1"}
    # As only a server that is not asked can hide it.
    redis.connect().delete("t:1")
    assert table.get(1) == {"k": 1, "v": "v1"}
    assert table.lookup([1, 2, 1]).num_rows == 2
    assert since(table, before) == (3, 2)
    assert table.get(99) is None
    assert table.get(99) is None
    assert since(table, before) == (3, 4)


def test_the_least_recently_used_row_goes_first(make: Any) -> None:
    _, table = make(cache_max_size=3)
    for k in (1, 2, 3, 1, 4):
        table.get(k)
    assert figures(table)[0] == 3
    before = figures(table)
    table.lookup([1, 3, 4])
    assert since(table, before) == (3, 0)
    table.get(2)
    assert since(table, before) == (3, 1)
    assert table.lookup(list(range(1, 10))).num_rows == 9


def test_a_row_older_than_its_time_to_live_is_read_again(make: Any, clock: Clock, redis: Database) -> None:
    _, table = make(cache_ttl=5_000_000)
    table.get(1)
    redis.connect().hset("t:1", "v", "theirs")
    clock.now += 4.9
    assert table.get(1)["v"] == "v1"
    clock.now += 0.1
    assert table.get(1)["v"] == "theirs"


def test_rows_that_expire_are_not_cached_for_longer_than_they_live(make: Any, clock: Clock, redis: Database) -> None:
    _, table = make(cache_max_size=100, ttl=60_000_000)
    table.get(1)
    # As if its time was over.
    redis.connect().delete("t:1")
    clock.now += 60.0
    assert table.get(1) is None


def test_a_commit_replaces_what_is_cached(make: Any) -> None:
    store, table = make(cache_max_size=100)
    everything = list(range(1, 10))
    table.lookup(everything)
    table.upsert([{"k": 1, "v": "new"}])
    table.update("k = 2", {"v": "changed"})
    table.update("k = 3", {"k": 33})
    table.delete(keys=[4])
    with store.begin() as tx:
        tx.table("t").update("k = 5", {"v": "in a transaction"})
    before = figures(table)
    found = {r["k"]: r["v"] for r in table.lookup([1, 2, 5, 6, 7, 8, 9]).to_pylist()}
    assert found == {1: "new", 2: "changed", 5: "in a transaction", **{k: f"v{k}" for k in (6, 7, 8, 9)}}
    assert since(table, before) == (7, 0)
    assert (table.get(33), table.get(3), table.get(4)) == ({"k": 33, "v": "v3"}, None, None)


def test_an_older_snapshot_and_a_transaction_are_read_past_the_cache(make: Any) -> None:
    store, table = make(cache_max_size=100)
    old, tx = table.snapshot(), store.begin()
    table.upsert([{"k": 1, "v": "new"}])
    assert table.get(1) == {"k": 1, "v": "new"}
    assert (old.get(1), tx.table("t").get(1)) == ({"k": 1, "v": "v1"}, {"k": 1, "v": "v1"})
    tx.table("t").upsert([{"k": 2, "v": "mine"}])
    assert (tx.table("t").get(2)["v"], table.get(2)["v"]) == ("mine", "v2")
    tx.commit()
    assert table.get(2) == {"k": 2, "v": "mine"}


def test_a_commit_that_fails_leaves_the_cache_right(make: Any) -> None:
    store, table = make(cache_max_size=100)
    table.get(1)
    late = store.begin()
    late.table("t").upsert([{"k": 1, "v": "late"}])
    table.upsert([{"k": 1, "v": "first"}])
    with pytest.raises(mp.MillpondError, match="MP405"):
        late.commit()
    assert table.get(1) == {"k": 1, "v": "first"}


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


def test_cached_rows_are_read_while_the_server_is_away(
    own_redis: Server, run: Callable[..., mp.App], tmp_path: Path
) -> None:
    database = own_redis.database()
    options = f"WITH ('backend' = 'redis', 'url' = '{database.uri}', 'cache.max_size' = '10')"
    app = run(f"CREATE TABLE t (k INT PRIMARY KEY, v STRING) {options};", "INSERT INTO t VALUES (1, 'a');")
    until(lambda: app.table("t").get(1))
    own_redis.stop()
    assert app.table("t").get(1) == {"k": 1, "v": "a"}
    with pytest.raises(mp.MillpondError, match="MP506"):
        app.table("t").get(2)
    assert app.table("t").stats().cache_hits > 0


class TestContractBehindACache(TableContract):
    """The contract holds behind a cache too small for anything."""

    backend = "redis"

    @pytest.fixture(autouse=True)
    def _server(self, redis: Database) -> None:
        self.options = {"url": redis.uri, "cache.max_size": 2}
