"""How the main operations grow with the size of a table, from a thousand to ten million rows: figures and a chart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from made_rows import rows, table_in
from timing import each_s, seconds

from millpond.contracts.table import Table
from millpond.tables.store import open_store

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
# So many keys are asked for at once, and so many rows replaced, or all rows of a smaller table.
KEYS = 100_000

TITLES = {
    "load": "load, rows/s",
    "upsert": "upsert, rows/s",
    "lookup": "bulk lookup, keys/s",
    "get": "get, 1/s",
    "find": "find by index, rows/s",
}


def growth(sizes: Sequence[int]) -> dict[str, float]:
    """The rates at each size, by name and size: `growth_load_1000`."""
    figures: dict[str, float] = {}
    for size in sizes:
        store = open_store(None)
        with table_in(store, "t") as table:
            found = _rates(table, size)
        figures |= {f"growth_{name}_{size}": rate for name, rate in found.items()}
    return figures


def _rates(table: Table, size: int) -> dict[str, float]:
    data = rows(size)
    load_s = seconds(lambda: table.insert(data))
    table.create_index("symbol")
    rng = np.random.default_rng(size)
    some = data.take(pa.array(rng.permutation(size)[:KEYS]))
    keys = data.column("key").combine_chunks().take(pa.array(rng.integers(0, size, KEYS)))
    few = keys[:2_000].unique().to_pylist()
    symbols = [f"sym-{n}" for n in range(100)]
    found = table.lookup(symbols, by="symbol").num_rows
    return {
        "load": size / load_s,
        "lookup": KEYS / seconds(lambda: table.lookup(keys), 5),
        "get": 1 / each_s(table.get, few),
        "find": found / len(symbols) / each_s(lambda symbol: table.find("symbol = ?", [symbol]), symbols),
        "upsert": some.num_rows / seconds(lambda: table.upsert(some), 3),
    }


def draw(figures: dict[str, float], path: Path) -> None:
    """A chart of the rates by size, both in powers of ten."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    _, axes = pyplot.subplots(figsize=(8, 5))
    for name, title in TITLES.items():
        sizes = [int(f.rpartition("_")[2]) for f in figures if f.startswith(f"growth_{name}_")]
        axes.plot(sizes, [figures[f"growth_{name}_{size}"] for size in sizes], marker="o", label=title)
    axes.set(xscale="log", yscale="log", xlabel="rows in the table", ylabel="per second", ylim=(1e3, None))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    pyplot.savefig(path, dpi=120, bbox_inches="tight")
