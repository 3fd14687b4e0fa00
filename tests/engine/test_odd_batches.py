"""Batches that are not like others: one key for almost all events, none at all, rows of two hundred columns."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import millpond as mp

ROWS = 1_000_000 if os.environ.get("MILLPOND_SOAK") else 100_000
COLUMNS = 200

ONE_KEY = f"""
CREATE STREAM ticks AS SELECT IF(seq % 1000 = 7, concat('k', seq % 3), 'one') AS k, seq
  FROM 'generate://?rows={ROWS}&seed=7';
CREATE TABLE last (k STRING PRIMARY KEY, seq BIGINT);
CREATE TABLE sums (k STRING PRIMARY KEY, n BIGINT, total BIGINT);
CREATE TABLE nobody (k STRING PRIMARY KEY, name STRING);
INSERT INTO sums VALUES ('one', 0, 0), ('none', 0, 0);
INSERT INTO last SELECT k, seq FROM ticks;
CREATE TABLE counts AS
  SELECT k, COUNT(*) AS n, COUNT(DISTINCT seq) AS different, SUM(seq) AS total FROM ticks GROUP BY k;
UPDATE sums SET n = sums.n + 1, total = sums.total + t.seq FROM ticks t WHERE sums.k = t.k;
DELETE FROM nobody USING ticks t WHERE nobody.k = t.k;
INSERT INTO 'file:joined' SELECT t.k, n.name FROM ticks t JOIN nobody n ON n.k = t.k;
CREATE TABLE by_name AS SELECT n.name, COUNT(*) AS n FROM counts c JOIN nobody n ON n.k = c.k GROUP BY n.name;
"""


def app_of(folder: Path, text: str, spark: Any) -> mp.App:
    (folder / "app.sql").write_text(text)
    return mp.App(folder / "app.sql", state=folder / "state", spark=spark)


@pytest.mark.spark
def test_odd_batches_of_one_key_and_tables_without_rows(tmp_path: Path, spark: Any) -> None:
    app = app_of(tmp_path, ONE_KEY, spark)
    app.run_once()
    others = [seq for seq in range(ROWS) if seq % 1000 == 7]
    many, total = ROWS - len(others), sum(range(ROWS)) - sum(others)
    assert app.table("counts").get("one") == {"k": "one", "n": many, "different": many, "total": total}
    assert app.table("counts").scalar("SUM(n)") == ROWS
    assert app.table("sums").get("one") == {"k": "one", "n": many, "total": total}
    assert app.table("sums").get("none") == {"k": "none", "n": 0, "total": 0}
    assert app.table("last").get("one") == {"k": "one", "seq": ROWS - 1}
    assert len(app.table("nobody")) == len(app.table("by_name")) == 0
    assert list((tmp_path / "joined").glob("*.jsonl")) == []
    app.stop()


WIDE = f"""
CREATE STREAM wide ({", ".join(f"c{n} INT" for n in range(COLUMNS))}) FROM 'file:wide.jsonl';
CREATE TABLE kept ({", ".join(f"c{n} INT" for n in range(COLUMNS))}, PRIMARY KEY (c0));
INSERT INTO kept SELECT * FROM wide;
CREATE TABLE sums AS SELECT c0, {", ".join(f"SUM(c{n}) AS s{n}" for n in range(1, COLUMNS))} FROM wide GROUP BY c0;
INSERT INTO 'file:out' SELECT w.*, k.c1 AS other FROM wide w LEFT JOIN kept k ON k.c0 = w.c0;
"""


@pytest.mark.spark
def test_odd_batches_of_wide_rows_and_of_none(tmp_path: Path, spark: Any) -> None:
    # Empty lines are nothing: the first batch, if there is one, has no rows.
    (tmp_path / "wide.jsonl").write_text("\n\n")
    app = app_of(tmp_path, WIDE, spark)
    app.run_once()
    assert len(app.table("kept")) == len(app.table("sums")) == 0
    app.stop()
    rows = [{f"c{n}": n * (k + 1) if n else k for n in range(COLUMNS)} for k in (0, 1, 0)]
    (tmp_path / "wide.jsonl").write_text("\n\n" + "".join(json.dumps(row) + "\n" for row in rows))
    app.run_once()
    assert app.table("kept").get(1) == rows[1]
    assert app.table("sums").get(0) == {"c0": 0, **{f"s{n}": 2 * n for n in range(1, COLUMNS)}}
    assert len(app.table("dead_letters")) == 0
    app.stop()
    out = [json.loads(line) for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert out == [{**row, "other": row["c1"]} for row in rows]
