"""The same rows in what else a Python user has: a dict of dicts, SQLite, DuckDB and Polars."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

# The best time of so many runs of some work.
Measure = Callable[[Callable[[], Any], int], float]

# As many as our own lookups are given.
LOOKUPS = 5

_COLUMNS = "key, symbol, tier, quantity, volume, ratio, price, ts"


def peers(data: pa.Table, keys: list[str], folder: Path, seconds: Measure) -> dict[str, float]:
    """Rows loaded and keys looked up in bulk per second, by peer; and SQLite's commits of 1,000 rows."""
    return {
        **_dicts(data, keys, seconds),
        **_sqlite("sqlite_memory", ":memory:", data, keys, seconds),
        **_sqlite("sqlite_disk", str(folder / "peer.db"), data, keys, seconds),
        **_duckdb(data, keys, seconds),
        **_polars(data, keys, seconds),
    }


def _rates(name: str, rows: int, load_s: float, keys: int, lookup_s: float) -> dict[str, float]:
    return {f"{name}_load_rows_s": rows / load_s, f"{name}_lookup_keys_s": keys / lookup_s}


def _dicts(data: pa.Table, keys: list[str], seconds: Measure) -> dict[str, float]:
    given = data.to_pylist()
    held: dict[str, dict[str, Any]] = {}
    load_s = seconds(lambda: held.update((row["key"], row) for row in given), 1)
    return _rates("dict", len(given), load_s, len(keys), seconds(lambda: [held[key] for key in keys], LOOKUPS))


def _sqlite(name: str, path: str, data: pa.Table, keys: list[str], seconds: Measure) -> dict[str, float]:
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE t ({_COLUMNS}, PRIMARY KEY (key)) WITHOUT ROWID")
    plain = data.set_column(6, "price", data["price"].cast(pa.string())).set_column(
        7, "ts", data["ts"].cast(pa.int64())
    )
    given = list(zip(*(column.to_pylist() for column in plain.columns), strict=True))

    def load() -> None:
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?)", given)
        connection.commit()

    load_s = seconds(load, 1)
    select = "SELECT * FROM t WHERE key = ?"
    lookup_s = seconds(lambda: [connection.execute(select, (key,)).fetchone() for key in keys], LOOKUPS)
    small = iter([given[i : i + 1000] for i in range(0, 20_000, 1000)])

    def commit() -> None:
        connection.executemany("INSERT OR REPLACE INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?)", next(small))
        connection.commit()

    commit_ms = seconds(commit, 20) * 1000
    connection.close()
    return {**_rates(name, len(given), load_s, len(keys), lookup_s), f"{name}_commit_ms": commit_ms}


def _duckdb(data: pa.Table, keys: list[str], seconds: Measure) -> dict[str, float]:
    import duckdb

    connection = duckdb.connect()
    connection.register("given", data)
    connection.execute("CREATE TABLE t AS SELECT * FROM given LIMIT 0")
    connection.execute("CREATE UNIQUE INDEX by_key ON t (key)")
    load_s = seconds(lambda: connection.execute("INSERT INTO t SELECT * FROM given"), 1)
    connection.register("wanted", pa.table({"key": keys}))
    lookup_s = seconds(lambda: connection.sql("SELECT t.* FROM wanted JOIN t USING (key)").to_arrow_table(), LOOKUPS)
    return _rates("duckdb", data.num_rows, load_s, len(keys), lookup_s)


def _polars(data: pa.Table, keys: list[str], seconds: Measure) -> dict[str, float]:
    frames: list[pl.DataFrame] = []
    load_s = seconds(lambda: frames.append(pl.DataFrame(pl.from_arrow(data)).rechunk()), 1)
    wanted = pl.DataFrame({"key": keys})
    lookup_s = seconds(lambda: wanted.join(frames[0], on="key", how="inner"), LOOKUPS)
    return _rates("polars", data.num_rows, load_s, len(keys), lookup_s)
