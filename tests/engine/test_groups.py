"""Every aggregate over a stream is what one aggregate over all its rows would be, however they came."""

import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.stepping import Stepper
from tests.seeds import FRESH

from millpond.contracts.source import ORDER_MINOR
from millpond.engine.partials import in_fixed_order
from millpond.engine.spark.transfer import arrow_frame

STREAM = """
CREATE STREAM s (k STRING, n INT, d DECIMAL(10,2), f DOUBLE, g DOUBLE, b BOOLEAN, w STRING)
  FROM 'file://./never.jsonl';
"""
# Aggregates as Spark has them; those that depend on stream order use the number `i` of the row, see `in_order`.
AGGREGATES = (
    "COUNT(*)",
    "COUNT(n)",
    "COUNT(n, w)",
    "COUNT(DISTINCT w)",
    "COUNT(DISTINCT n, w)",
    "COUNT(DISTINCT n) FILTER (WHERE b)",
    "SUM(n)",
    "SUM(d) FILTER (WHERE b)",
    "SUM(DISTINCT n)",
    "AVG(d)",
    "AVG(f)",
    "AVG(DISTINCT n)",
    "MEAN(n)",
    "MIN(d)",
    "MAX(w)",
    "MIN(f)",
    "COUNT_IF(n > 3)",
    "BOOL_AND(b)",
    "EVERY(b)",
    "BOOL_OR(b)",
    "SOME(b)",
    "BIT_AND(n)",
    "BIT_OR(n)",
    "BIT_XOR(n)",
    "STDDEV(f)",
    "STD(n)",
    "STDDEV_POP(d)",
    "STDDEV_SAMP(f) FILTER (WHERE b)",
    "VARIANCE(n)",
    "VAR_POP(f)",
    "VAR_SAMP(f)",
    "COVAR_POP(f, g)",
    "COVAR_SAMP(f, g)",
    "CORR(f, g)",
    "REGR_SLOPE(f, g)",
    "REGR_INTERCEPT(f, g)",
    "REGR_R2(f, g)",
    "REGR_COUNT(f, g)",
    "REGR_AVGX(f, g)",
    "REGR_AVGY(f, g)",
    "REGR_SXX(f, g)",
    "REGR_SXY(f, g)",
    "REGR_SYY(f, g)",
    "MEDIAN(f)",
    "PERCENTILE(n, 0.25)",
    "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY d)",
    "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY n DESC)",
    "PERCENTILE_APPROX(n, 0.5)",
    "SKEWNESS(f)",
    "KURTOSIS(f)",
    "MAX_BY(w, f)",
    "SORT_ARRAY(COLLECT_SET(n))",
    "SIZE(COLLECT_LIST(n))",
    "APPROX_COUNT_DISTINCT(n)",
    "SUM(n * d) / COUNT(*)",
    "MAX(n) - MIN(n) + COUNT(DISTINCT w)",
)
# Spark 4.2 fails on these beside DISTINCT aggregates.
SORTED = ("LISTAGG(DISTINCT w, ',') WITHIN GROUP (ORDER BY w)", "LISTAGG(w) WITHIN GROUP (ORDER BY w DESC)")


def chosen(which: Any, rows: list[dict[str, Any]], by: str) -> Any:
    """MIN_BY and MAX_BY of the column w: of equal ones the first of the rows given."""
    found = which((r for r in rows if r[by] is not None), key=lambda r: r[by], default=None)
    return found["w"] if found else None


BY_ORDER = {
    "FIRST(n)": lambda rows: rows[0]["n"] if rows else None,
    "LAST(n)": lambda rows: rows[-1]["n"] if rows else None,
    "ANY_VALUE(w)": lambda rows: rows[0]["w"] if rows else None,
    "FIRST(n) IGNORE NULLS": lambda rows: next((r["n"] for r in rows if r["n"] is not None), None),
    "LAST_VALUE(n, true)": lambda rows: next((r["n"] for r in reversed(rows) if r["n"] is not None), None),
    "FIRST(w) FILTER (WHERE b)": lambda rows: next((r["w"] for r in rows if r["b"]), None),
    "MAX_BY(w, n)": lambda rows: chosen(max, rows[::-1], "n"),
    "MIN_BY(w, n)": lambda rows: chosen(min, rows, "n"),
    "MAX_BY(w, w)": lambda rows: chosen(max, rows[::-1], "w"),
    "MIN_BY(w, n) FILTER (WHERE b)": lambda rows: chosen(min, [r for r in rows if r["b"]], "n"),
    "COLLECT_LIST(n)": lambda rows: [r["n"] for r in rows if r["n"] is not None],
    "ARRAY_AGG(w) FILTER (WHERE b)": lambda rows: [r["w"] for r in rows if r["b"] and r["w"] is not None],
    "LISTAGG(w, '-')": lambda rows: "-".join(r["w"] for r in rows if r["w"] is not None) or None,
}


def drawn(random_: random.Random, count: int) -> list[dict[str, Any]]:
    def maybe(value: Any) -> Any:
        return None if random_.random() < 0.2 else value

    return [
        {
            "k": maybe(random_.choice("abc")),
            "n": maybe(random_.randint(-3, 9)),
            "d": maybe(Decimal(random_.randint(-999, 999)).scaleb(-2)),
            "f": maybe(random_.uniform(-5, 1e6)),
            "g": maybe(random_.gauss(3, 2)),
            "b": maybe(random_.random() < 0.5),
            "w": maybe(random_.choice(["x", "yy", "z"])),
        }
        for _ in range(count)
    ]


def in_batches(random_: random.Random, rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    cuts = sorted(random_.sample(range(len(rows) + 1), 3))
    return [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def same(got: Any, wanted: Any) -> bool:
    if isinstance(got, float) and isinstance(wanted, float):
        return math.isclose(got, wanted, rel_tol=1e-9, abs_tol=1e-6) or (math.isnan(got) and math.isnan(wanted))
    return bool(got == wanted)


def select(calls: list[str]) -> str:
    return ", ".join(f"{call} AS c{n}" for n, call in enumerate(calls))


def once(spark: Any, stepper: Stepper, rows: list[dict[str, Any]], calls: list[str], by: str) -> list[dict[str, Any]]:
    """The same aggregates by one Spark query over all rows."""
    schema = stepper.flow.source.columns
    assert schema is not None
    table = pa.Table.from_pylist(rows, schema=schema.arrow())
    arrow_frame(spark, table).createOrReplaceTempView("all_rows")
    text = f"SELECT {by}{select(calls)} FROM all_rows" + (" GROUP BY k" if by else "")
    return list(spark.sql(text).toArrow().to_pylist())


@pytest.mark.spark
@pytest.mark.parametrize("seed", [1, FRESH], ids=["fixed", "fresh"])
def test_aggregates_of_random_batches_equal_one_aggregate_over_all_rows(seed: int, spark: Any, tmp_path: Path) -> None:
    random_ = random.Random(seed)
    rows = drawn(random_, 60)
    calls = [*AGGREGATES, *BY_ORDER]
    sql = f"""{STREAM} CREATE TABLE t AS SELECT k, {select(calls)} FROM s GROUP BY k;
    CREATE TABLE texts AS SELECT k, {select(list(SORTED))} FROM s GROUP BY k;"""
    stepper = Stepper(sql, tmp_path, spark)
    for number, batch in enumerate(in_batches(random_, rows)):
        stepper.feed(batch)
        if number == 1:
            stepper.restart()
    got = {row["k"]: row for row in stepper.rows("t")}
    wanted = {row["k"]: row for row in once(spark, stepper, rows, list(AGGREGATES), "k, ")}
    assert got.keys() == wanted.keys()
    wrong = []
    for key, row in wanted.items():
        mine = [r for r in rows if r["k"] == key]
        for n, (call, by_order) in enumerate(BY_ORDER.items(), len(AGGREGATES)):
            row[f"c{n}"] = by_order(mine)  # type: ignore[no-untyped-call]
            assert call == calls[n]
        wrong += [
            (key, calls[n], got[key][f"c{n}"], row[f"c{n}"])
            for n in range(len(calls))
            if not same(got[key][f"c{n}"], row[f"c{n}"])
        ]
    texts = sorted(stepper.rows("texts"), key=str), sorted(once(spark, stepper, rows, list(SORTED), "k, "), key=str)
    stepper.close()
    assert wrong == []
    assert texts[0] == texts[1]


@pytest.mark.spark
def test_aggregates_without_groups_are_those_of_no_rows_until_some_come(spark: Any, tmp_path: Path) -> None:
    calls = ["COUNT(*)", "SUM(n)", "STDDEV(f)", "COUNT(DISTINCT w)", "COLLECT_LIST(n)", "MEDIAN(f)", "FIRST(n)"]
    stepper = Stepper(f"{STREAM} CREATE TABLE t AS SELECT {select(calls)} FROM s;", tmp_path, spark)
    assert list(stepper.rows("t")[0].values()) == [0, None, None, 0, [], None, None]
    stepper.feed([{"n": 4, "f": 2.0, "w": "a"}, {"n": 5, "f": 4.0, "w": "a"}])
    row = list(stepper.rows("t")[0].values())
    stepper.close()
    assert row == [2, 9, pytest.approx(math.sqrt(2)), 1, [4, 5], 3.0, 4]


@pytest.mark.spark
def test_a_sink_gets_each_group_that_a_batch_touched_once(spark: Any, tmp_path: Path) -> None:
    sql = f"""{STREAM}
    INSERT INTO 'file://./groups' SELECT k, SUM(n) AS total, COUNT(DISTINCT w) AS words FROM s GROUP BY k;
    INSERT INTO 'file://./large' SELECT k, SUM(n) AS total FROM s GROUP BY k HAVING SUM(n) > 4;
    INSERT INTO 'file://./top' SELECT k, SUM(n) AS total FROM s GROUP BY k ORDER BY total DESC LIMIT 1;
    INSERT INTO 'file://./all' SELECT COUNT(*) AS rows FROM s WHERE n > 2;
    INSERT INTO 'file://./words' SELECT DISTINCT w FROM s;
    CREATE TABLE words AS SELECT DISTINCT w, b FROM s;
    CREATE TABLE totals (k STRING PRIMARY KEY, total INT NOT NULL, note STRING DEFAULT 'none');
    INSERT INTO totals (k, total) SELECT k, SUM(n) FROM s GROUP BY k;
    CREATE TABLE names (k STRING PRIMARY KEY, name STRING);
    INSERT INTO 'file://./named' SELECT k, (SELECT name FROM names x WHERE x.k = s.k) AS name, COUNT(*) AS n
      FROM s GROUP BY k;"""
    stepper = Stepper(sql, tmp_path, spark)
    stepper.feed([{"k": "a", "n": 1, "w": "x"}, {"k": "b", "n": 5, "w": "x"}, {"k": "a", "n": 1, "w": "y"}])
    stepper.restart()
    stepper.feed([{"k": "a", "n": 9, "w": "y"}, {"k": None, "n": 2, "w": None}])
    stepper.feed([])
    found = {
        name: [tuple(r.values()) for r in stepper.sink(name)] for name in ("groups", "large", "top", "all", "words")
    }
    named = [tuple(r.values()) for r in stepper.sink("named")]
    tables = {name: sorted((tuple(r.values()) for r in stepper.rows(name)), key=str) for name in ("words", "totals")}
    letters = [r["code"] for r in stepper.rows("dead_letters")]
    stepper.close()
    assert sorted(found["groups"][:2]) == [("a", 2, 2), ("b", 5, 1)]
    assert sorted(found["groups"][2:], key=str) == [("a", 11, 2), (None, 2, 0)]
    assert found["large"] == [("b", 5), ("a", 11)]
    assert found["top"] == [("b", 5), ("a", 11)]
    assert found["all"] == [(1,), (2,)]
    assert sorted(found["words"], key=str) == [("x",), ("y",), (None,)]
    assert sorted(named, key=str) == [("a", None, 2), ("a", None, 3), ("b", None, 1), (None, None, 1)]
    assert tables["words"] == [("x", None), ("y", None), (None, None)]
    assert tables["totals"] == [("a", 11, "none"), ("b", 5, "none")]
    assert letters == ["MP403"]


@pytest.mark.spark
def test_rows_whose_stream_order_is_lost_are_marked_alike_whatever_their_partitions(spark: Any) -> None:
    rows = arrow_frame(spark, pa.table({"g": [n % 3 for n in range(20)], "v": [str(n) for n in range(20)]}))
    cuts = [in_fixed_order(rows.repartition(count)).toArrow().to_pylist() for count in (1, 4)]
    marks = [{row["v"]: row[ORDER_MINOR] for row in found} for found in cuts]
    assert marks[0] == marks[1]
    assert len(set(marks[0].values())) == 20
