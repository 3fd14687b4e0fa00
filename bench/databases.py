"""Databases measured: tables loaded, changes captured, rows looked up and written, beside the plain client libraries.

    python bench/databases.py [--json] [--scale 0.1] [--only postgresql,mysql]

A server is started for each, as for the tests, on the same machine, with a million rows of 8 columns, among them
decimals and timestamps. `--scale` makes everything smaller.
"""

from __future__ import annotations

import argparse
import json
import sys

from mysql_figures import mysql_figures
from postgresql_figures import postgresql_figures

ROWS = 1_000_000
FIGURES = {"postgresql": postgresql_figures, "mysql": mysql_figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one line of named figures")
    parser.add_argument("--scale", type=float, default=1.0, help="how large the data is")
    parser.add_argument("--only", default=",".join(FIGURES), help="which databases, comma between")
    arguments = parser.parse_args()
    if unknown := set(arguments.only.split(",")) - set(FIGURES):
        parser.error(f"no such figures: {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    figures: dict[str, float] = {}
    for name in arguments.only.split(","):
        found = FIGURES[name](max(int(ROWS * arguments.scale), 1000))
        found = {figure: round(value, 2 if figure.endswith("_ratio") else 0) for figure, value in found.items()}
        figures.update(found)
        for figure, value in found.items():
            print(f"{figure:24} {value:>14,}", file=sys.stderr if arguments.json else sys.stdout, flush=True)
    if arguments.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
