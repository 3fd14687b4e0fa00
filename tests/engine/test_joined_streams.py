"""Events that Spark drops from a join of streams are reported."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond as mp

pytestmark = pytest.mark.spark

START = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
WAIT_S = 60
APP = """
CREATE STREAM sells (id INT, k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS) FROM 'memory://sells';
CREATE STREAM quotes (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS) FROM 'memory://quotes';
CREATE TABLE pairs (id INT PRIMARY KEY);
INSERT INTO pairs SELECT s.id FROM sells s
  JOIN quotes q ON s.k = q.k AND q.ts BETWEEN s.ts - INTERVAL 5 SECONDS AND s.ts;
"""


def until(condition: Any) -> None:
    """Wait for a condition, with a bound."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_an_event_that_spark_finds_too_late_is_reported(tmp_path: Path, spark: Any) -> None:
    app = mp.App(sql=APP, state=tmp_path / "state", spark=spark)
    with app:
        app.start()
        pairs = app.table("pairs")
        for number, seconds in enumerate((0, 100, 200)):
            ts = START + timedelta(seconds=seconds)
            app.feed("memory://quotes").send([{"k": "a", "ts": ts}])
            app.feed("memory://sells").send([{"id": number, "k": "a", "ts": ts}])
            until(lambda number=number: pairs.contains(number))
        # As if it had been handed over just before the other stream ran ahead.
        folder = next(f for f in (tmp_path / "state").rglob("events/0"))
        schema = pa.schema(
            [
                ("id", pa.int32()),
                ("k", pa.string()),
                ("ts", pa.timestamp("us", "UTC")),
                ("_mp_major", pa.int64()),
                ("_mp_minor", pa.int64()),
            ]
        )
        row = {"id": 9, "k": "a", "ts": START, "_mp_major": 9, "_mp_minor": 9}
        pq.write_table(pa.Table.from_pylist([row], schema), folder / "late.parquet")
        until(lambda: any("dropped 1 event behind" in p.message for p in app.progress().problems))
        assert not pairs.contains(9)
