"""The engine of a statement: chosen by rules, shown by explain with the reason."""

from __future__ import annotations

import pytest
from tests.plan.planning import plan_of

from millpond.contracts.evaluator import Engine, Limits
from millpond.plan.explain import explain_text
from millpond.plan.explain_json import explain_json
from millpond.plan.model import Access, AccessKind, Plan
from millpond.plan.routing import Facts, fetched_for_spark, limits_of, route, ways_on_driver
from millpond.plan.statement_routes import UNDECIDED, query_route, step_route

STREAM = "CREATE STREAM s (id INT, at TIMESTAMP, v DOUBLE, WATERMARK FOR at AS at) FROM 'memory://s';\n"
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, n INT);\n"


def planned(text: str) -> Plan:
    plan = plan_of(STREAM + TABLE + text)
    assert not plan.errors, plan.errors
    return plan


@pytest.mark.parametrize(
    ("facts", "engine", "words"),
    [
        (Facts(), Engine.ARROW, "all of it"),
        (Facts(rows=200_000), Engine.ARROW, "at most 200,000 rows"),
        (Facts(rows=200_001), Engine.SPARK, "more than 200,000 rows"),
        (Facts(rows=11, limits=Limits(10)), Engine.SPARK, "more than 10 rows"),
        (Facts(in_spark=True), Engine.SPARK, "more than 200,000 rows"),
        (Facts("java_thing()", rows=1), Engine.SPARK, "does not support java_thing()"),
    ],
)
def test_the_first_rule_that_applies_decides(facts: Facts, engine: Engine, words: str) -> None:
    found = route(facts)
    assert found.engine is engine
    assert words in found.reason


def test_the_environment_can_ask_for_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLPOND_ENGINE", "spark")
    assert route(Facts(rows=1)).engine is Engine.SPARK


@pytest.mark.parametrize(
    ("statement", "engine"),
    [
        ("INSERT INTO t SELECT id, 1 FROM s;", Engine.ARROW),
        ("CREATE TABLE g AS SELECT id, COUNT(*) AS n, SUM(v) AS v FROM s GROUP BY id;", Engine.ARROW),
        (
            "CREATE TABLE w AS SELECT window_start, COUNT(*) AS n FROM s GROUP BY TUMBLING(at, INTERVAL 1 HOUR);",
            Engine.ARROW,
        ),
        ("INSERT INTO t SELECT s.id, t.n FROM s LEFT JOIN t ON t.id = s.id;", Engine.ARROW),
        ("INSERT INTO 'file:out' SELECT id, LAG(v) OVER (PARTITION BY id) + 1 AS w FROM s;", Engine.ARROW),
        ("INSERT INTO t SELECT id, xpath_int('<a>' || id || '</a>', 'a') FROM s;", Engine.SPARK),
    ],
)
def test_a_statement_is_arrows_unless_it_uses_what_only_spark_has(statement: str, engine: Engine) -> None:
    plan = planned(statement)
    flow = plan.flows[0]
    found = step_route(flow.steps[0], flow, plan)
    assert found.engine is engine, found.reason


def test_explain_shows_the_engine_and_the_reason() -> None:
    plan = planned("INSERT INTO t SELECT id, xpath_int('<a>' || id || '</a>', 'a') FROM s;")
    assert "engine spark: Arrow does not support" in explain_text(plan)
    assert explain_json(plan)["flows"][0]["statements"][0]["engine"] == "spark"
    plan = planned("CREATE TABLE v AS SELECT n, COUNT(*) AS c FROM t GROUP BY n;")
    assert "engine arrow: Arrow supports all of it" in explain_text(plan)
    assert {t["name"]: t.get("engine") for t in explain_json(plan)["tables"]}["v"] == "arrow"


def test_explain_shows_what_passes_through_the_driver_of_a_cluster() -> None:
    cluster = "SET master = 'spark://host:7077'; SET storage = '/shared';"
    table = "CREATE TABLE d (id BIGINT PRIMARY KEY, n INT) WITH ('backend' = 'delta');"
    query = "SELECT /*+ SNAPSHOT(d) */ s.id, d.n FROM s LEFT JOIN d ON d.id = s.id"
    text = explain_text(planned(f"{cluster} {table} INSERT INTO t {query}; INSERT INTO 'file:out' {query};"))
    assert text.count("runs on the driver; a batch of more than 200,000 rows on the executors") == 2
    assert text.count("the executors read the files of d") == 2
    assert text.count("the changes of t are collected on the driver") == 1
    assert "executors" not in explain_text(planned(f"{table} INSERT INTO t {query};"))


def test_the_setting_is_the_limit() -> None:
    plan = planned("SET driver.max.rows = 1000; INSERT INTO t SELECT id, 1 FROM s;")
    assert limits_of(plan.settings).driver_rows == 1000
    assert "more than 1,000 rows" in explain_text(plan)
    assert limits_of(plan.settings).table_rows == 5000


def test_a_query_over_tables_has_an_engine_too() -> None:
    plan = planned("CREATE TABLE v AS SELECT * FROM t WHERE n > 1;")
    view = plan.table("v")
    assert view is not None
    assert view.query is not None
    assert query_route(view.query, plan).engine is Engine.ARROW


def test_an_unknown_type_leaves_it_undecided() -> None:
    plan = plan_of(
        "CREATE STREAM s FROM 'memory://nothing-yet'; CREATE TABLE t (id INT); INSERT INTO t SELECT id FROM s;"
    )
    flow = plan.flows[0]
    assert step_route(flow.steps[0], flow, plan) == UNDECIDED


def test_lookups_are_decided_by_size_unless_a_hint_does() -> None:
    plain = Access("t", AccessKind.LOOKUP, "")
    whole, by_key = (Access("t", how, "", hinted=True) for how in (AccessKind.SNAPSHOT, AccessKind.LOOKUP))
    assert not fetched_for_spark(plain, 5_000, 10, batch_on_driver=True)
    assert fetched_for_spark(plain, 5_001, 10, batch_on_driver=True)
    assert not fetched_for_spark(plain, 4_000, 1_000, batch_on_driver=False)
    assert fetched_for_spark(plain, 4_001, 1_000, batch_on_driver=False)
    assert fetched_for_spark(by_key, 1, 10, batch_on_driver=True)
    assert not fetched_for_spark(whole, 10**9, 10, batch_on_driver=True)
    assert not fetched_for_spark(None, 10**9, 10, batch_on_driver=True)
    assert ways_on_driver(whole, ("id",), (("n",),)) == ()
    assert ways_on_driver(plain, ("id",), (("n",),)) == (("id",), ("n",))
    assert ways_on_driver(None, (), (("n",),)) == (("n",),)
