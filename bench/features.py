"""The warm batch time of every SQL feature, on each engine and in plain Structured Streaming.

    python bench/features.py [--json] [--only session,join_left] [--rows 10,500] [--engine arrow,spark,plain]

`arrow` is Millpond as it runs by default, `spark` the same with MILLPOND_ENGINE=spark; each engine has a process of its
own with one Spark session. Figures are medians of warm batches: `session_500_ms_arrow` is the time of a batch as SHOW
FLOWS gives it (plain: addBatch of Spark), `session_500_trigger_ms_arrow` the whole trigger around it,
`session_500_jobs_arrow` the Spark jobs of a batch. The features are in feature_cases.py.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from feature_cases import CASES, HEAD, Case
from feature_plain import plain_figures
from feature_rows import rounds, rows, tables
from flows import Bench
from timing import jobs_so_far

import millpond as mp

ENGINES = ("arrow", "spark", "plain")
SIZES = (10, 500, 10_000, 200_000)
PATIENCE = "10 minutes"
# Floors of a quiet machine: a batch of 500 rows, and the Spark jobs of one statement.
BATCH_MS_MAX, JOBS_MAX, FLOOR_ROWS = 150, 3, 500

Figures = dict[str, float]


def figures_of(bench: Bench, case: Case, sizes: Sequence[int]) -> Iterator[Figures]:
    """The figures of one feature, size after size, in one app that goes on."""
    folder = bench.folder(case.name)
    app = bench.app(folder, HEAD + case.sql)
    for name, data in tables().items():
        app.table(name).insert(data)
    app.start()
    app.wait_ready()
    try:
        first = 0
        for count in sizes:
            warm, measured = rounds(count)
            for _ in range(warm):
                batch_ms(app, case, first, count)
                first += count
            before = jobs_so_far(bench.spark)
            times = [batch_ms(app, case, first + n * count, count) for n in range(measured)]
            first += measured * count
            jobs = (jobs_so_far(bench.spark) - before) / measured
            beside = [beside_batch_ms(query.recentProgress)[-measured:] for query in bench.spark.streams.active]
            whole = statistics.median(times) + sum(statistics.median(taken) for taken in beside if taken)
            named = {"ms": statistics.median(times), "trigger_ms": whole, "jobs": jobs}
            yield {f"{case.name}_{count}_{what}": value for what, value in named.items()}
    finally:
        app.stop()


def beside_batch_ms(progress: Sequence[Any]) -> list[float]:
    """What Spark needs beside the batch in each trigger that ran one; only joins of streams have triggers."""
    ran = [p["durationMs"] for p in progress if "addBatch" in p["durationMs"]]
    return [taken["triggerExecution"] - taken["addBatch"] for taken in ran]


def batch_ms(app: mp.App, case: Case, first: int, count: int) -> float:
    """Send records to every stream of a feature; the time of the batches that took them, of all flows."""
    before = {flow.name: flow.batches for flow in app.progress().flows}
    for stream in case.streams:
        app.feed(f"memory://{stream}").send(rows(stream, first, count, late=case.late, bad=case.bad))
    app.drain(PATIENCE)
    return sum(flow.batch_ms * (flow.batches - before[flow.name]) for flow in app.progress().flows)


def millpond_figures(cases: Sequence[Case], sizes: Sequence[int]) -> Iterator[tuple[str, Figures | Exception]]:
    bench = Bench(1.0)
    for case in cases:
        try:
            for found in figures_of(bench, case, sizes):
                yield case.name, found
        except mp.MillpondError as error:
            yield case.name, error
        shutil.rmtree(bench.root / case.name, ignore_errors=True)
    bench.spark.stop()
    shutil.rmtree(bench.root, ignore_errors=True)


def measure(engine: str, cases: Sequence[Case], sizes: Sequence[int]) -> tuple[Figures, bool]:
    """All figures of one engine in this process, and whether every feature ran."""
    os.environ["MILLPOND_ENGINE"] = "spark" if engine == "spark" else ""
    found, whole = {}, True
    for name, one in (plain_figures if engine == "plain" else millpond_figures)(cases, sizes):
        if isinstance(one, Exception):
            whole = False
            print(f"{engine} {name} failed: {one}", file=sys.stderr, flush=True)
            continue
        print(f"{engine} " + " ".join(f"{k} {v:.1f}" for k, v in one.items()), file=sys.stderr, flush=True)
        found |= {f"{key}_{engine}": value for key, value in one.items()}
    return found, whole


def measure_apart(engine: str, words: Sequence[str]) -> tuple[Figures, bool]:
    """The same in a process of its own; what it reports on standard error is shown as it comes."""
    command = [sys.executable, __file__, "--json", "--engine", engine, *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    return (json.loads(lines[-1]) if lines else {}), done.returncode == 0


def print_table(figures: Figures, cases: Sequence[Case], sizes: Sequence[int], engines: Sequence[str]) -> None:
    """A line for each feature and size; a star where the floor of a small batch is missed."""
    print(f"{'feature':20}{'rows':>9}" + "".join(f"{engine:>10} ms{'trigger':>9}{'jobs':>6}" for engine in engines))
    for case in cases:
        for count in sizes:
            cells = ""
            for engine in engines:
                own, whole, jobs = (
                    figures.get(f"{case.name}_{count}_{w}_{engine}") for w in ("ms", "trigger_ms", "jobs")
                )
                star = own is not None and count <= FLOOR_ROWS and engine == "arrow" and own > BATCH_MS_MAX
                many = jobs is not None and engine != "plain" and jobs > JOBS_MAX
                cells += "".join(
                    f"{'-' if value is None else f'{value:,.{places}f}' + '*' * marked:>{width}}"
                    for value, places, width, marked in ((own, 0, 13, star), (whole, 0, 9, False), (jobs, 1, 6, many))
                )
            print(f"{case.name:20}{count:>9,}{cells}")


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    parser.add_argument("--json", action="store_true", help="print one line of named figures")
    parser.add_argument("--only", default=",".join(case.name for case in CASES), help="which features, comma between")
    parser.add_argument("--rows", default=",".join(map(str, SIZES)), help="rows of a batch, comma between")
    parser.add_argument("--engine", default=",".join(ENGINES), help="which of arrow, spark and plain, comma between")
    arguments = parser.parse_args()
    known = [case.name for case in CASES]
    if unknown := set(arguments.only.split(",")) - set(known):
        parser.error(f"no such figures: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if unknown := set(arguments.engine.split(",")) - set(ENGINES):
        parser.error(f"no such engines: {', '.join(sorted(unknown))}; there are {', '.join(ENGINES)}")
    if not all(word.isdecimal() and int(word) > 0 for word in arguments.rows.split(",")):
        parser.error(f"--rows takes counts with commas between, such as 10,500; not {arguments.rows}")
    return arguments


def main() -> None:
    arguments = parse(
        argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    )
    cases = [case for case in CASES if case.name in arguments.only.split(",")]
    sizes, engines = sorted({int(word) for word in arguments.rows.split(",")}), arguments.engine.split(",")
    words = ["--only", arguments.only, "--rows", arguments.rows]
    parts = [measure(engines[0], cases, sizes)] if len(engines) == 1 else [measure_apart(e, words) for e in engines]
    figures = {name: value for found, _ in parts for name, value in found.items()}
    if arguments.json:
        print(json.dumps({name: round(value, 1) for name, value in figures.items()}), flush=True)
    else:
        print_table(figures, cases, sizes, engines)
    sys.exit(0 if all(whole for _, whole in parts) else 1)


if __name__ == "__main__":
    main()
