"""`millpond apply` and `millpond restart`: what they ask a running app, what they print, how they end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.cli.main import main
from millpond.errors import BindError, RunError, StateError
from millpond.runtime.keeping.state import IDENTITY
from millpond.runtime.socket import SOCKET_NAME, QuerySocket

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


class Answering:
    """An app that answers as the test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.error: Exception | None = None

    def of(self, name: str) -> Any:
        def answer(given: Mapping[str, Any]) -> Mapping[str, object]:
            self.asked.append((name, given))
            if self.error is not None:
                raise self.error
            return {"changes": CHANGES, "flows": {"orders": "running"}}

        return answer


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    """A running app whose file is shop.sql in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.sql").write_text("SELECT 1;")
    folder = tmp_path / ".millpond" / "shop"
    folder.mkdir(parents=True)
    (folder / IDENTITY).write_text("{}")
    found = Answering()
    server = QuerySocket(
        folder / SOCKET_NAME,
        lambda sql: pa.table({}),
        others={"apply": found.of("apply"), "restart": found.of("restart")},
    )
    server.start()
    yield found
    server.stop()


def test_the_text_goes_to_the_running_app_and_its_changes_are_printed(
    app: Answering, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["apply", "shop.sql", "--set", "N=1", "--accept"]) == 0
    ((name, given),) = app.asked
    assert name == "apply"
    wanted = {"text": "SELECT 1;", "file": "shop.sql", "name": "shop", "base": str(tmp_path.resolve())}
    assert {key: given[key] for key in wanted} == wanted
    assert (given["variables"], given["accept"]) == ({"N": "1"}, True)
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "table totals: new",
        "flow orders: the statement in line 4 is new",
        "flow orders: UPDATE users is gone",
        "flow clicks: dropped",
        "line 9: INSERT was run",
        "flow orders: running",
    ]
    assert told.err == "MP811 shop.sql:4:1  warning: It sees what comes from now on.\n"


def test_json_is_one_object(app: Answering, capsys: Capture) -> None:
    assert main(["apply", "shop.sql", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"event": "applied", **CHANGES, "states": {"orders": "running"}}


def test_a_flow_is_restarted_by_its_name(app: Answering, capsys: Capture) -> None:
    assert main(["restart", "orders", "--app", "shop.sql"]) == 0
    assert app.asked[0][0] == "restart"
    assert app.asked[0][1]["flow"] == "orders"
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
    app: Answering, error: Exception, code: int, capsys: Capture
) -> None:
    app.error = error
    assert main(["apply", "shop.sql"]) == code
    assert capsys.readouterr().err == f"{error}\n"


def test_without_a_running_app_the_error_says_what_to_do(app: Answering, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / ".millpond" / "shop" / SOCKET_NAME).unlink()
    for words in (["apply", "shop.sql"], ["restart", "orders"]):
        assert main(words) == 1
        told = capsys.readouterr().err
        assert told.startswith("MP713  No app runs on ")
        assert "millpond run FILE" in told


def test_a_file_that_is_not_there_is_wrong_input(app: Answering, capsys: Capture) -> None:
    assert main(["apply", "shpo.sql"]) == 2
    assert capsys.readouterr().err.startswith("MP110  shpo.sql cannot be read")
