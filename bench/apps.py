"""The example apps as a whole: the batch time of each flow while the app runs at its own pace, as in the demo, and the
rows per second of `--once`, which takes everything as fast as it can.

    python bench/apps.py [--json] [--only trading] [--seconds 20] [--engine arrow]

Each folder under examples/ is an app, except that of change capture, which needs a database: bench/databases.py
measures that. It runs on a copy, in a process of its own for each engine.
`trading_trade_numbers_ms_arrow` is the median batch of that flow, `..._rows_arrow` the rows in it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from flows import PATIENCE_S, Bench
from timing import jobs_so_far

import millpond as mp

EXAMPLES = Path(__file__).parents[1] / "examples"
# Examples that need a server.
SERVED = ("cdc",)
ENGINES = ("arrow", "spark")
LOOK_S, IDLE_S = 0.005, 5.0
# The batches of a flow that warm it up, of those that it has.
WARM_SHARE = 0.25

Figures = dict[str, float]


def trading(seconds: int) -> dict[str, str]:
    """The demo's rates, for so many seconds."""
    counts = {"TRADES": 2_000 * seconds, "TRADE_RATE": 2_000, "QUOTES": 200 * seconds, "QUOTE_RATE": 200}
    return {name: str(count) for name, count in counts.items()}


# The variables by which an app is made as long as asked; an app that is not here runs as its file has it.
LENGTHS: dict[str, Callable[[int], dict[str, str]]] = {"trading": trading}


def example_files() -> dict[str, Path]:
    """The SQL file of each example, by the name of its folder."""
    return {file.parent.name: file for file in sorted(EXAMPLES.glob("*/*.sql")) if file.parent.name not in SERVED}


def open_app(bench: Bench, name: str, run: str, seconds: int) -> mp.App:
    """An example on a copy of its files."""
    file = example_files()[name]
    copied = bench.root / run / name
    shutil.copytree(file.parent, copied)
    variables: Mapping[str, str] = LENGTHS[name](seconds) if name in LENGTHS else {}
    return mp.App(copied / file.name, state=copied / "state", spark=bench.spark, variables=dict(variables))


def live(bench: Bench, name: str, seconds: int) -> Figures:
    """The median batch of each flow and its rows, until all have run and no batch has come for some seconds."""
    app, batches = open_app(bench, name, "live", seconds), defaultdict[str, list[tuple[float, int]]](list)
    seen: dict[str, tuple[int, int]] = {}
    jobs, started = jobs_so_far(bench.spark), time.monotonic()
    app.start()
    changed = time.monotonic()
    while time.monotonic() - started < PATIENCE_S and not app.failures:
        progress = app.progress()
        for flow in progress.flows:
            done, rows = seen.get(flow.name, (0, 0))
            if flow.batches > done:
                batches[flow.name].append((flow.batch_ms, (flow.rows - rows) // (flow.batches - done)))
                seen[flow.name] = flow.batches, flow.rows
                changed = time.monotonic()
        if progress.state == "running" and len(seen) == len(progress.flows) and time.monotonic() - changed > IDLE_S:
            break
        time.sleep(LOOK_S)
    failures = app.failures
    app.stop()
    if failures:
        raise failures[0]
    figures = {f"{name}_jobs": (jobs_so_far(bench.spark) - jobs) / max(sum(map(len, batches.values())), 1)}
    for flow_name, taken in batches.items():
        warm = taken[int(len(taken) * WARM_SHARE) :]
        figures[f"{name}_{flow_name}_ms"] = statistics.median(ms for ms, _ in warm)
        figures[f"{name}_{flow_name}_rows"] = statistics.median(rows for _, rows in warm)
    return figures


def once(bench: Bench, name: str, seconds: int) -> Figures:
    """Rows of all flows per second of a run that takes everything at once."""
    app = open_app(bench, name, "once", seconds)
    started = time.monotonic()
    app.run_once()
    taken = time.monotonic() - started
    rows = sum(flow.rows for flow in app.progress().flows)
    app.stop()
    return {f"{name}_once_s": taken, f"{name}_once_rows_s": rows / taken}


def measure(engine: str, names: list[str], seconds: int) -> Figures:
    os.environ["MILLPOND_ENGINE"] = "spark" if engine == "spark" else ""
    bench, figures = Bench(1.0), {}
    for name in names:
        figures |= live(bench, name, seconds) | once(bench, name, seconds)
    bench.spark.stop()
    shutil.rmtree(bench.root, ignore_errors=True)
    return {f"{name}_{engine}": value for name, value in figures.items()}


def measure_apart(engine: str, words: list[str]) -> Figures:
    command = [sys.executable, __file__, "--json", "--engine", engine, *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = list(example_files())
    parser.add_argument("--json", action="store_true", help="print one line of named figures")
    parser.add_argument("--only", default=",".join(known), help="which apps, comma between")
    parser.add_argument("--seconds", type=int, default=20, help="for how long an app makes rows")
    parser.add_argument("--engine", default=",".join(ENGINES), help="arrow, spark or both, comma between")
    arguments = parser.parse_args()
    names, engines = arguments.only.split(","), arguments.engine.split(",")
    if unknown := set(names) - set(known):
        parser.error(f"no such figures: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if unknown := set(engines) - set(ENGINES):
        parser.error(f"no such engines: {', '.join(sorted(unknown))}; there are {', '.join(ENGINES)}")
    words = ["--only", arguments.only, "--seconds", str(arguments.seconds)]
    if len(engines) == 1:
        figures = measure(engines[0], names, arguments.seconds)
    else:
        figures = {key: value for engine in engines for key, value in measure_apart(engine, words).items()}
    if arguments.json:
        print(json.dumps({name: round(value, 2) for name, value in figures.items()}), flush=True)
        return
    for name, value in figures.items():
        print(f"{name:40} {value:>12,.1f}")


if __name__ == "__main__":
    main()
