"""How fast tables are: rates and times of one process on rows of eight columns. `--json` prints one object."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
from growth import SIZES, draw, growth
from made_rows import rows, table_in
from peers import peers
from timing import each_s, seconds

from millpond.contracts.table import Table, TableSpec
from millpond.schema import Schema
from millpond.tables.store import open_store

KEYS = 100_000
# Two lookups are compared with each other: with few runs of each, what the machine does beside decides.
LOOKUPS = 15


def loading(count: int, folder: Path) -> dict[str, float]:
    """Loading, replacing and deleting in bulk."""
    data, figures = rows(count), {}
    store = open_store(folder)
    with table_in(store, "volatile", durable=False) as table:
        figures["load_rows_s"] = count / seconds(lambda: table.insert(data))
        picked = np.random.default_rng(1).permutation(count)
        batches = [data.take(pa.array(picked[i : i + KEYS])) for i in range(0, min(count, 3 * KEYS), KEYS)]
        done = sum(b.num_rows for b in batches)
        figures["upsert_rows_s"] = done / seconds(lambda: [table.upsert(b) for b in batches])
        figures["delete_rows_s"] = done / seconds(lambda: [table.delete(keys=b.column("key")) for b in batches])
    with table_in(store, "dicts", durable=False) as table:
        lists = rows(50_000).to_pylist()
        work = [lists[i : i + 1000] for i in range(0, len(lists), 1000)]
        figures["insert_bulk_rows_s"] = 1000 / each_s(table.insert, work)
    store.close()
    return figures | durable_loading(data, folder) | {"fsync_ms": fsync_ms(folder)}


def durable_loading(data: pa.Table, folder: Path) -> dict[str, float]:
    """Loading and committing through the log, and opening again."""
    store, figures = open_store(folder), {}
    table = store.create(TableSpec("durable", Schema.from_arrow(data.schema, ["key"])))
    figures["load_durable_rows_s"] = data.num_rows / seconds(lambda: table.insert(data))
    lone = iter(rows(20, first=data.num_rows).to_pylist())
    figures["insert_one_durable_ms"] = seconds(lambda: table.insert([next(lone)]), 20) * 1000
    small = iter([data.slice(i, 1000) for i in range(0, 40_000, 1000)])
    # The load has made a checkpoint due, which is written beside these commits and shares the disk with them.
    figures["commit_beside_checkpoint_ms"] = seconds(lambda: table.upsert(next(small)), 20) * 1000
    store.checkpoint()
    figures["commit_ms"] = seconds(lambda: table.upsert(next(small)), 20) * 1000
    store.checkpoint()
    store.close()
    figures["recovery_rows_s"] = data.num_rows / seconds(lambda: open_store(folder).close())
    return figures


def fsync_ms(folder: Path) -> float:
    """The disk's own time for a small write that is to last."""
    with (folder / "probe").open("wb") as file:

        def once() -> None:
            file.write(b"x" * 4096)
            file.flush()
            os.fdatasync(file.fileno())

        return seconds(once, 20) * 1000


def asking(count: int) -> dict[str, float]:
    """Questions to a table of so many rows."""
    figures: dict[str, float] = {}
    store, rng = open_store(None), np.random.default_rng(2)
    for size, name in ((1_000, "1k"), (count, "1m")):
        with table_in(store, f"t{name}") as small:
            data = rows(size)
            small.insert(data)
            keys = data.column("key").combine_chunks().take(pa.array(rng.integers(0, size, KEYS)))
            figures[f"lookup_keys_s_{name}"] = KEYS / seconds(lambda: small.lookup(keys), LOOKUPS)  # noqa: B023
    with table_in(store, "t") as table:
        table.insert(rows(count))
        table.create_index("symbol")
        hot = [f"user-{n:08d}" for n in rng.integers(0, count, 10_000)]
        figures["get_cold_s"] = 1 / each_s(table.get, hot)
        figures["get_s"] = len(hot) / seconds(lambda: [table.get(k) for k in hot], 3)
        figures["find_key_s"] = 1 / each_s(lambda key: table.find("key = ?", [key]), hot[:200])
        symbols = [f"sym-{n}" for n in range(20)]
        figures["find_index_s"] = 1 / each_s(lambda symbol: table.find("symbol = ?", [symbol]), symbols)
        figures["find_scan_rows_s"] = count / seconds(lambda: table.find("quantity = 77"), 3)
        gold = table.condition("tier = 'GOLD' AND quantity < 5")
        figures["query_s"] = 1 / seconds(lambda: table.find(gold), 5)
        figures["scan_rows_s"] = count / seconds(lambda: sum(b.num_rows for b in table.scan()), 3)
        figures["count_us"] = seconds(table.count, 5) * 1e6
    return figures


def spilling(count: int, folder: Path) -> dict[str, float]:
    """Bulk lookups in a table of which a quarter may be in memory."""
    data = rows(count)
    store = open_store(folder)
    values = {"durable": False, "spill": True, "max_memory": data.nbytes // 4}
    with table_in(store, "spilled", **values) as table:
        for first in range(0, count, KEYS):
            table.insert(data.slice(first, KEYS))
        picked = np.random.default_rng(3).integers(0, count, KEYS)
        keys = pa.array([f"user-{n:08d}" for n in picked])
        figures = {"spill_lookup_keys_s": KEYS / seconds(lambda: table.lookup(keys), 5)}
    store.close()
    return figures


def one_by_one(count: int) -> dict[str, float]:
    """Single changes to a table of so many rows."""
    store, figures = open_store(None), {}
    with table_in(store, "t") as table:
        table.insert(rows(count))
        extra = rows(300, first=count).to_pylist()
        table.insert(extra[:100])
        keys = [f"user-{n:08d}" for n in range(0, count, count // 200)]
        figures["insert_one_us"] = each_s(lambda row: table.insert([row]), extra[100:]) * 1e6
        figures["upsert_one_us"] = each_s(lambda row: table.upsert([row]), extra[100:]) * 1e6
        figures["contains_us"] = each_s(table.contains, keys) * 1e6
        figures["update_one_ms"] = each_s(lambda key: table.update("key = ?", {"quantity": 1}, [key]), keys) * 1e3
        figures["delete_one_ms"] = each_s(lambda key: table.delete(keys=[key]), keys) * 1e3
    return figures


def in_sqlite(count: int, folder: Path) -> dict[str, float]:
    """The main figures of a table whose rows are in a SQLite file."""
    data, store = rows(count), open_store(folder)
    keys = data.column("key").combine_chunks().take(pa.array(np.random.default_rng(4).integers(0, count, KEYS)))
    few = keys[:1000].to_pylist()
    with table_in(store, "t", backend="sqlite", path=str(folder / "tables.db")) as table:
        figures = {
            "sqlite_load_rows_s": count / seconds(lambda: table.insert(data)),
            "sqlite_lookup_keys_s": KEYS / seconds(lambda: table.lookup(keys), 3),
            "sqlite_get_s": len(few) / seconds(lambda: [table.get(key) for key in few]),
            "sqlite_upsert_rows_s": 10_000 / seconds(lambda: table.upsert(data.slice(0, 10_000))),
            "sqlite_commit_ms": seconds(lambda: table.upsert(data.slice(0, 1000)), 5) * 1000,
        }
    store.close()
    return figures


def beside(count: int, folder: Path) -> dict[str, float]:
    """What else a Python user has, on the same rows."""
    data = rows(count)
    picked = pa.array(np.random.default_rng(2).integers(0, count, KEYS))
    keys = data.column("key").combine_chunks().take(picked).to_pylist()
    return {f"peer_{name}": value for name, value in peers(data, keys, folder, seconds).items()}


def memory_ratio(count: int) -> dict[str, float]:
    """Our bytes for each of the bytes of a dict of dicts of the same rows."""
    data = rows(count)
    tracemalloc.start()
    plain = {r["key"]: r for r in data.to_pylist()}
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    store = open_store(None)
    with table_in(store, "t") as table:
        table.insert(data)
        return {
            "memory_ratio": table.stats().bytes_memory / taken,
            "bytes_per_row": table.stats().bytes_memory / len(plain),
        }


def threads_ratio(count: int, duration_s: float) -> dict[str, float]:
    """The total rate of several reader threads against one, beside a writer that commits all the time."""
    store, rates = open_store(None), {}
    data = rows(count)
    with table_in(store, "t") as table:
        table.insert(data)
        for readers in (1, 2, 4, 8):
            rates[readers] = _read_rate(table, data, readers, duration_s)
    return {f"threads_ratio_{n}": rates[n] / rates[1] for n in rates} | {"threads_ratio": rates[4] / rates[1]}


def _read_rate(table: Table, data: pa.Table, readers: int, duration_s: float) -> float:
    stop, done = threading.Event(), [0] * readers
    batch = data.slice(0, 100)

    def write() -> None:
        while not stop.is_set():
            table.upsert(batch)

    def read(number: int) -> None:
        rng = np.random.default_rng(number)
        keys = data.column("key").combine_chunks().take(pa.array(rng.integers(0, data.num_rows, 10_000)))
        while not stop.is_set():
            table.lookup(keys)
            done[number] += len(keys)

    threads = [threading.Thread(target=write), *(threading.Thread(target=read, args=(n,)) for n in range(readers))]
    for thread in threads:
        thread.start()
    stop.wait(duration_s)
    stop.set()
    for thread in threads:
        thread.join()
    return sum(done) / duration_s


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", action="store_true", help="print one JSON object")
    arguments.add_argument("--rows", type=int, default=1_000_000, help="rows of the large tables")
    arguments.add_argument("--seconds", type=float, default=2.0, help="time for each number of threads")
    arguments.add_argument("--chart", type=Path, help="only measure the growth with the size, and draw it here")
    given = arguments.parse_args()
    if given.chart is not None:
        figures = growth([size for size in SIZES if size <= 10 * given.rows])
        draw(figures, given.chart)
        show(figures, as_json=given.json)
        return
    with tempfile.TemporaryDirectory(dir=".") as folder:
        figures = loading(given.rows, Path(folder))
        figures |= beside(given.rows, Path(folder)) | spilling(given.rows, Path(folder) / "spilling")
        figures |= in_sqlite(min(given.rows, 100_000), Path(folder) / "sqlite")
    figures |= asking(given.rows) | one_by_one(given.rows)
    figures |= {f"{name}_100k": value for name, value in one_by_one(100_000).items()}
    figures |= memory_ratio(min(given.rows, 100_000)) | threads_ratio(given.rows, given.seconds)
    show(figures, as_json=given.json)


def show(figures: dict[str, float], *, as_json: bool) -> None:
    """Print figures as one object, or one a line."""
    if as_json:
        json.dump({name: round(value, 3) for name, value in figures.items()}, sys.stdout)
        print()
        return
    for name, value in figures.items():
        print(f"{name:32s} {value:18,.3f}")


if __name__ == "__main__":
    main()
