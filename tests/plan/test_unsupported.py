"""What is understood but cannot run yet is an error of `check`, the same that `run` ends with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.plan.planning import HEAD, plan_of

import millpond as mp
from millpond.cli.main import main
from millpond.errors import NotYetError, Severity
from millpond.registry import find as find_plugin
from millpond.registry import names

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
    "SELECT symbol, addr.*, tags[0] FROM trades",
]
# Each with a part of what is said about it.
LATER = {
    "CREATE TABLE p (k INT PRIMARY KEY) WITH ('history' = '1h'); CREATE TABLE v AS SELECT k FROM p VERSION AS OF 2": (
        "Reading table 'p' as of a time or version in a view"
    ),
}


@pytest.mark.parametrize("text", RUNS)
def test_what_runs_has_no_note(text: str) -> None:
    assert plan_of(f"{HEAD}{text};").problems == ()


@pytest.mark.parametrize("text", LATER)
def test_what_cannot_run_yet_is_an_error_where_it_is_written(text: str) -> None:
    (error,) = plan_of(f"{HEAD}{text};").errors
    assert (error.code, error.severity) == ("MP901", Severity.ERROR)
    assert LATER[text] in error.message
    assert error.place is not None
    assert error.place.line == HEAD.count("\n") + 1


@pytest.mark.parametrize("text", LATER)
def test_check_and_run_agree(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("trades.jsonl", "quotes.jsonl"):
        (tmp_path / name).write_text("")
    Path("app.sql").write_text(f"{HEAD}{text};")
    assert main(["check", "app.sql"]) == 2
    checked = errors_in(capsys.readouterr().err)
    assert main(["run", "app.sql", "--once"]) == 2
    assert errors_in(capsys.readouterr().err) == checked != []
    with pytest.raises(NotYetError, match="MP901"):
        mp.App("app.sql")


def errors_in(text: str) -> list[str]:
    """The lines of errors; notes and warnings are not among them."""
    return [line for line in text.splitlines() if re.match(r"MP\d+ \S+  (?!note: |warning: )", line)]


def test_every_source_that_cannot_run_has_a_case() -> None:
    later = {name for name in names("source") if not find_plugin("source", name).runnable}
    assert {f"The source {name}" for name in later} <= set(LATER.values())


def test_what_is_wrong_in_another_line_is_reported_beside_it() -> None:
    plan = plan_of(f"{HEAD}{next(iter(LATER))};\nSELECT nope FROM users;")
    assert [p.code for p in plan.errors] == ["MP901", "MP202"]


def test_every_place_of_mp901_in_the_code_is_known() -> None:
    """Whoever refuses something anew must see to it that `check` reports it: a case above, and a line here."""
    found = {path.name for path in Path(mp.__file__).parent.rglob("*.py") if '"MP901"' in path.read_text("utf-8")}
    planned = {"settings.py", "table_plans.py", "unsupported.py"}
    # Of plug-ins' own tables, app.execute, commands and sessions of the user: what no SQL file can hold.
    elsewhere = {"durable.py", "planning.py", "errors.py", "why.py", "session.py", "sqlstate.py"}
    assert found == planned | elsewhere
