"""What is kept for each aggregate over a stream, as the plan says it."""

import pytest

from millpond.app.planning import plan_text
from millpond.plan.aggregate_model import AggregatePlan
from millpond.plan.explain import explain_text

STREAM = "CREATE STREAM s (k STRING, n INT, ts TIMESTAMP) FROM 'file://./never.jsonl';"


def aggregate(select: str, window: str = "") -> AggregatePlan:
    by = f"k, {window}" if window else "k"
    start = "window_start, " if window else ""
    plan = plan_text(f"{STREAM} CREATE TABLE t AS SELECT k, {start}{select} AS v FROM s GROUP BY {by};")
    assert not plan.errors, "\n".join(map(str, plan.errors))
    found = plan.flows[0].steps[0].aggregate
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("call", "kept"),
    [
        ("SUM(n)", "a running value"),
        ("STDDEV(n) FILTER (WHERE k = 'a')", "a running value"),
        ("FIRST(n)", "a running value"),
        ("COUNT(DISTINCT n)", "the distinct values, and their number"),
        ("COLLECT_SET(n)", "the distinct values"),
        ("MAX_BY(k, n)", "a running value"),
        ("MIN_BY(k, ts)", "a running value"),
        ("LAST(k)", "a running value"),
        ("MEDIAN(n)", "its values"),
        ("LISTAGG(k, ',')", "its values"),
    ],
)
def test_each_aggregate_says_what_it_keeps(call: str, kept: str) -> None:
    assert [kept_text for _, kept_text in aggregate(call).texts()] == [kept]


@pytest.mark.parametrize("call", ["FIRST(n)", "COUNT(DISTINCT n)"])
def test_sessions_keep_values_because_they_come_together(call: str) -> None:
    plan = aggregate(call, "SESSION(ts, INTERVAL 1 MINUTE)")
    assert plan.kept is not None
    assert not plan.distincts


def test_equal_aggregates_and_arguments_are_kept_once() -> None:
    plan = aggregate("SUM(n) + AVG(n) + SUM(n) / COUNT(n)")
    assert [a.partial for a in plan.accumulators] == ["sum(`x0`)", "count(`x0`)"]


def test_values_are_a_set_only_where_all_that_is_kept_is() -> None:
    assert aggregate("SIZE(COLLECT_SET(n)) + SUM(DISTINCT n)").kept.is_set  # type: ignore[union-attr]
    assert not aggregate("SIZE(COLLECT_SET(n)) + MEDIAN(n)").kept.is_set  # type: ignore[union-attr]


def test_explain_names_the_window_and_what_is_kept() -> None:
    query = "SELECT k, window_start, COUNT(*) AS c FROM s GROUP BY k, TUMBLING(ts, INTERVAL 1 MINUTE)"
    text = explain_text(plan_text(f"{STREAM} CREATE TABLE t AS {query};"))
    assert "merged by TUMBLING window over ts and 1 group column; stored in t__groups" in text
    assert "stores a running value for COUNT(*)" in text


@pytest.mark.parametrize(
    ("stream", "newest"),
    [(STREAM, "the last commit with an event"), (STREAM.replace(")", ", WATERMARK FOR ts AS ts)", 1), "its newest ts")],
    ids=["by the clock", "by event time"],
)
def test_explain_names_how_long_a_group_is_kept(stream: str, newest: str) -> None:
    query = "SELECT k, COUNT(*) AS c FROM s GROUP BY k WITH ('state.ttl' = '1h')"
    text = explain_text(plan_text(f"{stream} INSERT INTO 'file://./out' {query};"))
    assert f"a group is dropped 3600 s after {newest}" in text


def test_groups_of_joined_streams_expire_by_the_watermark_of_the_join() -> None:
    streams = "".join(
        f"CREATE STREAM {name} (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts) FROM 'file://./{name}.jsonl';"
        for name in ("a", "b")
    )
    join = "a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 MINUTE"
    query = f"SELECT a.k, COUNT(*) AS c FROM {join} GROUP BY a.k"
    plan = plan_text(f"{streams} CREATE TABLE t AS {query} WITH ('state.ttl' = '1h');")
    assert not plan.errors, "\n".join(map(str, plan.errors))
    (flow,) = [flow for flow in plan.flows if flow.steps and flow.steps[0].aggregate is not None]
    assert flow.steps[0].aggregate is not None
    assert flow.steps[0].aggregate.time is not None
    assert flow.watermark is not None
