"""`millpond apply` and `millpond restart`: what they ask a running app, what they print, how they end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serve.answering import AnsweringApp, serving

from millpond.app.planning import AppText
from millpond.cli.main import main
from millpond.engine.state_directory import IDENTITY
from millpond.errors import BindError, RunError, StateError
from millpond.serve.control_client import SOCKET_NAME

Capture = pytest.CaptureFixture[str]
WARNING = {"code": "MP811", "file": "shop.sql", "line": 4, "column": 1, "message": "It sees what comes from now on."}
CHANGES = {
    "tables": [
        {"name": "users", "change": "kept", "hidden": False},
        {"name": "totals", "change": "new", "hidden": False},
        {"name": "_groups", "change": "dropped", "hidden": True},
    ],
    "flows": [
        {"name": "orders", "change": "kept", "added": [4], "removed": ["UPDATE users"]},
        {"name": "clicks", "change": "dropped", "added": [], "removed": []},
    ],
    "one_shots": [{"line": 9, "kind": "insert", "has_run": False}, {"line": 1, "kind": "insert", "has_run": True}],
    "warnings": [WARNING],
}


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AnsweringApp]:
    """A running app whose file is shop.sql in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.sql").write_text("SELECT 1;")
    folder = tmp_path / ".millpond" / "shop"
    folder.mkdir(parents=True)
    (folder / IDENTITY).write_text("{}")
    found = AnsweringApp()
    found.changes = CHANGES
    with serving(found, folder / SOCKET_NAME):
        yield found


def test_the_text_goes_to_the_running_app_and_its_changes_are_printed(
    app: AnsweringApp, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["apply", "shop.sql", "--set", "N=1", "--accept"]) == 0
    assert app.given == [
        (
            "apply",
            {
                "text": AppText("SELECT 1;", "shop.sql", "shop", tmp_path.resolve()),
                "variables": {"N": "1"},
                "accept": True,
            },
        )
    ]
    reported = capsys.readouterr()
    assert reported.out.splitlines() == [
        "table totals: new",
        "flow orders: the statement in line 4 is new",
        "flow orders: UPDATE users was removed",
        "flow clicks: dropped",
        "line 9: INSERT was run",
        "flow orders: running",
    ]
    assert reported.err == "MP811 shop.sql:4:1  warning: It sees what comes from now on.\n"


def test_json_is_one_object(app: AnsweringApp, capsys: Capture) -> None:
    assert main(["apply", "shop.sql", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"event": "applied", **CHANGES, "states": {"orders": "running"}}


def test_a_flow_is_restarted_by_its_name(app: AnsweringApp, capsys: Capture) -> None:
    assert main(["restart", "orders", "--app", "shop.sql"]) == 0
    assert app.given == [("restart", {"flow": "orders"})]
    assert capsys.readouterr().out == "flow orders: running\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BindError("MP202", "There is no column 'amuont'."), 2),
        (StateError("MP806", "Rows would be lost (3)."), 1),
        (RunError("MP713", "The app is stopping."), 1),
    ],
)
def test_what_the_app_rejects_is_printed_with_its_exit_code(
    app: AnsweringApp, error: Exception, code: int, capsys: Capture
) -> None:
    app.error = error
    assert main(["apply", "shop.sql"]) == code
    assert capsys.readouterr().err == f"{error}\n"


def test_without_a_running_app_the_error_says_what_to_do(app: AnsweringApp, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / ".millpond" / "shop" / SOCKET_NAME).unlink()
    for words in (["apply", "shop.sql"], ["restart", "orders"]):
        assert main(words) == 1
        reported = capsys.readouterr().err
        assert reported.startswith("MP713  No app is running on ")
        assert "millpond run FILE" in reported


def test_a_file_that_is_not_there_is_wrong_input(app: AnsweringApp, capsys: Capture) -> None:
    assert main(["apply", "shpo.sql"]) == 2
    assert capsys.readouterr().err.startswith("MP110  shpo.sql cannot be read")
