"""The plan explained as text and as JSON, without secrets."""

import json

from tests.plan.planning import HEAD, plan_of

from millpond.plan.explain import explain_text
from millpond.plan.explain_json import explain_json

TEXT = f"""{HEAD}
CREATE TABLE v AS SELECT u.tier, SUM(t.n) AS n FROM totals t JOIN users u ON u.user_id = t.user_id GROUP BY u.tier;
INSERT INTO 'file://./out' SELECT t.symbol, u.tier FROM trades t JOIN users u ON u.user_id = t.user_id;
SELECT * FROM v;
"""


def test_text_shows_what_is_read_kept_driven_and_written() -> None:
    text = explain_text(plan_of(TEXT))
    for line in (
        "  totals  key (user_id), memory; kept up to date by the flow trades",
        "  v  key (tier), memory; a view, refreshed for the affected groups (tier) when totals or users change",
        "    1. aggregate into totals  (line 5)",
        "    2. write to file://./out  (line 8)",
        "       reads users as a lookup: user_id is its key: only rows of the batch's keys are read "
        "(a small table as a whole)",
        "  file://./out  file, exactly once",
    ):
        assert line in text.splitlines()


def test_json_shows_the_same() -> None:
    output = json.loads(json.dumps(explain_json(plan_of(TEXT))))
    assert [t["name"] for t in output["tables"]] == ["dead_letters", "users", "notes", "totals", "v"]
    assert [s["kind"] for s in output["flows"][0]["statements"]] == ["aggregate", "sink"]
    assert output["flows"][0]["statements"][1]["reads"][0]["table"] == "users"


def test_no_secret_is_shown() -> None:
    secret = "hunter2hunter2"
    plan = plan_of(
        f"SET connection.crm = 'postgresql://u:{secret}@h/db';"
        f"CREATE TABLE t AS SELECT * FROM postgresql://u:{secret}@h/db/t;"
        f"INSERT INTO kafka://out WITH ('kafka.sasl.password' = '{secret}') SELECT * FROM t; SELECT nope FROM users;"
    )
    output = explain_text(plan) + json.dumps(explain_json(plan)) + repr(plan) + "".join(str(p) for p in plan.problems)
    assert secret not in output


def test_a_key_is_known_before_the_columns_are() -> None:
    kept = "CREATE TABLE users PRIMARY KEY (user_id) AS SELECT * FROM kafka://users;"
    joined = "SELECT o.*, u.* FROM orders o JOIN users u ON u.user_id = o.user_id;"
    plan = plan_of(f"CREATE STREAM orders FROM kafka://orders; {kept} {joined}")
    assert "user_id is its key: only rows of the batch's keys are read" in explain_text(plan)


IN_FORCE = """
CREATE STREAM clicks (page STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 90 SECONDS)
  FROM 'file://./clicks.jsonl' WITH ('max.rows.per.batch' = '5000', 'on.bad.record' = 'skip', 'idle.timeout' = '30s');
CREATE TABLE per_minute AS SELECT page, window_start, SUM(n) AS n, MAX_BY(n, ts) AS last FROM clicks
  GROUP BY page, TUMBLING(ts, INTERVAL 1 MINUTE) WITH ('late.rows' = 'update', 'retention' = '2h');
CREATE TABLE counted AS SELECT page, window_start, COUNT(*) AS c FROM clicks
  GROUP BY page, TUMBLING(ts, INTERVAL 1 HOUR);
INSERT INTO 'file://./out' SELECT page, 1 / n AS x FROM clicks WITH ('on.error' = 'dead-letter');
CREATE TABLE ranked AS SELECT page, n, LAG(n) OVER (ORDER BY page) AS before, ROW_NUMBER() OVER (ORDER BY n) AS place
  FROM per_minute;
"""


def test_options_in_force_are_shown() -> None:
    plan = plan_of(IN_FORCE)
    assert [str(p) for p in plan.errors] == []
    lines = explain_text(plan).splitlines()
    for line in (
        "  clicks  file://./clicks.jsonl, watermark on ts, 90 s behind, by the clock after 30 s without events",
        "    up to 5,000 rows of clicks in a batch",
        "    on a bad record: it is skipped and counted",
        "    a window is kept for 7200 s after its end",
        "       a row that arrives after its window was closed: the window is updated",
        "       a row that arrives after its window was closed: stored as a dead letter",
        "       if an expression fails on a row: the row is stored as a dead letter",
    ):
        assert line in lines, line
    output = json.loads(json.dumps(explain_json(plan)))
    (flow,) = output["flows"]
    assert (flow["watermark_delay_us"], flow["options"]["on.bad.record"]) == (90_000_000, "skip")
    assert flow["statements"][0]["options"]["late.rows"] == "update"


def test_types_of_window_functions_and_running_values_are_known() -> None:
    lines = explain_text(plan_of(IN_FORCE)).splitlines()
    assert "    columns: page STRING, n BIGINT, before BIGINT, place INT" in lines
    assert "    columns: page STRING, window_start TIMESTAMP, n BIGINT, last INT" in lines


def test_statements_that_change_a_table_together_are_shown() -> None:
    feed = "INSERT INTO users (user_id, tier) SELECT user_id, symbol FROM trades WHERE ok;\n"
    by_key = "DELETE FROM users USING trades t WHERE users.user_id = t.user_id AND NOT t.ok;\n"
    by_tier = "DELETE FROM users USING trades t WHERE users.tier = t.symbol;\n"
    together = plan_of(HEAD + feed + by_key)
    assert "    users is changed by 2, 3 event by event: folded by key" in explain_text(together).splitlines()
    beside = explain_text(plan_of(HEAD + feed + by_key + by_tier)).splitlines()
    assert "    users is changed by 2, 3, 4 event by event: statements by key are folded" in beside
    assert "      4 in runs of events: no condition compares user_id of its key" in beside
    group = explain_json(together)["flows"][0]["groups"][0]
    assert (group["table"], group["by_key"]) == ("users", True)
    assert [statement["by_key"] for statement in group["statements"]] == [True, True]
    assert explain_json(plan_of(HEAD + feed))["flows"][0]["groups"] == []


def test_a_path_beside_window_functions_is_shown_over_its_column() -> None:
    select = "SELECT tags[*] AS t, LAG(price) OVER (PARTITION BY symbol) AS p FROM trades"
    text = explain_text(plan_of(f"{HEAD}CREATE TABLE z AS {select};"))
    assert "path tags[*]: COALESCE(FILTER(`trades`.`tags`, " in text
    assert "an event that is earlier" not in text
    assert "an event that is earlier" in explain_text(
        plan_of(f"{HEAD}{select.replace('symbol)', 'symbol ORDER BY ts)')};")
    )
