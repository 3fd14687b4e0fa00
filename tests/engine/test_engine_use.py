"""Which engine took a batch: counted per statement, shown by SHOW and explain --analyze, kept over restarts."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.app.stopped_app import query_state
from millpond.cli.main import main

pytestmark = pytest.mark.spark

# The second statement uses a function that only Spark has.
SQL = """
SET driver.max.rows = ${LIMIT};
CREATE STREAM s (id INT, u STRING) FROM 'file://./s.jsonl' WITH ('max.rows.per.batch' = '10');
CREATE TABLE t (id INT PRIMARY KEY, u STRING);
CREATE TABLE hosts (id INT PRIMARY KEY, host STRING);
INSERT INTO t SELECT id, upper(u) FROM s;
INSERT INTO hosts SELECT id, xpath_string('<h>h' || id || '</h>', 'h') FROM s;
"""


def write(folder: Path, first: int, count: int) -> None:
    with (folder / "s.jsonl").open("a") as file:
        file.writelines(json.dumps({"id": i, "u": f"http://h{i}/x"}) + "\n" for i in range(first, first + count))


def run(folder: Path, spark: Any, limit: int = 200_000) -> list[dict[str, Any]]:
    (folder / "app.sql").write_text(SQL)
    app = mp.App(folder / "app.sql", state=folder / "state", variables={"LIMIT": str(limit)}, spark=spark)
    app.run_once()
    flows: list[dict[str, Any]] = app.query("SHOW FLOWS").rows()
    app.stop()
    return flows


def statements(folder: Path) -> list[tuple[Any, ...]]:
    rows = query_state("SHOW STATEMENTS", state=folder / "state").to_pylist()
    assert all(row["batch_ms"] > 0 for row in rows)
    return [tuple(row[n] for n in ("flow", "line", "target", "engine", "batches", "rows")) for row in rows]


def test_each_statement_is_counted_where_it_ran(tmp_path: Path, spark: Any) -> None:
    write(tmp_path, 0, 20)
    flow = run(tmp_path, spark)[0]
    batches = flow["batches"]
    assert (flow["arrow_batches"], flow["spark_batches"], flow["spark_rows"]) == (0, batches, 20)
    assert flow["spark_ms"] > 0
    assert statements(tmp_path) == [("s", 6, "t", "arrow", batches, 20), ("s", 7, "hosts", "spark", batches, 20)]


def test_counts_go_on_after_a_restart_and_large_batches_are_sparks(tmp_path: Path, spark: Any) -> None:
    write(tmp_path, 0, 5)
    run(tmp_path, spark)
    write(tmp_path, 5, 7)
    flow = run(tmp_path, spark, limit=3)[0]
    assert flow["spark_rows"] == 7
    found = {(row[2], row[3]): row[5] for row in statements(tmp_path)}
    assert found == {("t", "arrow"): 5, ("t", "spark"): 7, ("hosts", "spark"): 12}
    assert query_state(
        "SELECT COUNT(*) AS n FROM hosts WHERE host = 'h' || id", state=tmp_path / "state"
    ).to_pylist() == [{"n": 12}]


def test_explain_analyze_shows_it(tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 0, 4)
    run(tmp_path, spark)
    words = ["explain", str(tmp_path / "app.sql"), "--state", str(tmp_path / "state"), "--set", "LIMIT=9", "--analyze"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "engine spark: Arrow does not support" in text
    shown = [line.split() for line in text.splitlines() if " arrow " in line and " t " in line]
    assert [line[:6] for line in shown] == [["s", "6", "t", "arrow", "1", "4"]], text
    assert main([*words, "--json"]) == 0
    analyzed = json.loads(capsys.readouterr().out)["analyzed"]
    assert [(row["target"], row["engine"]) for row in analyzed] == [("t", "arrow"), ("hosts", "spark")]


def test_parameters_do_not_need_spark(tmp_path: Path) -> None:
    with mp.App(sql="CREATE TABLE t (id INT PRIMARY KEY, b DECIMAL(9,2), d DATE, s STRING);") as app:
        app.execute("INSERT INTO t VALUES (1, 1.50, DATE'2026-01-02', 'it''s'), (2, NULL, NULL, 'a\\\\b')")
        cases: list[tuple[str, list[Any], list[int]]] = [
            ("id = ?", [1], [1]),
            ("b >= ?", [Decimal("1.5")], [1]),
            ("d = ?", [date(2026, 1, 2)], [1]),
            ("s = ?", ["it's"], [1]),
            ("s = ?", ["a\\b"], [2]),
            ("id IN (?, ?) AND ? IS NULL", [1, 2, None], [1, 2]),
            ("id > ?", [1.5], [2]),
            ("id = 1 AND ?", [True], [1]),
        ]
        for condition, values, expected in cases:
            found = app.query(f"SELECT id FROM t WHERE {condition} ORDER BY id", values).rows()
            assert [row["id"] for row in found] == expected, condition
        assert app._running is None or app._running._session is None
