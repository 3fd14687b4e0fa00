"""Sources measured: files loaded into keyed tables, followed line by line, ten thousand small ones, a large one; Kafka;
HTTP, S3 and webhooks.

    python bench/sources.py [--json] [--scale 0.1] [--only csv,tail]

Each figure makes its own data in a temporary folder. `--scale` makes everything smaller. Beside each load, in the same
run, the plain way: Spark's own reader, with the same schema, into a sink that throws everything away.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq
from kafka_figures import kafka_figures, kafka_session
from network_figures import NETWORK_FIGURES, network_figures

import millpond as mp
from millpond.contracts.table import Table
from millpond.rendering import json_lines

ROWS = 1_000_000
FILES = 10_000
LINES = 40
BIG_BYTES = 2 << 30
PATIENCE_S = 600.0
TYPES = "id BIGINT, user_id STRING, symbol STRING, quantity INT, price DECIMAL(12,2), ts TIMESTAMP"


class Bench:
    """The data of one run and the session that its figures share."""

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.root = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
        self.spark = kafka_session()

    def rows(self, count: int) -> int:
        return max(int(count * self.scale), 100)

    def app(self, folder: Path, text: str) -> mp.App:
        (folder / "app.sql").write_text(text)
        return mp.App(folder / "app.sql", state=folder / "state", spark=self.spark)

    def close(self) -> None:
        self.spark.stop()
        shutil.rmtree(self.root, ignore_errors=True)


def made_rows(count: int, first: int = 0) -> pa.Table:
    numbers = np.arange(first, first + count)
    cents = pa.array(numbers % 9000).cast(pa.decimal128(19, 0))
    prices = pa.compute.multiply(cents, pa.scalar("0.01").cast(pa.decimal128(3, 2))).cast(pa.decimal128(12, 2))
    times = pa.array(1_772_000_000_000_000 + numbers * 1_000_000, pa.timestamp("us"))
    return pa.table(
        {
            "id": pa.array(numbers),
            "user_id": pa.compute.binary_join_element_wise("u", pa.array(numbers * 7919 % 10**9).cast("string"), ""),
            "symbol": pa.compute.binary_join_element_wise("S", pa.array(numbers % 500).cast("string"), ""),
            "quantity": pa.array((numbers % 100).astype(np.int32)),
            "price": prices,
            "ts": times,
        }
    )


def write(rows: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(rows, path)
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(rows, path)
    else:
        with path.open("w") as out:
            out.writelines(f"{line}\n" for line in json_lines(rows, exact_numbers=True))


def load(bench: Bench, ending: str) -> dict[str, float]:
    """A file into a keyed table: from opening it to the commit that makes its rows visible."""
    folder, count = bench.root / ending, bench.rows(ROWS)
    folder.mkdir()
    write(made_rows(count), folder / f"rows.{ending}")
    seconds = []
    for turn in range(3):
        table = f"CREATE STREAM rows ({TYPES}) FROM 'file://./rows.{ending}';\nCREATE TABLE t PRIMARY KEY (user_id) AS "
        app = bench.app(folder, f"{table}SELECT * FROM 'file://./rows.{ending}';")
        app.table("dead_letters")
        started, busy = time.monotonic(), time.process_time()
        app.run_once()
        seconds.append((time.monotonic() - started, time.process_time() - busy))
        assert app.table("t").stats().rows == count
        app.stop()
        shutil.rmtree(folder / "state")
        assert turn < 3
    best, busy = min(seconds)
    plain = _spark_noop(bench, folder / f"rows.{ending}", ending)
    return {
        f"file_load_rows_s_{ending}": count / best,
        f"file_load_cpu_s_{ending}": busy,
        f"spark_noop_rows_s_{ending}": count / plain,
    }


def _spark_noop(bench: Bench, path: Path, ending: str) -> float:
    """Seconds of Spark's own reader, the second time, when its code is compiled."""
    reader = bench.spark.read.schema(TYPES).option("header", "true")
    kind = "json" if ending == "jsonl" else ending
    took = 0.0
    for _ in range(2):
        started = time.monotonic()
        reader.format(kind).load(f"file://{path}").write.format("noop").mode("overwrite").save()
        took = time.monotonic() - started
    return took


def tail(bench: Bench) -> dict[str, float]:
    """From the moment a line is appended to the moment its row can be read, beside a batch that is fed directly."""
    folder = bench.root / "tail"
    folder.mkdir()
    (folder / "in.jsonl").touch()
    app = bench.app(
        folder,
        "CREATE STREAM lines (id BIGINT) FROM 'file://./in.jsonl';\nCREATE STREAM fed (id BIGINT) FROM 'memory://fed';\n"
        "CREATE TABLE a (id BIGINT PRIMARY KEY);\nCREATE TABLE b (id BIGINT PRIMARY KEY);\n"
        "INSERT INTO a SELECT * FROM lines;\nINSERT INTO b SELECT * FROM fed;",
    )
    app.start()
    feeder = app.feed("memory://fed")

    def append(number: int) -> None:
        with (folder / "in.jsonl").open("a") as out:
            out.write(f'{{"id": {number}}}\n')

    delays = {"a": _delays(app.table("a"), append), "b": _delays(app.table("b"), lambda n: feeder.send([{"id": n}]))}
    app.stop()
    return {"tail_delay_ms": statistics.median(delays["a"]), "batch_floor_ms": statistics.median(delays["b"])}


def _delays(table: Table, send: Callable[[int], object]) -> list[float]:
    found = []
    for number in range(LINES):
        started = time.monotonic()
        send(number)
        while not table.contains(number):
            if time.monotonic() - started > PATIENCE_S:
                raise TimeoutError("the row did not come in time")
            time.sleep(0.002)
        found.append((time.monotonic() - started) * 1000)
    return found[LINES // 4 :]


def small_files(bench: Bench) -> dict[str, float]:
    """Ten thousand files of ten rows each, as a stream into a keyed table."""
    folder, count = bench.root / "small", bench.rows(FILES)
    (folder / "in").mkdir(parents=True)
    for number in range(count):
        lines = [f'{{"id": {number * 10 + i}, "v": "x"}}\n' for i in range(10)]
        (folder / "in" / f"{number:06d}.jsonl").write_text("".join(lines))
    app = bench.app(
        folder,
        "CREATE STREAM s (id BIGINT, v STRING) FROM 'file://./in';\nCREATE TABLE t (id BIGINT PRIMARY KEY, v STRING);\n"
        "INSERT INTO t SELECT * FROM s;",
    )
    started = time.monotonic()
    app.run_once()
    seconds = time.monotonic() - started
    assert app.table("t").stats().rows == count * 10
    app.stop()
    return {"files_10k_s": seconds * FILES / count}


# Runs an app, and prints the most memory that Python and the JVM have held, in KB.
PEAKS = """
import re, sys, millpond as mp
from pathlib import Path
from millpond.engine.spark.session import build_session
session = build_session()
app = mp.App(sys.argv[1], spark=session)
app.run_once()
jvm = session._jvm.java.lang.ProcessHandle.current().pid()
peaks = [re.search(r"VmHWM:\\s+(\\d+)", Path(f"/proc/{p}/status").read_text())[1] for p in ("self", jvm)]
print(*peaks)
app.stop()
"""


def big_file(bench: Bench) -> dict[str, float]:
    """A file of 2 GB followed into an aggregate: the most memory that the process and its JVM ever held."""
    folder, size = bench.root / "big", int(BIG_BYTES * bench.scale)
    folder.mkdir()
    with (folder / "in.csv").open("wb") as out:
        first = 0
        while out.tell() < size:
            options = pyarrow.csv.WriteOptions(include_header=first == 0)
            pyarrow.csv.write_csv(made_rows(500_000, first), out, options)
            first += 500_000
    (folder / "app.sql").write_text(
        f"CREATE STREAM s ({TYPES}) FROM 'file://./in.csv';\n"
        "CREATE TABLE t AS SELECT symbol, COUNT(*) AS n, SUM(price) AS total FROM s GROUP BY symbol;"
    )
    started = time.monotonic()
    command = [sys.executable, "-c", PEAKS, str(folder / "app.sql")]
    last_line = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
    seconds = time.monotonic() - started
    driver_kb, jvm_kb = map(int, last_line.split())
    return {
        "big_file_gb": size / 2**30,
        "big_file_rows_s": first / seconds,
        "big_file_peak_mb": driver_kb / 1024,
        "big_file_jvm_peak_mb": jvm_kb / 1024,
    }


FIGURES: dict[str, Callable[[Bench], dict[str, float]]] = {
    "csv": partial(load, ending="csv"),
    "jsonl": partial(load, ending="jsonl"),
    "parquet": partial(load, ending="parquet"),
    "tail": tail,
    "small": small_files,
    "big": big_file,
    "kafka": lambda bench: kafka_figures(bench.spark, bench.scale),
    **{name: lambda bench, name=name: network_figures(name, bench.scale) for name in NETWORK_FIGURES},  # type: ignore[misc]
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one line of named figures")
    parser.add_argument("--scale", type=float, default=1.0, help="how large the data is")
    parser.add_argument("--only", default=",".join(FIGURES), help="which figures, comma between")
    arguments = parser.parse_args()
    if unknown := set(arguments.only.split(",")) - set(FIGURES):
        parser.error(f"no such figures: {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    bench = Bench(arguments.scale)
    try:
        figures: dict[str, float] = {}
        for name in arguments.only.split(","):
            found = {figure: round(value, 1) for figure, value in FIGURES[name](bench).items()}
            figures.update(found)
            for figure, value in found.items():
                print(f"{figure:24} {value:>14,}", file=sys.stderr if arguments.json else sys.stdout, flush=True)
        if arguments.json:
            print(json.dumps(figures))
    finally:
        bench.close()


if __name__ == "__main__":
    main()
