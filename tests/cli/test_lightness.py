"""Commands that need no Spark load none, and are quick."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Not pandas: pyarrow loads it where it is installed.
HEAVY = ("pyspark", "py4j")

# Runs a command in a fresh Python and prints on standard error which heavy packages it loaded.
CODE = """
import json, sys
from millpond.cli.main import main
code = main(sys.argv[1:])
print(json.dumps({"code": code, "loaded": [m for m in %r if m in sys.modules]}), file=sys.stderr)
"""

STATEMENTS = 50
REPEATED = (
    "CREATE TABLE totals_# AS SELECT user_id, COUNT(*) AS n, SUM(price) AS paid FROM trades GROUP BY user_id;",
    "INSERT INTO 'file://./out_#' SELECT t.id, u.tier, (SELECT n FROM totals_# x WHERE x.user_id = t.user_id) AS n "
    "FROM trades t LEFT JOIN users u ON u.user_id = t.user_id WHERE t.price > 1 AND u.tier IN ('GOLD', 'BASIC');",
    "INSERT INTO users VALUES ('u#', 'GOLD');",
)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A file of fifty statements of several kinds."""
    rows = "".join(f'{{"id": {i}, "user_id": "u{i}", "price": 1.50}}\n' for i in range(1_000))
    (tmp_path / "trades.jsonl").write_text(rows)
    lines = [
        "CREATE STREAM trades FROM 'file://./trades.jsonl';",
        "CREATE TABLE users (user_id STRING PRIMARY KEY, tier STRING);",
    ]
    for i in range((STATEMENTS - len(lines)) // 3):
        lines += [line.replace("#", str(i)) for line in REPEATED]
    assert len(lines) == STATEMENTS
    file = tmp_path / "app.sql"
    file.write_text("\n".join(lines))
    return file


@pytest.mark.process
@pytest.mark.parametrize("words", [["check"], ["explain"], ["explain", "--json"], ["version"], ["--help"], ["doctor"]])
def test_a_command_that_needs_no_spark_loads_none(app: Path, words: list[str]) -> None:
    given = [*words, str(app)] if words[0] in ("check", "explain") else words
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", CODE % (HEAVY,), *given], capture_output=True, text=True, check=False)
    print(f"millpond {' '.join(words)}: {time.monotonic() - started:.2f} s")
    reported = json.loads(done.stderr.splitlines()[-1])
    assert reported == {"code": 0, "loaded": []}, done.stderr
