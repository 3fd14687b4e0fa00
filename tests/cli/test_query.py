"""`millpond query`: what it takes, where it asks, how it writes."""

from __future__ import annotations

import datetime as dt
import io
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from tests.serve.answering import AnsweringApp, serving

from millpond.cli import query
from millpond.cli.main import main
from millpond.cli.query import read_query
from millpond.engine.state_directory import IDENTITY
from millpond.errors import BindError, MillpondError
from millpond.serve.control_client import SOCKET_NAME

ROWS = pa.table(
    {
        "name": ["Ann", None],
        "paid": pa.array([Decimal("1.50"), Decimal("20.00")], pa.decimal128(12, 2)),
        "at": pa.array([dt.datetime(2026, 3, 1, 10, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
    }
)
Capture = pytest.CaptureFixture[str]


def make_state(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / IDENTITY).write_text("{}")
    return folder


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def state(tmp_path: Path, asked: list[str]) -> Iterator[Path]:
    """The state directory of an app that runs and answers every query with the same rows."""
    folder = make_state(tmp_path / "state")

    def answer(sql: str) -> pa.Table:
        asked.append(sql)
        if "usres" in sql:
            raise BindError("MP201", "There is no table 'usres'.", hint="Did you mean 'users'?")
        return ROWS

    with serving(AnsweringApp(answer), folder / SOCKET_NAME):
        yield folder


def test_a_running_app_is_asked_through_its_socket(state: Path, asked: list[str], capsys: Capture) -> None:
    assert main(["query", "SELECT * FROM users;  -- all", "--state", str(state)]) == 0
    assert asked == ["SELECT * FROM users;  -- all"]
    assert capsys.readouterr().out.splitlines() == [
        "name   paid  at",
        "----  -----  --------------------",
        "Ann    1.50  2026-03-01T10:00:00Z",
        "NULL  20.00  NULL",
        "(2 rows)",
    ]


def test_json_is_one_object_per_line_with_exact_decimals(state: Path, capsys: Capture) -> None:
    assert main(["query", "SELECT * FROM users", "--state", str(state), "--format", "json"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        '{"name": "Ann", "paid": "1.50", "at": "2026-03-01T10:00:00Z"}',
        '{"name": null, "paid": "20.00", "at": null}',
    ]


def test_decimals_are_exact_numbers_when_asked_for(state: Path, capsys: Capture) -> None:
    words = ["query", "SELECT * FROM users", "--state", str(state), "--format", "json", "--decimal", "number"]
    assert main(words) == 0
    assert '"paid": 1.50,' in capsys.readouterr().out


def test_csv_has_a_header(state: Path, capsys: Capture) -> None:
    assert main(["query", "SELECT * FROM users", "--state", str(state), "--format", "csv"]) == 0
    assert capsys.readouterr().out == "name,paid,at\nAnn,1.50,2026-03-01T10:00:00Z\n,20.00,\n"


@pytest.mark.parametrize("flag", ["-o", "--output"])
def test_arrow_goes_to_a_file_and_reads_back_the_same(state: Path, tmp_path: Path, flag: str, capsys: Capture) -> None:
    file = tmp_path / "rows.arrow"
    assert main(["query", "SELECT * FROM users", "--state", str(state), "--format", "arrow", flag, str(file)]) == 0
    assert pa.ipc.open_stream(file.read_bytes()).read_all() == ROWS
    assert capsys.readouterr().out == ""


def test_a_file_that_cannot_be_written_is_coded(state: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["query", "SELECT 1", "--state", str(state), "-o", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("MP805  ")


def test_the_apps_error_is_printed_and_wrong_input_is_2(state: Path, capsys: Capture) -> None:
    assert main(["query", "SELECT * FROM usres", "--state", str(state)]) == 2
    assert capsys.readouterr().err == "MP201  There is no table 'usres'.\n  hint: Did you mean 'users'?\n"


def test_a_stopped_app_is_read_from_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    folder = make_state(tmp_path / "state")
    given: list[dict[str, Any]] = []

    def query_state(sql: str, **named: Any) -> pa.Table:
        given.append({"sql": sql, **named})
        return ROWS

    module = ModuleType("millpond.app.stopped_app")
    module.query_state = query_state  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "millpond.app.stopped_app", module)
    words = ["query", "SELECT 1", "--state", str(folder), "--app", "app.sql", "--set", "A=1"]
    assert main(words) == 0
    assert given == [{"sql": "SELECT 1", "state": folder, "app_file": Path("app.sql"), "variables": {"A": "1"}}]


def test_no_state_says_how_to_make_some(tmp_path: Path, capsys: Capture) -> None:
    assert main(["query", "SELECT 1", "--state", str(tmp_path / "none"), "--app", "x.sql"]) == 1
    reported = capsys.readouterr().err
    assert reported.startswith("MP807  There is no state in ")
    assert "millpond run x.sql --once" in reported


def test_the_only_state_in_this_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["query", "SELECT 1"]) == 1
    assert "MP807" in capsys.readouterr().err
    with serving(AnsweringApp(lambda sql: ROWS), make_state(tmp_path / ".millpond" / "app") / SOCKET_NAME):
        assert main(["query", "SELECT 1"]) == 0
    make_state(tmp_path / ".millpond" / "other")
    assert main(["query", "SELECT 1"]) == 2
    assert "Several apps have state here: app, other" in capsys.readouterr().err


def test_the_state_is_found_beside_the_sql_file(tmp_path: Path, capsys: Capture) -> None:
    with serving(AnsweringApp(lambda sql: ROWS), make_state(tmp_path / ".millpond" / "app") / SOCKET_NAME):
        assert main(["query", "SELECT 1", "--app", str(tmp_path / "app.sql")]) == 0


@pytest.mark.parametrize("sql", ["SELECT 1", "  select 1 ; ", "SHOW TABLES", "DESCRIBE users", "EXPLAIN SELECT 1"])
def test_whatever_reads_is_a_query(sql: str) -> None:
    assert read_query(sql, {}) == sql


def test_variables_are_put_in_before_the_app_sees_the_text() -> None:
    assert "'GOLD'" in read_query("SELECT * FROM users WHERE tier = '${TIER}'", {"TIER": "GOLD"})


@pytest.mark.parametrize(
    ("sql", "code", "says"),
    [
        ("", "MP310", "Expected a statement, but the text is empty."),
        ("SELECT 1; SELECT 2", "MP310", "Expected one statement, found 2."),
        ("DELETE FROM users", "MP310", "This statement is not a query, and 'millpond query' only reads."),
        ("CREATE TABLE t (a INT)", "MP310", "This statement is not a query, and 'millpond query' only reads."),
        ("SET a = 1", "MP310", "This statement is not a query, and 'millpond query' only reads."),
        ("SELEC 1", "MP109", "SELEC"),
        ("SELECT '${NO_SUCH_VARIABLE}'", "MP104", "NO_SUCH_VARIABLE"),
    ],
)
def test_anything_else_is_wrong_input(sql: str, code: str, says: str) -> None:
    with pytest.raises(MillpondError) as caught:
        read_query(sql, {})
    assert (caught.value.code, caught.value.exit_code) == (code, 2)
    assert says in str(caught.value)


def test_a_dash_reads_the_query_from_standard_input(
    state: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    text = "\ufeff-- from a file\nSELECT *\nFROM users;\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["query", "-", "--state", str(state), "--format", "csv"]) == 0
    assert asked == [text.lstrip("\ufeff")]
    assert capsys.readouterr().out.startswith("name,paid,at\n")


def test_standard_input_that_is_not_text_is_coded(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"SELECT '\xff'")))
    assert main(["query", "-", "--state", str(state)]) == 2
    assert capsys.readouterr().err.startswith("MP110  Standard input is not UTF-8 text.")


class Rounds:
    """A pause between rounds that is interrupted after so many of them, as Ctrl-C does."""

    def __init__(self, rounds: int) -> None:
        self.waited: list[float] = []
        self._rounds = rounds

    def __call__(self, seconds: float) -> None:
        self.waited.append(seconds)
        if len(self.waited) == self._rounds:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("format_", "round_"),
    [("json", '{"n": 1}\n'), ("csv", "n\n1\n"), ("table", "n\n-\n1\n(1 row)\n")],
)
def test_watch_asks_again_and_separates_the_rounds_on_a_pipe(
    tmp_path: Path, format_: str, round_: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    pause = Rounds(3)
    monkeypatch.setattr(query, "pause", pause)
    words = ["query", "SELECT 1", "--state", str(tmp_path / "s"), "--watch", "2s", "--format", format_]
    with serving(AnsweringApp(lambda sql: pa.table({"n": [1]})), make_state(tmp_path / "s") / SOCKET_NAME):
        assert main(words) == 130
    assert capsys.readouterr().out == f"{round_}\n{round_}\n{round_}"
    assert pause.waited == [2.0, 2.0, 2.0]


def test_watch_clears_a_terminal_and_says_what_it_asks() -> None:
    assert query.heading("SELECT *\nFROM users", 2.0, dt.datetime(2026, 3, 1, 10, 0, 5)) == (
        "\x1b[H\x1b[2J\x1b[3JEvery 2s: SELECT * FROM users  (10:00:05, Ctrl-C ends)\n\n"
    )


def test_watch_ends_with_the_error_of_a_round(state: Path, capsys: Capture) -> None:
    assert main(["query", "SELECT * FROM usres", "--state", str(state), "--watch", "1s"]) == 2
    assert "MP201" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--watch", "soon"], "MP106  'soon' is not a duration."),
        (["--watch", "0s"], "MP310  The interval of --watch must be longer than zero."),
        (["--watch", "1s", "-o", "x.csv"], "MP310  --watch cannot write to a file or in Arrow format."),
        (["--watch", "1s", "--format", "arrow"], "MP310  --watch cannot write to a file or in Arrow format."),
    ],
)
def test_what_cannot_be_watched_is_wrong_input(state: Path, words: list[str], says: str, capsys: Capture) -> None:
    assert main(["query", "SELECT 1", "--state", str(state), *words]) == 2
    assert capsys.readouterr().err.startswith(says)
