"""How long a start takes: from the command to its end, beside plain PySpark, each in a process of its own.

    python bench/start.py [--json] [--runs 3] [--only plain,once]

Figures are medians of `--runs` runs that take turns, after one that is not counted: it fills Python's and the system's
caches, and leaves the archive of Java's classes. `*_cpu_s` is the processor time of a run with all its processes, which
other work on the machine changes least.

    plain_session_s  a plain PySpark session
    plain_query_s    its first small query: a JSON file of one row, one function
    once_s           `millpond run --once` of an app that stores this row in a table: state, feed, batch, commit, end
    aggregate_s      the same with a GROUP BY and a view
    spark_once_s     the same with a function that only Spark evaluates
    check_s          `millpond check` of the first app
    query_s          `millpond query` of that app when it is stopped
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
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HEAD = "CREATE STREAM s (k INT, v STRING) FROM 'file://./in.jsonl';\n"
STORE = "CREATE TABLE t (k INT PRIMARY KEY, v STRING);\nINSERT INTO t SELECT k, {function}(v) FROM s;\n"
APPS = {
    "once": HEAD + STORE.format(function="upper"),
    "aggregate": HEAD
    + "CREATE TABLE totals AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;\n"
    + "CREATE TABLE most AS SELECT MAX(n) AS n FROM totals;\n",
    "spark_once": HEAD + STORE.format(function="soundex"),
}
MILLPOND = (sys.executable, "-m", "millpond.cli.main")
# What it prints are the seconds since it was started.
PLAIN = """
import sys, time
from pyspark.sql import SparkSession

started = float(sys.argv[1])
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
print(time.time() - started, flush=True)
rows = spark.read.schema("k INT, v STRING").json(sys.argv[2]).selectExpr("k", "upper(v)").collect()
print(time.time() - started, flush=True)
assert [tuple(row) for row in rows] == [(1, "X")]
"""
# Longer than any Java needs to end after its Python.
JAVA_ENDS_S = 120.0

Figures = dict[str, float]


@dataclass(frozen=True)
class Bench:
    """A folder with one row of data and an app of each kind, whose state is removed before each run."""

    folder: Path

    def __post_init__(self) -> None:
        (self.folder / "in.jsonl").write_text('{"k": 1, "v": "x"}\n')
        for name, text in APPS.items():
            (self.folder / f"{name}.sql").write_text(text)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        # A process of a user has its compiled files; those of a source tree go aside.
        around = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        around["PYTHONPYCACHEPREFIX"] = str(self.folder / "compiled")
        return subprocess.run(words, cwd=self.folder, env=around, capture_output=True, text=True, check=True)

    def millpond(self, name: str, *words: str) -> Figures:
        started, before = time.monotonic(), _cpu_s()
        self.run(*MILLPOND, *words)
        seconds = time.monotonic() - started
        _wait_for_java()
        return {f"{name}_s": seconds, f"{name}_cpu_s": _cpu_s() - before}

    def forget(self, app: str) -> None:
        shutil.rmtree(self.folder / ".millpond" / app, ignore_errors=True)


def plain(bench: Bench) -> Figures:
    before = _cpu_s()
    done = bench.run(sys.executable, "-c", PLAIN, str(time.time()), str(bench.folder / "in.jsonl"))
    _wait_for_java()
    session, query = (float(line) for line in done.stdout.split())
    return {"plain_session_s": session, "plain_query_s": query, "plain_query_cpu_s": _cpu_s() - before}


def once(bench: Bench, app: str = "once") -> Figures:
    bench.forget(app)
    return bench.millpond(app, "run", f"{app}.sql", "--once")


def aggregate(bench: Bench) -> Figures:
    return once(bench, "aggregate")


def spark_once(bench: Bench) -> Figures:
    return once(bench, "spark_once")


def check(bench: Bench) -> Figures:
    return bench.millpond("check", "check", "once.sql")


def query(bench: Bench) -> Figures:
    """Comes after `once`, whose state it reads."""
    if not (bench.folder / ".millpond" / "once").exists():
        once(bench)
    return bench.millpond("query", "query", "SELECT COUNT(*) AS n FROM t", "--app", "once.sql")


FIGURES: dict[str, Callable[[Bench], Figures]] = {
    "plain": plain,
    "once": once,
    "aggregate": aggregate,
    "spark_once": spark_once,
    "check": check,
    "query": query,
}


def _cpu_s() -> float:
    """Processor seconds of all processes that were waited for, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _wait_for_java() -> None:
    """Java ends a while after the Python that has started it, and would take processor time of the next run; as the
    nearest that still lives, this process inherits it."""
    deadline = time.monotonic() + JAVA_ENDS_S
    while time.monotonic() < deadline:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not ended:
            time.sleep(0.05)


def _inherit() -> None:
    """Let processes whose parent has ended become children of this one, where the system can do that."""
    import ctypes

    set_child_subreaper = 36
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(set_child_subreaper, 1, 0, 0, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one line of named figures")
    parser.add_argument("--runs", type=int, default=3, help="how often each is measured")
    parser.add_argument("--only", default=",".join(FIGURES), help="which figures, comma between")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := set(names) - set(FIGURES):
        parser.error(f"no such figures: {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    _inherit()
    found: defaultdict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as folder:
        bench = Bench(Path(folder))
        for number in range(-1, arguments.runs):
            for name in names:
                measured = FIGURES[name](bench)
                print(f"-- {name} {number + 1 or 'not counted'}: {measured}", file=sys.stderr, flush=True)
                for figure, value in measured.items() if number >= 0 else ():
                    found[figure].append(value)
    figures = {name: statistics.median(values) for name, values in found.items()}
    if arguments.json:
        print(json.dumps({name: round(value, 2) for name, value in figures.items()}))
        return
    for name, value in figures.items():
        print(f"{name:20} {value:>8.2f}")


if __name__ == "__main__":
    main()
