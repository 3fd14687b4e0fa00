"""Files that few programs write, through a whole app."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond import App

APP = """
CREATE STREAM returns FROM 'file://./returns.csv';
CREATE TABLE read AS SELECT a, MAX(b) AS b FROM returns GROUP BY a;
CREATE STREAM nested FROM 'file://./deep.jsonl';
CREATE TABLE kept (id BIGINT, deep STRING);
INSERT INTO kept SELECT id, CAST(deep.a.a AS STRING) FROM nested;
"""


@pytest.mark.spark
def test_carriage_returns_end_rows_and_deep_json_stops_nothing(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "app.sql").write_text(APP)
    (tmp_path / "returns.csv").write_bytes(b"a,b\r1,x\r2,y")
    rows = [f'{{"id": {depth}, "deep": {_nested(depth)}}}' for depth in (1, 3, 30, 1_100)]
    (tmp_path / "deep.jsonl").write_text("\n".join(rows) + "\n")
    app = App(tmp_path / "app.sql", spark=spark)
    app.run_once()
    found = app.query("SELECT a, b FROM read ORDER BY a").to_arrow().to_pylist()
    assert found == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    kept = {row["id"] for row in app.table("kept").to_arrow().to_pylist()}
    letters = app.query("SELECT code FROM dead_letters").to_arrow().to_pylist()
    assert kept >= {1, 3, 30}
    # Whether the deepest can be read is up to the parser, but it is not lost.
    assert len(kept) + len(letters) == len(rows)
    app.stop()


def _nested(depth: int) -> str:
    return '{"a": ' * depth + "{}" + "}" * depth
