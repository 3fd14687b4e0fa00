"""The graph of an app, the history of its flows, and the names for completion."""

from __future__ import annotations

import pytest
from tests.plan.planning import plan_of
from tests.serve.conftest import Start

from millpond.serve import chart_data
from millpond.serve.graph import graph_of

APP = """
CREATE STREAM trades (id INT, user_id STRING, price DECIMAL(12,2)) FROM 'file://./trades.jsonl';
CREATE TABLE users (user_id STRING PRIMARY KEY, tier STRING);
CREATE TABLE totals AS SELECT user_id, SUM(price) AS paid FROM trades GROUP BY user_id;
CREATE TABLE by_tier AS
  SELECT u.tier, SUM(t.paid) AS paid FROM totals t JOIN users u ON u.user_id = t.user_id GROUP BY u.tier;
INSERT INTO 'file://./out' SELECT t.*, u.tier FROM trades t JOIN users u ON u.user_id = t.user_id;
INSERT INTO 'file://./changes' SELECT * FROM CHANGES(by_tier);
"""


def test_the_graph_leads_from_sources_over_flows_and_tables_to_sinks() -> None:
    found = graph_of(plan_of(APP))
    names = {node["id"]: (node["kind"], node["name"]) for node in found["nodes"]}
    edges = {(names[e["source"]], names[e["target"]], e["kind"]) for e in found["edges"]}
    source, flow = ("source", "trades"), ("flow", "trades")
    users, totals, view = ("table", "users"), ("table", "totals"), ("view", "by_tier")
    out, changes = ("sink", "file://./out"), ("sink", "file://./changes")
    assert edges == {
        (source, flow, "read"),
        (flow, totals, "write"),
        (flow, out, "write"),
        (users, flow, "lookup"),
        (users, view, "follow"),
        (totals, view, "follow"),
        (view, changes, "write"),
    }


def test_statements_are_shown_without_secrets() -> None:
    text = "CREATE STREAM s (a INT) FROM 'kafka://h/t'; INSERT INTO 'kafka://u:hunter2@h/out' SELECT a FROM s;"
    found = graph_of(plan_of(text))
    assert "hunter2" not in str(found)
    assert "SELECT a FROM s" in found["statements"][0]["sql"]


def test_a_join_of_streams_is_fed_by_the_flows_of_its_sides() -> None:
    text = """
    CREATE STREAM a (k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS) FROM 'file://./a.jsonl';
    CREATE STREAM b (k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS) FROM 'file://./b.jsonl';
    INSERT INTO 'file://./out'
      SELECT a.k FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts;
    """
    found = graph_of(plan_of(text))
    known = {node["id"] for node in found["nodes"]}
    assert all(edge["source"] in known and edge["target"] in known for edge in found["edges"])
    assert any(edge["target"].startswith("sink:") for edge in found["edges"])


def test_the_history_of_a_flow_grows(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart_data, "INTERVAL_S", 0.01)
    monkeypatch.setattr(chart_data, "KEPT_S", 0.05)
    app, browser = start("CREATE STREAM s (n INT) FROM memory://s; CREATE TABLE t AS SELECT n FROM s;")
    app.feed("memory://s").send([{"n": 1}, {"n": 2}])
    app.drain()
    while True:
        found = browser.get("/api/history").json
        # A sample may have been taken before there was a flow.
        values = next(iter(found["flows"].values()), {"rows": [None]})
        if values["rows"][-1] == 2:
            break
    assert len(found["at"]) == len(values["rows"]) == len(values["batch_ms"]) == len(values["lag"]) <= 5
    assert found["at"] == sorted(found["at"])


def test_names_for_completion_come_from_the_app_and_the_declarations(start: Start) -> None:
    app, browser = start()
    app.execute("CREATE VIEW gold AS SELECT user_id FROM users WHERE tier = 'GOLD'")
    found = browser.get("/api/completions").json
    assert found["tables"]["users"] == ["user_id", "name", "tier", "paid"]
    assert "coalesce" in found["functions"]
    assert "java_method" not in found["functions"]
    assert found["options"]["on.error"] == ["stop", "dead-letter", "stop-app"]
    assert found["options"]["watch"] == ["true", "false"]
