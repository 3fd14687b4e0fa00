"""How long `millpond check` takes on 50 statements, cold: one process each time. `--json` prints one object."""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 7
HEAD = """
CREATE STREAM trades (user_id STRING, symbol STRING, quantity INT, price DECIMAL(12,2)) FROM 'file://./trades.jsonl';
CREATE TABLE users (user_id STRING PRIMARY KEY, name STRING, tier STRING);
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one line of named figures")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    (folder / "trades.jsonl").touch()
    lines = [
        f"SELECT t.symbol, u.name FROM trades t JOIN users u ON u.user_id = t.user_id AND t.quantity > {n};\n"
        for n in range(48)
    ]
    (folder / "app.sql").write_text(HEAD + "".join(lines))
    wall = []
    for _ in range(RUNS):
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "millpond.cli.main", "check", "app.sql"], cwd=folder, check=True, capture_output=True
        )
        wall.append(time.perf_counter() - started)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {"check_s": statistics.median(wall), "check_cpu_s": (used.ru_utime + used.ru_stime) / RUNS}
    if arguments.json:
        print(json.dumps({name: round(value, 3) for name, value in figures.items()}))
        return
    for name, value in figures.items():
        print(f"{name:16} {value:>10.3f}")


if __name__ == "__main__":
    main()
