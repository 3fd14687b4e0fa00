"""An app on executors of their own: what they read is in the storage, and rows are the same as on one machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import millpond as mp
from millpond.settings import is_local

MILLPOND = (sys.executable, "-m", "millpond.cli.main")
PATIENCE_S = 500.0
EVENTS = 6000

APP = """
SET driver.max.rows = 1000;
SET spark.conf.spark.sql.shuffle.partitions = '2';
CREATE STREAM events (id BIGINT, user_id STRING, quantity INT) FROM 'file://./in.jsonl';
CREATE TABLE users AS SELECT * FROM 'file://./users.csv';
CREATE TABLE totals AS SELECT user_id, COUNT(*) AS n, SUM(quantity) AS quantity FROM events GROUP BY user_id;
INSERT INTO 'file://./out' SELECT e.id, u.tier FROM events e JOIN users u ON u.user_id = e.user_id;
"""


def millpond(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*MILLPOND, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False, timeout=PATIENCE_S)


def test_local_masters_are_recognized() -> None:
    assert [is_local(m) for m in ("local", "local[*]", "local[2]")] == [True] * 3
    assert [is_local(m) for m in ("local-cluster[2,1,1024]", "spark://host:7077", "yarn")] == [False] * 3


@pytest.mark.process
def test_a_cluster_requires_a_shared_folder(tmp_path: Path) -> None:
    (tmp_path / "app.sql").write_text("SET master = 'spark://host:7077';\n")
    found = millpond(tmp_path, "check", "app.sql")
    assert (found.returncode, "MP905 app.sql:1:5" in found.stderr + found.stdout) == (2, True)
    (tmp_path / "app.sql").write_text("SET master = 'spark://host:7077'; SET storage = 's3://bucket/app';\n")
    found = millpond(tmp_path, "check", "app.sql")
    assert (found.returncode, "MP901" in found.stderr + found.stdout) == (2, True)


@pytest.mark.process
def test_executors_read_the_storage_and_give_the_same_rows(tmp_path: Path) -> None:
    lines = [json.dumps({"id": n, "user_id": f"u{n % 12}", "quantity": n % 7}) for n in range(EVENTS)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "users.csv").write_text("user_id,tier\n" + "".join(f"u{n},{'ab'[n % 2]}\n" for n in range(10)))
    (tmp_path / "app.sql").write_text(APP)
    words = ["--master", "local-cluster[2,1,1024]", "--storage", "storage"]
    done = millpond(tmp_path, "run", "app.sql", "--once", *words)
    assert done.returncode == 0, done.stderr
    out = [json.loads(line) for file in (tmp_path / "out").glob("*.json*") for line in file.read_text().splitlines()]
    wanted = [{"id": n, "tier": "ab"[n % 12 % 2]} for n in range(EVENTS) if n % 12 < 10]
    assert sorted(out, key=lambda row: int(row["id"])) == wanted
    found = millpond(
        tmp_path, "query", "SELECT SUM(n) AS n, SUM(quantity) AS q FROM totals", "--app", "app.sql", "--format", "csv"
    )
    assert found.stdout == f"n,q\n{EVENTS},{sum(n % 7 for n in range(EVENTS))}\n"
    feed = next((tmp_path / ".millpond" / "app" / "flows").glob("*/source/feed"))
    assert feed.resolve().is_relative_to(tmp_path / "storage")


def test_a_session_that_is_not_of_classic_spark_is_rejected() -> None:
    """As that of Spark Connect, which is of another type."""
    with pytest.raises(mp.MillpondError, match=r"MP901(.|\n)*builtins.object(.|\n)*Spark Connect"):
        mp.App(sql="", spark=object())  # type: ignore[arg-type]
