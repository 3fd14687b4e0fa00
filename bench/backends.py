"""Tables of every backend measured, beside the plain client of its server in the same run.

    python bench/backends.py [--json] [--rows 1000000] [--only postgresql,redis]

Each backend has a line of figures: load, upsert of 1,000 and 100,000 rows, lookup of 10,000 keys, get, scan and commit;
those that begin with plain_ are the client's. The servers are those of the tests, in temporary folders, and do not wait
for the disk.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from made_rows import rows
from timing import each_s, seconds

sys.path.insert(0, str(Path(__file__).parents[1]))
from backend_clients import CLIENTS, Plain
from tests.databases.servers import FerretDB, MariaDB, PostgreSQL, Redis, Server

from millpond.contracts.table import Table, TableSpec
from millpond.schema import Schema
from millpond.tables.store import open_store

SERVERS: dict[str, type[Server]] = {
    "postgresql": PostgreSQL,
    "mysql": MariaDB,
    "redis": Redis,
    "mongodb": FerretDB,
}
BACKENDS = ("memory", "sqlite", "delta", *SERVERS)
# FerretDB updates some hundred documents a second.
ROWS_MAX = {"mongodb": 1_000}
POOL = {"pool.size": 4, "pool.max.idle": 600_000_000, "connect.timeout": 10_000_000, "ssl.mode": "prefer"}
# What is in files; Delta merges in the background only when it is asked, so that it does not disturb other figures.
FILES: dict[str, dict[str, Any]] = {"sqlite": {}, "delta": {"merge.interval": 3_600_000_000, "merge.rows": 10_000_000}}
OPTIONS = {"postgresql": POOL, "mysql": POOL, "redis": {}, "mongodb": {}}


def measured(table: Table, count: int) -> dict[str, float]:
    """The figures of a table that is empty."""
    data = rows(count)
    figures = {"load_rows_s": count / seconds(lambda: _loaded(table, data))}
    keys = keys_of(count)
    for size in sizes(count):
        figures[f"upsert_{size}_rows_s"] = size / seconds(lambda: table.upsert(data.slice(0, size)), 3)  # noqa: B023
    figures["lookup_keys_s"] = len(keys) / seconds(lambda: table.lookup(keys), 3)
    figures["get_ms"] = each_s(table.get, keys[:100]) * 1000
    figures["scan_rows_s"] = count / seconds(lambda: table.to_arrow(), 2)
    ones = [data.slice(n, 1) for n in range(20)]
    figures["commit_ms"] = each_s(table.upsert, ones) * 1000
    return figures


def _loaded(table: Any, data: pa.Table) -> None:
    table.insert(data)
    if table.spec.backend == "delta":
        table.rows.remote.merge()


def _merged(table: Any, rows: pa.Table) -> None:
    table.upsert(rows)
    table.rows.remote.merge()


def measured_plain(client: Plain, count: int) -> dict[str, float]:
    """The same of a plain client."""
    data, keys = rows(count), keys_of(count)
    figures = {"load_rows_s": count / seconds(lambda: client.upsert(data))}
    for size in sizes(count):
        figures[f"upsert_{size}_rows_s"] = size / seconds(lambda: client.upsert(data.slice(0, size)), 3)  # noqa: B023
    figures["lookup_keys_s"] = len(keys) / seconds(lambda: client.lookup(keys), 3)
    figures["get_ms"] = each_s(lambda key: client.lookup([key]), keys[:100]) * 1000
    figures["scan_rows_s"] = count / seconds(client.scan, 2)
    return {f"plain_{name}": value for name, value in figures.items()}


def sizes(count: int) -> list[int]:
    return sorted({min(size, count) for size in (1_000, 100_000)})


def keys_of(count: int) -> list[str]:
    """Keys of rows, in no order."""
    picked = np.random.default_rng(4).permutation(count)[:10_000]
    return [f"user-{number:08d}" for number in picked]


def figures_of(backend: str, count: int, folder: Path) -> dict[str, float]:
    """The line of a backend."""
    count = min(count, ROWS_MAX.get(backend, count))
    with ExitStack() as stack:
        plain: Callable[[], Plain] | None = None
        options: dict[str, Any] = {}
        if backend in SERVERS:
            server = SERVERS[backend]()
            stack.callback(server.remove)
            server.start()
            options = {"url": server.database().uri, **OPTIONS[backend]}
            plain = lambda: CLIENTS[backend](server.database())  # noqa: E731
        elif backend in FILES:
            options = {"path": str(folder / f"tables.{backend}"), **FILES[backend]}
            plain = lambda: CLIENTS[backend](folder / f"plain.{backend}")  # noqa: E731
        store = open_store(folder / backend)
        stack.callback(store.close)
        spec = TableSpec("t", Schema.from_arrow(pa.schema(rows(1).schema), ["key"]), backend, options)
        figures = measured(store.create(spec), count)
        if backend == "delta":
            # A change waits in the log; here it is merged at once.
            table: Any = store.table("t")
            data = rows(min(count, 100_000))
            figures[f"merged_{data.num_rows}_rows_s"] = data.num_rows / seconds(lambda: _merged(table, data), 2)
        if plain is not None:
            client = plain()
            stack.callback(client.close)
            figures |= measured_plain(client, count)
    return {"rows": count, **figures}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--json", action="store_true", help="print one JSON object for each backend")
    arguments.add_argument("--rows", type=int, default=1_000_000, help="rows of each table")
    arguments.add_argument("--only", default="", help=f"some of {', '.join(BACKENDS)}")
    given = arguments.parse_args()
    wanted = [name for name in given.only.split(",") if name] or list(BACKENDS)
    unknown = [name for name in wanted if name not in BACKENDS]
    if unknown:
        arguments.error(f"no such figures: {', '.join(unknown)}; there are {', '.join(BACKENDS)}")
    for backend in wanted:
        if backend in SERVERS and SERVERS[backend].missing():
            print(f"{backend} is left out: {', '.join(SERVERS[backend].missing())} not found", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(dir=".") as folder:
            show(backend, figures_of(backend, given.rows, Path(folder)), as_json=given.json)


def show(backend: str, figures: dict[str, float], *, as_json: bool) -> None:
    """Print the line of a backend."""
    if as_json:
        print(
            json.dumps({"backend": backend, **{name: round(value, 3) for name, value in figures.items()}}), flush=True
        )
        return
    for name, value in figures.items():
        print(f"{backend:12s} {name:28s} {value:18,.3f}", flush=True)


if __name__ == "__main__":
    main()
