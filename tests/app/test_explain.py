"""EXPLAIN of a statement: the plan of that statement alone, whatever it is and wherever it is asked."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.cli.main import main
from millpond.errors import InputError

APP = """
CREATE STREAM trades (user_id STRING, symbol STRING, n INT) FROM 'memory://trades';
CREATE STREAM others (a INT) FROM 'memory://others';
CREATE TABLE users (user_id STRING PRIMARY KEY, tier STRING, INDEX (tier));
CREATE TABLE notes (text STRING);
CREATE TABLE totals AS SELECT symbol, COUNT(*) AS n FROM trades GROUP BY symbol;
INSERT INTO notes SELECT 'x' FROM others
"""


@pytest.fixture
def app(tmp_path: Path, spark: Any) -> Any:
    made = mp.App(sql=APP, state=tmp_path / "state", spark=spark)
    yield made
    made.stop()


def plan_of(app: Any, statement: str) -> str:
    return "\n".join(row["plan"] for row in app.query(f"EXPLAIN {statement}").rows())


def test_a_query_is_explained_alone(app: Any) -> None:
    plan = plan_of(app, "SELECT * FROM users WHERE tier = 'GOLD'")
    assert "SELECT over tables" in plan
    assert "users  key (user_id), memory" in plan
    assert "index (tier)" in plan
    assert not {"notes", "totals", "trades", "others", "dead_letters"} & set(plan.replace(",", " ").split())


def test_a_statement_of_a_stream_is_explained_as_a_part_of_the_app(app: Any) -> None:
    plan = plan_of(app, "INSERT INTO notes SELECT u.tier FROM trades t JOIN users u ON u.user_id = t.user_id")
    assert "insert into notes" in plan
    assert "reads users as a lookup: user_id is its key" in plan
    assert "others" not in plan
    assert "aggregate into" not in plan


def test_nothing_of_it_is_executed(app: Any) -> None:
    assert "INSERT" in plan_of(app, "INSERT INTO users VALUES ('u1', 'GOLD')")
    assert "UPDATE" in plan_of(app, "UPDATE users SET tier = 'x' WHERE user_id = 'u1'")
    assert "counted  no key" in plan_of(app, "CREATE TABLE counted AS SELECT COUNT(*) AS n FROM trades")
    assert len(app.table("users")) == 0
    assert "counted" not in app


def test_a_table_made_outside_of_the_file_is_known(app: Any) -> None:
    app.execute("CREATE TABLE later (a INT PRIMARY KEY)")
    assert "later  key (a)" in plan_of(app, "SELECT a FROM later JOIN users ON true")


def test_a_mistake_in_it_has_its_place_in_the_query(app: Any) -> None:
    with pytest.raises(InputError) as caught:
        app.query("EXPLAIN SELECT teir FROM users")
    (problem,) = caught.value.problems
    assert (problem.code, str(problem.place)) == ("MP202", "<query>:1:16")


def test_in_a_file_it_prints_the_plan_of_its_statement(tmp_path: Path) -> None:
    output = io.StringIO()
    made = mp.App(
        sql="CREATE TABLE a (x INT); CREATE TABLE b (y INT); EXPLAIN SELECT x FROM a;",
        state=tmp_path / "state",
        output=output,
    )
    made.run_once()
    made.stop()
    assert "a  no key, memory" in output.getvalue()
    assert "b  no key" not in output.getvalue()


@pytest.mark.parametrize("form", ["table", "json"])
def test_the_command_explains_a_statement_of_a_stopped_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("app.sql").write_text(APP)
    made = mp.App("app.sql")
    made.execute("INSERT INTO users VALUES ('u1', 'GOLD')")
    made.stop()
    question = "EXPLAIN INSERT INTO notes SELECT symbol FROM trades"
    assert main(["query", question, "--app", "app.sql", "--format", form]) == 0
    output = capsys.readouterr().out
    assert "insert into notes" in output
    assert "totals" not in output
    assert main(["query", "EXPLAIN SELECT tier FROM users", "--state", ".millpond/app", "--format", form]) == 0
    output = capsys.readouterr().out
    assert "index (tier)" in output
    assert "totals" not in output
