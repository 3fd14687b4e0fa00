"""Queries answered by Arrow give exactly Spark's rows and types; the rest is refused, not guessed."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.expressions.judge import nullable
from tests.relational.evaluation import answered
from tests.relational.random_queries import QueryDrawer
from tests.seeds import FRESH, replayed_by

import millpond as mp
from millpond.app.planning import plan_text
from millpond.contracts.evaluator import TableInput
from millpond.engine.spark.evaluate import spark_text, tables_of
from millpond.engine.spark.transfer import arrow_frame
from millpond.plan.routing import ways_on_driver
from millpond.relational.compiled import QueryCache

DECLARED = """
CREATE TABLE e (id INT, k INT, g STRING, n BIGINT, p DECIMAL(8,2), d DATE, f DOUBLE, ts TIMESTAMP, a ARRAY<INT>,
                st STRUCT<x: INT, y: STRING>, mp MAP<STRING, INT>);
CREATE TABLE t (k INT PRIMARY KEY, name STRING, score BIGINT, price DECIMAL(8,2));
CREATE TABLE m (g STRING, v BIGINT, w INT, INDEX (g));
CREATE TABLE nothing (g STRING, v BIGINT);
"""
# Random queries of each draw, and how many of them Arrow must answer.
DRAWN = 2_000 if os.environ.get("MILLPOND_SOAK") else 40
ANSWERED_SHARE_MIN = 0.85
QUERIES = tuple((Path(__file__).with_name("queries.sql")).read_text().splitlines()[1:])
# An order of the rows themselves, not one of a window, a subquery or an aggregate.
AT_END = re.compile(r"ORDER BY [^()]*$")
# Spark's work: refused here.
REFUSED = (
    "SELECT g, kurtosis(n) AS s FROM e GROUP BY g",
    "SELECT id, collect_list(n) OVER (PARTITION BY g ORDER BY id) AS r FROM e",
    "SELECT mp FROM e UNION SELECT mp FROM e",
    "SELECT DISTINCT g FROM e ORDER BY n",
    "SELECT id, (SELECT v FROM m WHERE m.g = e.g) AS several FROM e",
    "SELECT id, 1 / (n - n) AS x FROM e",
)


def fill(app: Any, chance: random.Random) -> None:
    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.15 else value

    def money() -> Any:
        return maybe(Decimal(chance.randrange(1000)) / 100)

    letters = ["a", "b", "ab", "A", ""]
    nested = "DOUBLE'0.5', TIMESTAMP'2026-01-01 00:00:00', array(1, NULL), named_struct('x', 1, 'y', 'b'), map('a', 1)"
    app.execute(f"INSERT INTO e VALUES (1, 1, 'a', 1, 1.00, DATE'2026-01-01', {nested})")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {"id": i, "k": maybe(chance.randrange(12)), "g": maybe(chance.choice(letters)), "n": maybe(chance.randrange(9)),
         "p": money(), "d": maybe((start + timedelta(days=chance.randrange(5))).date()),
         "f": maybe(chance.choice((0.5, -1.25, float("nan"), 0.0, 3.0, float("inf")))),
         "ts": maybe(start + timedelta(seconds=chance.randrange(90))),
         "a": maybe([maybe(chance.randrange(4)) for _ in range(chance.randrange(4))]),
         "st": maybe({"x": maybe(chance.randrange(3)), "y": maybe(chance.choice(letters))}),
         "mp": maybe({key: maybe(chance.randrange(3)) for key in chance.sample("abc", chance.randrange(3))})}
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
    return {
        name: TableInput(table, ways_on_driver(None, table.schema.key, table.spec.indexes))
        for name, table in tables.items()
    }


def by_spark(query: Any, app: Any, spark: Any) -> pa.Table:
    views = {}
    for name in tables_of(query):
        views[name] = f"judge_{name}"
        arrow_frame(spark, app.table(name).to_arrow()).createOrReplaceTempView(views[name])
    return spark.sql(spark_text(query, views)).toArrow()


def counted(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True)))


@pytest.fixture
def app() -> Any:
    with mp.App(sql=DECLARED) as made:
        yield made


@pytest.mark.spark
@pytest.mark.parametrize("seed", [0, 1, FRESH], ids=["0", "1", "fresh"])
def test_arrow_gives_the_rows_and_types_of_spark(spark: Any, app: Any, seed: int) -> None:
    fill(app, random.Random(seed))
    cache = QueryCache()
    for text in QUERIES:
        query = bound(text)
        wanted = by_spark(query, app, spark)
        for whole in (False, True, False):
            found = answered(query, relations(app, whole=whole), cache)
            assert found is not None, text
            assert found.schema.types == list(map(nullable, wanted.schema.types)), text
            assert counted(found) == counted(wanted), text
            if AT_END.search(text):
                assert repr(found.to_pylist()) == repr(wanted.to_pylist()), text


@pytest.fixture
def interpreted(spark: Any) -> Iterator[Any]:
    """Spark without code generation, which takes longer than a query over forty rows."""
    names = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: spark.conf.get(name, None) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def difference(query: Any, app: Any, spark: Any) -> str | None:
    """What Arrow and Spark give different for a query; empty where they agree, None where Arrow refuses."""
    found = answered(query, relations(app, whole=False))
    if found is None:
        return None
    try:
        wanted = by_spark(query, app, spark)
    except Exception as error:
        return f"{found.num_rows} rows, and Spark fails: {str(error).splitlines()[0]}"
    if found.schema.types != list(map(nullable, wanted.schema.types)):
        return f"{found.schema.types} and {wanted.schema.types}"
    extra, missing = counted(found) - counted(wanted), counted(wanted) - counted(found)
    return f"too many: {dict(extra)}, missing: {dict(missing)}" if extra or missing else ""


@pytest.mark.spark
@pytest.mark.parametrize("draw", ["fixed", "fresh"])
def test_arrow_gives_the_rows_and_types_of_spark_for_random_queries(interpreted: Any, app: Any, draw: str) -> None:
    seed = FRESH if draw == "fresh" else 1
    fill(app, random.Random(seed))
    drawer = QueryDrawer(seed)
    texts = [drawer.query() for _ in range(DRAWN)]
    found = {text: difference(bound(text), app, interpreted) for text in texts}
    assert {text: differs for text, differs in found.items() if differs} == {}, replayed_by()
    answered_share = sum(differs is not None for differs in found.values()) / len(found)
    assert answered_share >= ANSWERED_SHARE_MIN, answered_share


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_sparks_is_refused(app: Any, text: str) -> None:
    fill(app, random.Random(1))
    assert answered(bound(text), relations(app, whole=False)) is None


def test_rows_keep_the_order_of_the_first_relation(app: Any) -> None:
    fill(app, random.Random(2))
    query = bound("SELECT e.id, m.v FROM e LEFT JOIN m ON m.g = e.g JOIN t ON t.k = e.k")
    found = answered(query, {**relations(app, whole=False), "e": app.table("e").to_arrow()})
    assert found is not None
    assert found["id"].to_pylist() == sorted(found["id"].to_pylist())
