"""Batches that fit on the driver start no Spark job, whatever their statements are made of."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.stepping import Stepper

import millpond as mp

pytestmark = pytest.mark.spark

HEAD = """
CREATE STREAM s (id INT, k STRING, n INT, f DOUBLE, ts TIMESTAMP, a ARRAY<STRING>, m MAP<STRING, STRING>,
                 WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS) FROM 'memory://s';
CREATE TABLE u (k STRING PRIMARY KEY, v INT);
CREATE TABLE seen (id INT PRIMARY KEY, x STRING);
CREATE TABLE grown (k STRING PRIMARY KEY, x ARRAY<STRING>);
CREATE TABLE parts (i INT, x STRING, y STRING);
CREATE TABLE g AS SELECT k, COUNT(*) AS c, SUM(n) AS n FROM s GROUP BY k;
"""
GROUPED = "CREATE TABLE t AS SELECT k, {} AS v FROM s GROUP BY k;"
WINDOWED = "CREATE TABLE t AS SELECT k, window_start, {} AS v FROM s GROUP BY k, {};"
VIEW = "CREATE TABLE t AS {};"
INSERT = "INSERT INTO seen SELECT {};"
PARTS = "INSERT INTO parts SELECT {};"
TUMBLING, SESSION = "TUMBLING(ts, INTERVAL 1 MINUTE)", "SESSION(ts, INTERVAL 10 SECONDS)"
CASES = {
    "count distinct": GROUPED.format("COUNT(DISTINCT n)"),
    "max by": GROUPED.format("MAX_BY(n, ts)"),
    "first": GROUPED.format("FIRST(n)"),
    "deviation": GROUPED.format("STDDEV(f)"),
    "correlation": GROUPED.format("CORR(f, n)"),
    "list": GROUPED.format("COLLECT_LIST(n)"),
    "set": GROUPED.format("sort_array(COLLECT_SET(n))"),
    "percentile": GROUPED.format("PERCENTILE(n, 0.5)"),
    "median": GROUPED.format("MEDIAN(f)"),
    "texts": GROUPED.format("LISTAGG(k, '-')"),
    "conditions": GROUPED.format("COUNT_IF(n > 2) + SUM(n) FILTER (WHERE n > 1) + BIT_OR(n)"),
    "distinct by window": WINDOWED.format("COUNT(DISTINCT n)", TUMBLING),
    "sessions": WINDOWED.format("COUNT(*)", SESSION),
    "distinct by session": WINDOWED.format("COUNT(DISTINCT n)", SESSION),
    "values by session": WINDOWED.format("MAX_BY(n, ts)", SESSION),
    "group of doubles": "CREATE TABLE t AS SELECT f, a, COUNT(*) AS c FROM s GROUP BY f, a;",
    "ranks": VIEW.format("SELECT k, RANK() OVER (ORDER BY n DESC) AS r, SUM(n) OVER (ORDER BY k) AS total FROM g"),
    "union": VIEW.format("SELECT k, n FROM g UNION SELECT k, v FROM u"),
    "full join": VIEW.format("SELECT g.k, u.v FROM g FULL JOIN u ON u.k = g.k"),
    "grouping sets": VIEW.format("SELECT k, COUNT(*) AS c, grouping_id() AS i FROM g GROUP BY CUBE (k)"),
    "latest": VIEW.format("SELECT k, c FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY c, k) AS r FROM g) WHERE r <= 2"),
    "lateral view": PARTS.format("id, x, k FROM s LATERAL VIEW explode(a) e AS x"),
    "map": PARTS.format("id, key, value FROM s LATERAL VIEW OUTER explode(m) e"),
    "positions": PARTS.format("posexplode(a), k FROM s"),
    "right join": PARTS.format("u.v, s.k, u.k FROM u RIGHT JOIN s ON u.k = s.k"),
    "looking back": "INSERT INTO 'file://./out' SELECT id, LAG(n) OVER (PARTITION BY k ORDER BY ts) AS b FROM s;",
    "lists that grow": "UPDATE grown SET x = concat(grown.x, s.a) FROM s WHERE grown.k = s.k;",
    "tuples": INSERT.format("id, k FROM s WHERE (k, n) IN (SELECT k, v FROM u)"),
    "first of many": INSERT.format("id, (SELECT CAST(v AS STRING) FROM u WHERE u.v > s.n ORDER BY v LIMIT 1) FROM s"),
    "nested values": INSERT.format("id, CAST(transform(a, x -> upper(x)) AS STRING) FROM s WHERE a <> array('b')"),
    "failing rows": INSERT.format("id, CAST(10 / n AS STRING) FROM s WITH ('on.error' = 'dead-letter')"),
    "failing casts": INSERT.format("CAST(k AS INT), k FROM s WITH ('on.error' = 'dead-letter')"),
}


def events(first: int) -> list[dict[str, Any]]:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    return [
        {"id": i, "k": f"k{i % 3}" if i % 5 else None, "n": i % 4, "f": i / 2, "a": ["b", None, "c"][: i % 4],
         "ts": start + timedelta(seconds=7 * i), "m": [("x", "y")] if i % 2 else None}
        for i in range(first, first + 12)
    ]  # fmt: skip


def jobs(spark: Any) -> int:
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


@pytest.mark.parametrize("name", CASES)
def test_a_small_batch_starts_no_spark_job(name: str, spark: Any, tmp_path: Path) -> None:
    stepper = Stepper(HEAD + CASES[name], tmp_path, spark)
    stepper.put("u", [{"k": f"k{i}", "v": i} for i in range(4)])
    stepper.feed(events(0))
    before = jobs(spark)
    for batch in (1, 2):
        stepper.feed(events(12 * batch))
    taken = jobs(spark) - before
    stepper.close()
    assert taken == 0


REJECTING = """
CREATE STREAM s (id INT, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) FROM 'memory://s';
CREATE TABLE shares (id INT PRIMARY KEY, share INT);
CREATE TABLE counts AS SELECT window_start, COUNT(*) AS c FROM s GROUP BY TUMBLING(ts, INTERVAL 1 MINUTE);
INSERT INTO shares SELECT id, 10 DIV n FROM s WITH ('on.error' = 'dead-letter');
"""


def test_the_records_of_rejected_rows_are_read_without_spark(tmp_path: Path) -> None:
    def no_spark() -> Any:
        raise AssertionError("Spark was started")

    with mp.App(sql=REJECTING, state=tmp_path / "state", spark=no_spark) as app:
        app.wait_ready()
        for id_, n, minute in ((1, 1, 0), (2, 1, 30), (3, 0, 30), (4, 1, 1)):
            app.feed("memory://s").send([{"id": id_, "n": n, "ts": f"2026-03-01T10:{minute:02}:00Z"}])
            app.drain()
        letters = app.query("SELECT code, raw FROM dead_letters ORDER BY code").rows()
    found = [(letter["code"], json.loads(letter["raw"])["id"]) for letter in letters]
    assert found == [("MP701", 3), ("MP706", 4)]
