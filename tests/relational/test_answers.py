"""Queries answered by Arrow give exactly Spark's rows and types; the rest is refused, not guessed."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond as mp
from millpond.relational.answer import answered
from millpond.relational.memory import Memory
from millpond.relational.sources import Lookable
from millpond.runtime.planning import plan_text
from millpond.runtime.spark.access import arrow_frame
from millpond.runtime.spark.relations import spark_text, tables_of

DECLARED = """
CREATE TABLE e (id INT, k INT, g STRING, n BIGINT, p DECIMAL(8,2), d DATE);
CREATE TABLE t (k INT PRIMARY KEY, name STRING, score BIGINT, price DECIMAL(8,2));
CREATE TABLE m (g STRING, v BIGINT, w INT, INDEX (g));
CREATE TABLE nothing (g STRING, v BIGINT);
"""
QUERIES = tuple((Path(__file__).with_name("queries.sql")).read_text().splitlines()[1:])
# Spark's work: refused here.
REFUSED = (
    "SELECT e.id, t.k FROM e FULL JOIN t ON t.k = e.k",
    "SELECT id, ROW_NUMBER() OVER (ORDER BY id) AS r FROM e",
    "SELECT id FROM e UNION SELECT k FROM t",
    "SELECT g, stddev(n) AS s FROM e GROUP BY g",
    "SELECT g, k, COUNT(*) AS c FROM e GROUP BY ROLLUP (g, k)",
    "SELECT id, (SELECT v FROM m WHERE m.g = e.g) AS several FROM e",
    "SELECT id, 1 / (n - n) AS x FROM e",
)


def fill(app: Any, chance: random.Random) -> None:
    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.15 else value

    def money() -> Any:
        return maybe(Decimal(chance.randrange(1000)) / 100)

    letters = ["a", "b", "ab", "A", ""]
    app.execute("INSERT INTO e VALUES (1, 1, 'a', 1, 1.00, DATE'2026-01-01')")
    rows = [
        {"id": i, "k": maybe(chance.randrange(12)), "g": maybe(chance.choice(letters)), "n": maybe(chance.randrange(9)),
         "p": money()}
        for i in range(2, 40)
    ]  # fmt: skip
    app.table("e").insert(rows)
    app.table("t").insert(
        [
            {"k": k, "name": maybe(chance.choice(letters)), "score": maybe(k % 6), "price": money()}
            for k in range(0, 20, 2)
        ]
    )
    app.table("m").insert(
        [{"g": maybe(chance.choice(letters[:4])), "v": maybe(chance.randrange(9)), "w": k % 3} for k in range(30)]
    )


def bound(query: str) -> Any:
    plan = plan_text(f"{DECLARED}{query};")
    assert not plan.errors, plan.errors
    return plan.one_shots[0].query


def relations(app: Any, *, whole: bool) -> dict[str, Any]:
    tables = {name: app.table(name) for name in ("e", "t", "m", "nothing")}
    if whole:
        return {name: table.to_arrow() for name, table in tables.items()}
    return {name: Lookable(table, table.spec.indexes) for name, table in tables.items()}


def by_spark(query: Any, app: Any, spark: Any) -> pa.Table:
    views = {}
    for name in tables_of(query):
        views[name] = f"judge_{name}"
        arrow_frame(spark, app.table(name).to_arrow()).createOrReplaceTempView(views[name])
    return spark.sql(spark_text(query, views)).toArrow()


def counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.fixture
def app() -> Any:
    with mp.App(sql=DECLARED) as made:
        yield made


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(3))
def test_arrow_gives_the_rows_and_types_of_spark(spark: Any, app: Any, seed: int) -> None:
    fill(app, random.Random(seed))
    memory = Memory()
    for text in QUERIES:
        query = bound(text)
        wanted = by_spark(query, app, spark)
        for whole in (False, True, False):
            found = answered(query, relations(app, whole=whole), memory)
            assert found is not None, text
            assert found.schema.types == wanted.schema.types, text
            assert counted(found) == counted(wanted), text
            if "ORDER BY" in text:
                assert found.to_pylist() == wanted.to_pylist(), text


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_sparks_is_refused(app: Any, text: str) -> None:
    fill(app, random.Random(1))
    assert answered(bound(text), relations(app, whole=False), Memory()) is None


def test_rows_keep_the_order_of_the_first_relation(app: Any) -> None:
    fill(app, random.Random(2))
    query = bound("SELECT e.id, m.v FROM e LEFT JOIN m ON m.g = e.g JOIN t ON t.k = e.k")
    found = answered(query, {**relations(app, whole=False), "e": app.table("e").to_arrow()}, Memory())
    assert found is not None
    assert found["id"].to_pylist() == sorted(found["id"].to_pylist())
