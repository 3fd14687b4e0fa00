"""The join of bench/flows.py without streaming: a loop over a dict, and Polars as the ceiling. Prints seconds.

    python bench/join_peers.py dict|polars FOLDER

Neither remembers what it has done, and neither survives a crash: they show what the machine can do.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import polars as pl

TABLE_ROWS = 100_000
PORTION = "2-*"


def by_dict(folder: Path) -> None:
    users = {f"u{i}": ("x", "GOLD") for i in range(TABLE_ROWS)}
    nothing = (None, None)
    with (folder / "dict-out.jsonl").open("w") as out:
        for file in sorted((folder / "in").glob(PORTION)):
            with file.open() as lines:
                for line in lines:
                    row = json.loads(line)
                    row["name"], row["tier"] = users.get(row["user_id"], nothing)
                    out.write(json.dumps(row) + "\n")


def by_polars(folder: Path) -> None:
    # Prices pass through a double here, which Millpond does not do.
    users = pl.DataFrame({"user_id": [f"u{i}" for i in range(TABLE_ROWS)], "name": "x", "tier": "GOLD"})
    files = sorted((folder / "in").glob(PORTION))
    rows = pl.concat([pl.read_ndjson(file) for file in files])
    rows.join(users, on="user_id", how="left").write_ndjson(folder / "polars-out.jsonl")


if __name__ == "__main__":
    work, folder = {"dict": by_dict, "polars": by_polars}[sys.argv[1]], Path(sys.argv[2])
    best = float("inf")
    for _ in range(2):
        started = time.monotonic()
        work(folder)
        best = min(best, time.monotonic() - started)
    print(best)
