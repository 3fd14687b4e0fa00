"""How the cost of an app grows with its tables, its flows, its views over views, and the batches that it has committed.

    python bench/app_growth.py [--json] [--chart FILE] [--only tables,flows,views,batches] [--most 1000000]

A figure is named by what grows and how large it is: `growth_flows_100_batch_ms`. Batches are small ones (100 rows), so
that what is measured is what does not depend on rows.

    tables    apps of 1 to 200 tables, one of which is written: planning, start, the median batch
    flows     apps of 1 to 100 flows with a table each: start, the median batch with rows for one flow, and the time
              until all have taken rows that are sent to all at one moment
    views     1 to 10 views, each over the one before it: the median batch
    batches   a state directory after up to a million commits, written without waiting for the disk: opening it, its
              size and files, and the median commit after it. `--most` is how many; a million take some minutes
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

import millpond as mp
from millpond.contracts.table import TableSpec
from millpond.schema import Schema
from millpond.tables.store import open_store

TABLES, FLOWS, VIEWS = (1, 10, 50, 100, 200), (1, 5, 20, 50, 100), (1, 2, 4, 6, 8, 10)
BATCHES = (1_000, 10_000, 100_000, 1_000_000)
# The batches that are measured, after the first ones, and the bursts of all flows.
MEASURED, WARM, BURSTS = 30, 10, 6
BATCH_ROWS, GROUPS = 100, 1_000
PATIENCE_S = 600.0
STREAM = "CREATE STREAM s{n} (k INT, v INT) FROM 'memory://s{n}';\n"
TABLE = "CREATE TABLE t{n} (k INT PRIMARY KEY, v INT);\n"
INSERT = "INSERT INTO t{n} SELECT k, v FROM s{n};\n"

Figures = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one line of named figures")
    parser.add_argument("--chart", type=Path, help="draw the figures into this file")
    parser.add_argument("--only", default=",".join(FIGURES), help="which figures, comma between")
    parser.add_argument("--most", type=int, default=BATCHES[-2], help="the most commits of `batches`")
    arguments = parser.parse_args()
    if unknown := set(arguments.only.split(",")) - set(FIGURES):
        parser.error(f"no such figures: {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    # Modules are imported and compiled by the first app.
    views(1)
    figures: Figures = {}
    for name in arguments.only.split(","):
        sizes, measure = FIGURES[name]
        for size in sizes:
            if name == "batches" and size > arguments.most:
                continue
            found = measure(size)
            figures |= {f"growth_{name}_{size}_{figure}": value for figure, value in found.items()}
            print(f"-- {name} {size}: {found}", file=sys.stderr, flush=True)
    if arguments.chart is not None:
        draw(figures, arguments.chart)
    if arguments.json:
        print(json.dumps({name: round(value, 3) for name, value in figures.items()}))
        return
    for name, value in figures.items():
        print(f"{name:36} {value:>14,.2f}")


@contextmanager
def running(text: str) -> Iterator[tuple[mp.App, Figures]]:
    """An app that is ready, and how long that took."""
    folder = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    started = time.monotonic()
    app = mp.App(sql=text, state=folder / "state")
    planned = time.monotonic()
    app.start()
    app.wait_ready()
    figures = {"plan_ms": (planned - started) * 1000, "start_ms": (time.monotonic() - planned) * 1000}
    try:
        yield app, figures
    finally:
        app.stop()
        shutil.rmtree(folder, ignore_errors=True)


def send(app: mp.App, stream: int, number: int) -> None:
    first = number * BATCH_ROWS
    app.feed(f"memory://s{stream}").send([{"k": (first + i) % GROUPS, "v": first + i} for i in range(BATCH_ROWS)])


def batch_ms(app: mp.App) -> float:
    """The median batch of the first stream, one after the other."""
    times = []
    for number in range(WARM + MEASURED):
        send(app, 0, number)
        app.drain()
        times.append(next(flow.batch_ms for flow in app.progress().flows if flow.stream == "s0"))
    return statistics.median(times[WARM:])


def tables(count: int) -> Figures:
    text = STREAM.format(n=0) + "".join(TABLE.format(n=n) for n in range(count)) + INSERT.format(n=0)
    with running(text) as (app, figures):
        return figures | {"batch_ms": batch_ms(app)}


def flows(count: int) -> Figures:
    text = "".join((STREAM + TABLE + INSERT).format(n=n) for n in range(count))
    with running(text) as (app, figures):
        bursts = []
        for number in range(BURSTS):
            started = time.monotonic()
            for stream in range(count):
                send(app, stream, number)
            app.drain()
            bursts.append((time.monotonic() - started) * 1000)
        return figures | {"burst_ms": statistics.median(bursts[2:]), "batch_ms": batch_ms(app)}


def views(depth: int) -> Figures:
    text = STREAM.format(n=0) + "CREATE TABLE v0 AS SELECT k, COUNT(*) AS n FROM s0 GROUP BY k;\n"
    text += "".join(
        f"CREATE TABLE v{n} AS SELECT k, n + 1 AS n FROM v{n - 1} WHERE n > 0;\n" for n in range(1, depth + 1)
    )
    with running(text) as (app, figures):
        return figures | {"batch_ms": batch_ms(app)}


def batches(count: int) -> Figures:
    folder = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    schema = Schema.from_arrow(pa.schema([("k", pa.int64()), ("v", pa.int64())]), ["k"])
    store = open_store(folder)
    table = store.create(TableSpec("t", schema))
    with not_synced():
        for number in range(count):
            table.upsert([{"k": number % GROUPS, "v": number}])
    store.close()
    found = [path for path in folder.rglob("*") if path.is_file()]
    started = time.monotonic()
    store = open_store(folder)
    opened = time.monotonic() - started
    table = store.table("t")
    assert len(table) == min(count, GROUPS)
    times = []
    for number in range(MEASURED):
        started = time.monotonic()
        table.upsert([{"k": number, "v": -1}])
        times.append((time.monotonic() - started) * 1000)
    store.close()
    figures = {
        "open_ms": opened * 1000,
        "commit_ms": statistics.median(times),
        "files": float(len(found)),
        "mb": sum(path.stat().st_size for path in found if path.exists()) / 1e6,
    }
    shutil.rmtree(folder, ignore_errors=True)
    return figures


@contextmanager
def not_synced() -> Iterator[None]:
    """Commits do not wait for the disk: only what is left behind is measured."""
    syncs = {name: getattr(os, name) for name in ("fsync", "fdatasync")}
    for name in syncs:
        setattr(os, name, lambda file: None)
    try:
        yield
    finally:
        for name, sync in syncs.items():
            setattr(os, name, sync)


FIGURES: dict[str, tuple[Sequence[int], Callable[[int], Figures]]] = {
    "tables": (TABLES, tables),
    "flows": (FLOWS, flows),
    "views": (VIEWS, views),
    "batches": (BATCHES, batches),
}


def draw(figures: Figures, path: Path) -> None:
    """A chart for each thing that grows; times in milliseconds, both axes in powers of ten."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    _, places = pyplot.subplots(2, 2, figsize=(10, 7))
    for axes, (name, (sizes, _)) in zip(places.flat, FIGURES.items(), strict=True):
        prefix = f"growth_{name}_"
        kinds = dict.fromkeys(f.removeprefix(prefix).partition("_")[2] for f in figures if f.startswith(prefix))
        if not kinds:
            axes.set_visible(False)
            continue
        for kind in (kind for kind in kinds if kind.endswith("_ms")):
            there = [size for size in sizes if f"{prefix}{size}_{kind}" in figures]
            axes.plot(there, [figures[f"{prefix}{size}_{kind}"] for size in there], marker="o", label=kind)
        axes.set(xscale="log", yscale="log", xlabel=name, ylabel="ms")
        axes.grid(alpha=0.3)
        axes.legend()
    pyplot.tight_layout()
    pyplot.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
