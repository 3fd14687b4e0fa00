"""Correlated subqueries with more than equalities: the same rows on Arrow and Spark, and no nested loop there."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from tests.relational.evaluation import answered

from millpond.app.planning import plan_text
from millpond.engine.spark.evaluate import spark_text
from millpond.engine.spark.transfer import arrow_frame
from millpond.sql.conditions import rewrite_correlated
from millpond.sql.spark import render

DECLARED = "CREATE TABLE t (id INT, card STRING, at INT); CREATE TABLE p (card STRING, at INT, v INT);"
TIED = "COALESCE(`p`.`card`, `p`.`card`)"
RANGE = "p.card = t.card AND p.at BETWEEN t.at - 5 AND t.at"

# Aggregates and more over the rows found: Spark's own plan of them is a nested loop.
BY_GROUP = (
    f"SELECT t.id, (SELECT COUNT(*) FROM p WHERE {RANGE}) AS n FROM t",
    f"SELECT t.id, (SELECT SUM(p.v) FROM p WHERE {RANGE}) AS n FROM t",
    f"SELECT t.id, (SELECT MAX(p.v) - MIN(p.v) FROM p WHERE {RANGE} AND p.v <> t.id) AS n FROM t",
    f"SELECT t.id FROM t WHERE (SELECT COUNT(*) FROM p WHERE {RANGE}) > 1",
    "SELECT t.id, (SELECT COUNT(p.v) FROM p WHERE t.card = p.card AND p.at < t.at) AS n FROM t WHERE t.at > 3",
    "SELECT t.id, (SELECT p.v FROM p WHERE p.card = t.card AND p.at < t.at ORDER BY p.at DESC, p.v LIMIT 1) AS n "
    "FROM t",
)
ONLY_SPARK = (
    "SELECT t.id FROM t WHERE EXISTS "
    "(SELECT p.card FROM p WHERE p.card = t.card AND p.at < t.at GROUP BY p.card HAVING COUNT(*) > 2)",
)
# One row decides: Spark joins these by their equalities itself.
BY_ROW = (
    f"SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM p WHERE {RANGE})",
    f"SELECT t.id FROM t WHERE NOT EXISTS (SELECT 1 FROM p WHERE {RANGE})",
    f"SELECT t.id, EXISTS (SELECT 1 FROM p WHERE {RANGE}) AS e FROM t",
    f"SELECT t.id FROM t WHERE t.id IN (SELECT p.v FROM p WHERE {RANGE})",
    f"SELECT t.id FROM t WHERE t.id NOT IN (SELECT p.v FROM p WHERE {RANGE})",
    f"SELECT t.id, t.id IN (SELECT p.v FROM p WHERE {RANGE}) AS e FROM t",
    f"SELECT t.id FROM t WHERE t.id > ANY (SELECT p.v FROM p WHERE {RANGE})",
    f"SELECT t.id FROM t WHERE t.id > ALL (SELECT p.v FROM p WHERE {RANGE})",
)
ALONE = (
    "SELECT t.id, (SELECT COUNT(*) FROM p WHERE p.card = t.card) AS n FROM t",
    "SELECT t.id, (SELECT COUNT(*) FROM p WHERE p.at < t.at) AS n FROM t",
    "SELECT t.card, COUNT(*) AS n FROM t, p WHERE p.card = t.card AND p.at < t.at GROUP BY t.card",
    f"SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM p WHERE {RANGE})",
)


def bound(text: str) -> Any:
    plan = plan_text(f"{DECLARED}{text};")
    assert plan.errors == ()
    return plan.one_shots[0].query


def drawn(chance: random.Random) -> dict[str, pa.Table]:
    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.15 else value

    def rows(count: int, last: str) -> pa.Table:
        found = {
            "card": pa.array([maybe(chance.choice("abc")) for _ in range(count)], pa.string()),
            "at": pa.array([maybe(chance.randrange(20)) for _ in range(count)], pa.int32()),
        }
        return pa.table({last: pa.array([maybe(chance.randrange(8)) for _ in range(count)], pa.int32()), **found})

    return {"t": rows(40, "id"), "p": rows(60, "v")}


def counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def by_spark(spark: Any, text: str, tables: dict[str, pa.Table]) -> tuple[pa.Table, str]:
    for name, rows in tables.items():
        arrow_frame(spark, rows).createOrReplaceTempView(f"correlated_{name}")
    frame = spark.sql(text)
    return frame.toArrow(), frame._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize("text", [*BY_GROUP, *ONLY_SPARK])
def test_the_equality_of_a_tied_group_is_no_plain_column(text: str) -> None:
    assert TIED in render(rewrite_correlated(bound(text)))


@pytest.mark.parametrize("text", ALONE)
def test_what_spark_joins_well_is_left_as_it_is(text: str) -> None:
    query = bound(text)
    assert rewrite_correlated(query) == query


@pytest.mark.spark
@pytest.mark.parametrize("text", [*BY_GROUP, *ONLY_SPARK, *BY_ROW])
def test_arrow_and_spark_before_and_after_agree_and_nothing_is_a_nested_loop(spark: Any, text: str) -> None:
    tables = drawn(random.Random(text))
    query = bound(text)
    views = {"t": "correlated_t", "p": "correlated_p"}
    after = spark_text(query, views)
    found, plan = by_spark(spark, after, tables)
    assert "NestedLoop" not in plan
    assert "Cartesian" not in plan
    before, _ = by_spark(spark, after.replace(TIED, "`p`.`card`"), tables)
    assert counted(found) == counted(before)
    answer = answered(query, dict(tables))
    assert (answer is None) == (text in ONLY_SPARK)
    if answer is not None:
        assert counted(answer) == counted(found)
