"""The plan told to people and programs, without secrets."""

import json

from tests.plan.planning import HEAD, plan_of

from millpond.plan.explain import explain_text
from millpond.plan.explain_json import explain_json

TEXT = f"""{HEAD}
CREATE TABLE v AS SELECT u.tier, SUM(t.n) AS n FROM totals t JOIN users u ON u.user_id = t.user_id GROUP BY u.tier;
INSERT INTO 'file://./out' SELECT t.symbol, u.tier FROM trades t JOIN users u ON u.user_id = t.user_id;
SELECT * FROM v;
"""


def test_people_are_told_what_is_read_kept_driven_and_written() -> None:
    text = explain_text(plan_of(TEXT))
    for line in (
        "  totals  key (user_id), memory; kept up to date by the flow trades",
        "  v  key (tier), memory; a view, refreshed for the groups (tier) that are touched when totals or users change",
        "    1. aggregate into totals  (line 5)",
        "    2. write to file://./out  (line 8)",
        "       reads users as a lookup: user_id is its key: only rows of the batch's keys are read "
        "(all of them while it is small)",
        "  file://./out  file, exactly once",
    ):
        assert line in text.splitlines()


def test_programs_are_told_the_same() -> None:
    told = json.loads(json.dumps(explain_json(plan_of(TEXT))))
    assert [t["name"] for t in told["tables"]] == ["dead_letters", "users", "notes", "totals", "v"]
    assert [s["kind"] for s in told["flows"][0]["statements"]] == ["aggregate", "sink"]
    assert told["flows"][0]["statements"][1]["reads"][0]["table"] == "users"


def test_no_secret_is_told() -> None:
    secret = "hunter2hunter2"
    plan = plan_of(
        f"SET connection.crm = 'postgresql://u:{secret}@h/db';"
        f"CREATE TABLE t AS SELECT * FROM postgresql://u:{secret}@h/db/t;"
        f"INSERT INTO kafka://out WITH ('kafka.sasl.password' = '{secret}') SELECT * FROM t; SELECT nope FROM users;"
    )
    told = explain_text(plan) + json.dumps(explain_json(plan)) + repr(plan) + "".join(str(p) for p in plan.problems)
    assert secret not in told


def test_a_key_is_known_before_the_columns_are() -> None:
    kept = "CREATE TABLE users PRIMARY KEY (user_id) AS SELECT * FROM kafka://users;"
    joined = "SELECT o.*, u.* FROM orders o JOIN users u ON u.user_id = o.user_id;"
    plan = plan_of(f"CREATE STREAM orders FROM kafka://orders; {kept} {joined}")
    assert "user_id is its key: only rows of the batch's keys are read" in explain_text(plan)
