"""Flows measured: joins, changes, aggregates and windows over streams, beside plain Structured Streaming in one run.

    python bench/flows.py [--json] [--scale 0.1] [--only join,floor]

Each figure makes its own data in a temporary folder. `--scale` makes everything smaller.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

import millpond as mp
from millpond.engine.spark.session import build_session

EVENTS = 1_000_000
TABLE_ROWS = 100_000
FILES = 8
PATIENCE_S = 600.0
# Flows side by side, as in plain_spark.py; how often something is sent to all at once, and then for how long by turns.
COUNTS = (5, 10, 20, 40)
BURSTS, SECONDS = 8, 6
LOOKUPS = 300
# How often a flow over many rows is asked for its progress, which takes a processor from it.
LOOK_S = 0.02

STREAM = (
    "CREATE STREAM events (id BIGINT, user_id STRING, symbol STRING, quantity INT, price DECIMAL(12,2), ts TIMESTAMP, "
    "WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS) FROM 'file://./in' WITH ('format' = 'jsonl');\n"
)
USERS = "CREATE TABLE users (user_id STRING PRIMARY KEY, name STRING, tier STRING, n BIGINT);\n"


class Bench:
    """The data of one run and the session that its figures share."""

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.root = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
        self.spark = build_session()

    def rows(self, count: int) -> int:
        return max(int(count * self.scale), 100)

    def folder(self, name: str) -> Path:
        made = self.root / name
        (made / "in").mkdir(parents=True)
        return made

    def app(self, folder: Path, text: str) -> mp.App:
        (folder / "app.sql").write_text(text)
        return mp.App(folder / "app.sql", state=folder / "state", spark=self.spark)


def moment(number: int) -> str:
    """The time of an event: a hundred of them in a second."""
    second = number // 100
    return f"2026-03-{1 + second // 86400:02d}T{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"


def write_events(folder: Path, count: int, keys: int, start: int = 0) -> None:
    """JSON lines in several files, made aside and moved in whole."""
    step = -(-count // FILES)
    for number, first in enumerate(range(start, start + count, step)):
        lines = [
            f'{{"id": {i}, "user_id": "u{i * 7919 % keys}", "symbol": "S{i % 500}", "quantity": {i % 100}, '
            f'"price": {i % 9000 / 100:.2f}, "ts": "{moment(i)}"}}'
            for i in range(first, min(first + step, start + count))
        ]
        aside = folder.parent / f"{number}.tmp"
        aside.write_text("\n".join(lines) + "\n")
        aside.rename(folder / f"{number:03d}.jsonl")


def fill_users(app: mp.App, count: int) -> None:
    names = pa.array([f"u{i}" for i in range(count)])
    tiers = pa.array(["GOLD" if i % 10 == 0 else "BASIC" for i in range(count)])
    app.table("users").insert(
        pa.table({"user_id": names, "name": names, "tier": tiers, "n": pa.array([0] * count, pa.int64())})
    )


def until(condition: Callable[[], bool], look_s: float = 0.005) -> float:
    """Seconds until a condition holds."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > PATIENCE_S:
            raise TimeoutError("the app did not get there in time")
        time.sleep(look_s)
    return time.monotonic() - started


def rate(bench: Bench, name: str, statements: str, events: int, keys: int) -> float:
    """Rows per second of a running flow over files, from the moment they are there to the end of its last batch; a few
    events go through first, so that neither Spark nor Python is cold."""
    folder = bench.folder(name)
    app = bench.app(folder, STREAM + USERS + statements)
    fill_users(app, keys)
    app.start()
    found = timed(app, folder, events, keys)
    app.stop()
    return found


def _has(rows: Callable[[], int], wanted: int) -> bool:
    return rows() >= wanted


def timed(app: mp.App, folder: Path, events: int, keys: int) -> float:
    """Rows per second of the flow of events, for events that are moved into its folder."""

    def rows() -> int:
        return int(next(f.rows for f in app.progress().flows if f.stream == "events"))

    few = max(events // 20, 100)
    for number, count in enumerate((few, few, events)):
        waiting = folder / f"waiting{number}"
        waiting.mkdir()
        write_events(waiting, count, keys, number * few)
        before, started = rows(), time.monotonic()
        for file in sorted(waiting.iterdir()):
            file.rename(folder / "in" / f"{number}-{file.name}")
        until(partial(_has, rows, before + count), LOOK_S)
        seconds = time.monotonic() - started
    return events / seconds


def join(bench: Bench) -> dict[str, float]:
    """A join with a table that a second flow changes meanwhile, beside plain Spark with the table read once."""
    events, keys = bench.rows(EVENTS), bench.rows(TABLE_ROWS)
    folder = bench.folder("join")
    text = (
        STREAM
        + USERS
        + (
            "INSERT INTO 'file://./out' SELECT e.*, u.name, u.tier "
            "FROM events e LEFT JOIN users u ON u.user_id = e.user_id;\n"
            f"INSERT INTO users SELECT concat('u', seq % {keys}), 'x', 'GOLD', seq FROM 'generate://?rate=10000';\n"
        )
    )
    app = bench.app(folder, text)
    fill_users(app, keys)
    app.start()
    found = timed(app, folder, events, keys)
    app.stop()
    return {
        "join_rows_s": found,
        "spark_join_rows_s": plain_spark("join", folder, events),
        "spark_join_each_rows_s": plain_spark("join_each", fresh(folder), events),
        "dict_join_rows_s": events / run_peer("join_peers.py", "dict", folder)[-1],
        "polars_join_rows_s": events / run_peer("join_peers.py", "polars", folder)[-1],
    }


def fresh(folder: Path) -> Path:
    """The folder without what a peer has linked into it."""
    shutil.rmtree(folder / "plain-in")
    return folder


def plain_spark(what: str, folder: Path, events: int) -> float:
    """The plain way, in a process of its own."""
    found = run_peer("plain_spark.py", what, folder)[-1]
    return events / found if events else found


def run_peer(file: str, what: str, folder: Path) -> list[float]:
    """What a peer prints."""
    words = [sys.executable, str(Path(__file__).with_name(file)), what, str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.strip().splitlines()[-1].split()]


def join_50k(bench: Bench) -> dict[str, float]:
    """The seeds' own case: a 50,000-row table, file to file."""
    out = "INSERT INTO 'file://./out' SELECT e.*, u.tier FROM events e JOIN users u ON u.user_id = e.user_id;\n"
    return {"join_50k_rows_s": rate(bench, "join_50k", out, bench.rows(EVENTS), bench.rows(50_000))}


def floor(bench: Bench) -> dict[str, float]:
    """The median batch of 100 events through two tables, a subquery and an upsert, beside an empty foreachBatch."""
    folder = bench.folder("floor")
    text = USERS + (
        "CREATE STREAM ticks (user_id STRING, symbol STRING, quantity INT) FROM 'memory://ticks';\n"
        "CREATE TABLE symbols (symbol STRING PRIMARY KEY, sector STRING);\n"
        "CREATE TABLE seen (user_id STRING PRIMARY KEY, symbol STRING, sector STRING, tier STRING, n BIGINT);\n"
        "INSERT INTO seen SELECT t.user_id, t.symbol, s.sector, u.tier, "
        "(SELECT MAX(x.n) FROM users x WHERE x.user_id = t.user_id) AS n FROM ticks t "
        "JOIN users u ON u.user_id = t.user_id LEFT JOIN symbols s ON s.symbol = t.symbol;\n"
    )
    app = bench.app(folder, text)
    fill_users(app, 10_000)
    app.table("symbols").insert([{"symbol": f"S{i}", "sector": f"sector {i % 7}"} for i in range(500)])
    app.start()
    feed = app.feed("memory://ticks")
    batches, through = [], []
    for number in range(60):
        started = time.monotonic()
        feed.send(
            [{"user_id": f"u{(number * 100 + i) % 10_000}", "symbol": f"S{i}", "quantity": i} for i in range(100)]
        )
        until(partial(_all_did, app, number + 1))
        through.append((time.monotonic() - started) * 1000)
        batches.append(app.progress().flows[0].batch_ms)
    app.stop()
    return {
        "batch_floor_ms": statistics.median(batches[10:]),
        "send_to_visible_ms": statistics.median(through[10:]),
        "spark_floor_ms": plain_spark("floor", folder, 0),
    }


def changes(bench: Bench) -> dict[str, float]:
    """UPDATE and DELETE driven by a stream, an aggregate of 100,000 groups, a window, ten tables joined at once."""
    events, keys = bench.rows(EVENTS // 2), bench.rows(TABLE_ROWS)
    update = "UPDATE users SET n = users.n + e.quantity FROM events e WHERE users.user_id = e.user_id;\n"
    delete = "DELETE FROM users USING events e WHERE users.user_id = e.user_id AND e.quantity = 99;\n"
    groups = "CREATE TABLE totals AS SELECT user_id, COUNT(*) AS n, SUM(price) AS price FROM events GROUP BY user_id;\n"
    window = (
        "CREATE TABLE minutes AS SELECT symbol, window_start, window_end, AVG(price) AS price FROM events "
        "GROUP BY symbol, TUMBLING(ts, INTERVAL 1 MINUTE);\n"
    )
    joins = " ".join(f"LEFT JOIN users u{i} ON u{i}.user_id = e.user_id" for i in range(10))
    tiers = ", ".join(f"u{i}.tier AS t{i}" for i in range(10))
    wide = f"INSERT INTO 'file://./out' SELECT e.id, {tiers} FROM events e {joins};\n"
    return {
        "update_rows_s": rate(bench, "update", update, events, keys),
        "delete_rows_s": rate(bench, "delete", delete, events, keys),
        "aggregate_rows_s": rate(bench, "aggregate", groups, events, keys),
        "spark_aggregate_rows_s": plain_spark("aggregate", bench.root / "aggregate", events),
        "window_rows_s": rate(bench, "window", window, events, keys),
        "spark_window_rows_s": plain_spark("window", bench.root / "window", events),
        "wide_rows_s": rate(bench, "wide", wide, events, keys),
    }


def over(bench: Bench) -> dict[str, float]:
    """LAG and a sum of the last 5 minutes for each of 100,000 users."""
    window = "PARTITION BY user_id ORDER BY ts"
    statements = (
        f"INSERT INTO 'file://./out' SELECT id, LAG(price) OVER ({window}) AS before, SUM(price) OVER ({window} "
        "RANGE BETWEEN INTERVAL 5 MINUTES PRECEDING AND CURRENT ROW) AS paid FROM events WITH ('late.rows' = 'drop');\n"
    )
    return {"over_rows_s": rate(bench, "over", statements, bench.rows(EVENTS // 2), bench.rows(TABLE_ROWS))}


def flat(bench: Bench) -> dict[str, float]:
    """How the time of a batch's lookups grows with the table: 20,000 rows that touch 5,000 keys. The tables take turns,
    so that what else the machine does meets all of them."""
    keys = pa.array([f"u{i * 13 % 5_000}" for i in range(20_000)]).unique()
    apps, times = {}, {}
    for count in (1_000, 50_000, bench.rows(1_000_000), bench.rows(5_000_000)):
        apps[count] = mp.App(sql=USERS, settings={})
        fill_users(apps[count], count)
        times[count] = list[float]()
    for _ in range(LOOKUPS):
        for count, app in apps.items():
            started = time.perf_counter()
            app.table("users").lookup(keys)
            times[count].append(time.perf_counter() - started)
    figures = {f"lookup_ms_{count}": statistics.median(taken) * 1000 for count, taken in times.items()}
    for app in apps.values():
        app.stop()
    return {**figures, "join_flat": max(figures.values()) / figures["lookup_ms_1000"]}


def memory(bench: Bench) -> dict[str, float]:
    """What the driver holds with a table of a million rows and a join with it that runs: Python, and Spark beside."""
    rows, folder = bench.rows(1_000_000), bench.folder("memory")
    out = "INSERT INTO 'file://./out' SELECT e.*, u.tier FROM events e JOIN users u ON u.user_id = e.user_id;\n"
    app = bench.app(folder, STREAM + USERS + out)
    fill_users(app, rows)
    table_bytes = app.table("users").stats().bytes_memory
    app.start()
    timed(app, folder, bench.rows(EVENTS // 5), rows)
    held, peak = _status("self", "VmRSS") / 1024, _status("self", "VmHWM") / 1024
    spark = _status(_jvm(), "VmRSS") / 1024
    app.stop()
    return {
        "join_1m_table_mb": table_bytes / 1024 / 1024,
        "join_1m_driver_mb": held,
        "join_1m_driver_peak_mb": peak,
        "join_1m_spark_mb": spark,
    }


def _all_did(app: mp.App, batches: int) -> bool:
    return all(flow.batches >= batches for flow in app.progress().flows)


def many(bench: Bench) -> dict[str, float]:
    """Many flows at once, each with a small source and one upsert into its own table: the median batch where each is
    sent something every second, beside the triggers of as many queries of Spark with a source of one row a second, and
    the time until all have taken what is sent to all at one moment."""
    figures: dict[str, float] = {}
    for count in COUNTS:
        figures |= _side_by_side(bench, count)
        print(f"   {count} flows: {figures[f'flows_{count}_ms']:.0f} ms", file=sys.stderr, flush=True)
    plain = run_peer("plain_spark.py", "many", bench.folder("many"))
    return figures | {f"spark_flows_{count}_ms": ms for count, ms in zip(COUNTS, plain, strict=True)}


def idle(bench: Bench) -> dict[str, float]:
    """What a flow that waits costs: threads, and memory of Python and the JVM, of the most flows at once."""
    count = COUNTS[-1]
    app = _flows(bench, f"idle{count}", count)
    threads, memory_mb = _threads(), _memory_mb()
    app.start()
    app.wait_ready()
    figures = {
        "threads_per_flow": (_threads() - threads) / count,
        "memory_per_flow_mb": (_memory_mb() - memory_mb) / count,
    }
    app.stop()
    return figures


def _flows(bench: Bench, name: str, count: int) -> mp.App:
    """An app of flows that each have a source and a table of their own."""
    text = "".join(
        f"CREATE STREAM s{i} (k INT, v INT) FROM 'memory://s{i}';\nCREATE TABLE t{i} (k INT PRIMARY KEY, v INT);\n"
        f"INSERT INTO t{i} SELECT k, v FROM s{i};\n"
        for i in range(count)
    )
    return bench.app(bench.folder(name), text)


def _side_by_side(bench: Bench, count: int) -> dict[str, float]:
    app = _flows(bench, f"many{count}", count)
    app.start()
    app.wait_ready()
    feeds = [app.feed(f"memory://s{i}") for i in range(count)]
    times = []
    for number in range(BURSTS):
        started = time.monotonic()
        for feed in feeds:
            feed.send([{"k": k, "v": number} for k in range(10)])
        until(partial(_all_did, app, number + 1))
        times.append((time.monotonic() - started) * 1000)
    paced = []
    for number in range(SECONDS):
        for feed in feeds:
            feed.send([{"k": k, "v": number} for k in range(10)])
            time.sleep(1 / count)
        paced += [flow.batch_ms for flow in app.progress().flows]
    app.stop()
    return {f"flows_{count}_ms": statistics.median(paced), f"flows_{count}_burst_ms": statistics.median(times[2:])}


def _jvm() -> int:
    """The process that Spark runs in."""
    return int(subprocess.run(["pgrep", "-P", str(os.getpid()), "java"], capture_output=True, check=True).stdout)


def _status(process: int | str, name: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


def _threads() -> int:
    return _status("self", "Threads") + _status(_jvm(), "Threads")


def _memory_mb() -> float:
    return (_status("self", "VmRSS") + _status(_jvm(), "VmRSS")) / 1024


# Memory comes first: what other figures held before would count.
FIGURES: dict[str, Callable[[Bench], dict[str, float]]] = {
    "idle": idle,
    "memory": memory,
    "join": join,
    "join_50k": join_50k,
    "floor": floor,
    "changes": changes,
    "over": over,
    "flat": flat,
    "many": many,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one line of named figures")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the data, 1 is full")
    parser.add_argument("--only", default=",".join(FIGURES), help="which figures, comma between")
    arguments = parser.parse_args()
    if unknown := set(arguments.only.split(",")) - set(FIGURES):
        parser.error(f"no such figures: {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    bench = Bench(arguments.scale)
    figures: dict[str, float] = {}
    for name in arguments.only.split(","):
        figures.update(FIGURES[name](bench))
        if not arguments.json:
            print(f"-- {name}", file=sys.stderr, flush=True)
    figures["driver_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    bench.spark.stop()
    if arguments.json:
        print(json.dumps({name: round(value, 2) for name, value in figures.items()}))
        return
    for name, value in figures.items():
        print(f"{name:24} {value:>16,.1f}")


if __name__ == "__main__":
    main()
