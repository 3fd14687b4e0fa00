"""The storage that an app shares with executors goes away while a flow runs: batches are repeated, nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.engine.test_full_disk import wait_for

import millpond as mp

# Batches are larger than the driver takes, so that Spark reads the feed files in the storage; the table is there too.
APP = """
SET driver.max.rows = 10;
CREATE STREAM s (a INT, k STRING) FROM 'file://FOLDER/in/*.jsonl';
CREATE TABLE total AS SELECT COUNT(*) AS n, SUM(a) AS s FROM s;
CREATE TABLE latest (k STRING PRIMARY KEY, a INT) WITH ('backend' = 'delta');
INSERT INTO latest SELECT k, a FROM s;
INSERT INTO 'file://FOLDER/out' SELECT a FROM s WHERE 100 / (a + 1) >= 0 WITH ('on.error' = 'dead-letter');
"""
ROWS = 40


def give(folder: Path, number: int) -> None:
    rows = range(number * ROWS, (number + 1) * ROWS)
    new = folder / "new.tmp"
    new.write_text("".join(json.dumps({"a": n, "k": f"k{n % 7}"}) + "\n" for n in rows))
    new.rename(folder / "in" / f"{number}.jsonl")


@pytest.mark.spark
def test_a_storage_that_is_away_interrupts_a_flow_and_loses_nothing(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "in").mkdir()
    give(tmp_path, 0)
    storage, away = tmp_path / "storage", tmp_path / "away"
    settings = {"storage": str(storage)}
    text = APP.replace("FOLDER", str(tmp_path))
    with mp.App(sql=text, state=tmp_path / "state", spark=spark, settings=settings) as app:
        wait_for(lambda: app.table("total").values("n") == [ROWS])
        storage.rename(away)
        give(tmp_path, 1)
        wait_for(lambda: app.progress().flows[0].error.startswith("MP817 The storage "))
        assert app.progress().flows[0].state == "retrying"
        give(tmp_path, 2)
        away.rename(storage)
        total = 3 * ROWS
        wait_for(lambda: app.table("total").to_arrow().to_pylist() == [{"n": total, "s": sum(range(total))}])
        wait_for(lambda: app.progress().flows[0].state == "running")
        assert app.failures == ()
        assert app.table("dead_letters").count() == 0
        last = {f"k{n % 7}": n for n in range(total)}
        assert {row["k"]: row["a"] for row in app.table("latest").to_arrow().to_pylist()} == last
        app.drain("60s")
    out = [json.loads(line)["a"] for file in (tmp_path / "out").glob("*.jsonl") for line in file.open()]
    assert sorted(out) == list(range(total))
