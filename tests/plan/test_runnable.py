"""What is understood but cannot run yet is a note, and the plan says it apart for `run`."""

import pytest
from tests.plan.planning import HEAD, plan_of

from millpond.errors import Severity

RUNS = [
    "SELECT t.symbol, u.name FROM trades t LEFT JOIN users u ON u.user_id = t.user_id ORDER BY t.symbol LIMIT 3",
    "SELECT t.symbol FROM trades t LEFT ANTI JOIN users u ON u.user_id = t.user_id",
    "SELECT symbol FROM trades WHERE quantity > ALL (SELECT n FROM notes) "
    "OR user_id NOT IN (SELECT user_id FROM users)",
    "INSERT INTO users (user_id, name) SELECT user_id, symbol FROM trades",
    "UPSERT INTO users (user_id, name) SELECT user_id, symbol FROM trades",
    "UPDATE users SET age = 1 WHERE tier = 'GOLD'",
    "BEGIN; DELETE FROM users; DELETE FROM notes; COMMIT",
    "CREATE TABLE z AS SELECT symbol, COUNT(*) AS n, SUM(price) AS s, MIN(ts) AS a, MAX(ts) AS b, AVG(price) AS c "
    "FROM trades GROUP BY symbol HAVING COUNT(*) > 1",
    "CREATE TABLE z AS SELECT symbol, price FROM trades WHERE quantity > 1",
    "CREATE TABLE z AS SELECT tier, COUNT(DISTINCT name) AS n FROM users GROUP BY tier",
    "CREATE TABLE z AS SELECT seq FROM generate://?rows=3",
    "INSERT INTO 'file://./out' SELECT symbol FROM trades",
]


@pytest.mark.parametrize("text", RUNS)
def test_what_runs_has_no_note(text: str) -> None:
    plan = plan_of(f"{HEAD}{text};")
    assert plan.problems == ()
    assert plan.not_yet == ()


def test_what_cannot_run_yet_is_a_note_and_no_error() -> None:
    plan = plan_of(f"{HEAD}SELECT a FROM postgresql://crm/limits;")
    assert plan.errors == ()
    assert {p.code for p in plan.not_yet} == {"MP901"}
    assert {p.severity for p in plan.not_yet} == {Severity.NOTE}
    assert set(plan.not_yet) <= set(plan.problems)


def test_beside_a_mistake_it_is_not_mentioned() -> None:
    plan = plan_of(f"{HEAD}SELECT a FROM postgresql://crm/limits; SELECT nope FROM users;")
    assert [p.code for p in plan.errors] == ["MP202"]
    assert "MP901" not in {p.code for p in plan.problems}
