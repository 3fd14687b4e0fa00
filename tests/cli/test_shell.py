"""`millpond shell`: on a pseudo-terminal, on a pipe, and its parts."""

from __future__ import annotations

import io
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from tests.cli.terminal import PATIENCE_S, on_terminal
from tests.serve.answering import AnsweringApp, serving

import millpond as mp
from millpond.app.queries import Cancellation
from millpond.cli.main import main
from millpond.cli.shell import HELP
from millpond.cli.shell_completion import NameCompleter
from millpond.cli.shell_rows import Screen, fitted, lines_of, side_by_side
from millpond.cli.shell_target import interruptible
from millpond.engine.state_directory import IDENTITY
from millpond.errors import RunError
from millpond.serve.control_client import SOCKET_NAME
from millpond.sql.split import split_statements
from millpond.testing.documents import read_sections

NAMES = {
    "tables": {"users": ["user_id", "name"], "trades": ["trade_id", "user_id", "price"]},
    "functions": ["concat", "count"],
    "keywords": ["SELECT", "FROM"],
    "options": {"backend": ["memory", "sqlite"], "state.ttl": []},
}


@pytest.mark.process
def test_a_playground_on_a_terminal(tmp_path: Path) -> None:
    with on_terminal("shell", folder=tmp_path) as terminal:
        terminal.see("A playground")
        terminal.see("app>")
        terminal.type("CREATE TABLE users (id INT PRIMARY KEY,\r")
        terminal.see("   >")
        terminal.type("name STRING);\r")
        terminal.see("Done.")
        terminal.see("app>")
        terminal.type("INSERT INTO users VALUES (1, 'Ann'), (2, 'Bo');\r")
        terminal.see("2 rows changed.")
        terminal.see("app>")
        # The name of the table is completed.
        terminal.type("SELECT name FROM us\t")
        terminal.see("ers")
        terminal.type(" ORDER BY id;\r")
        terminal.see("Ann")
        terminal.see("(2 rows)")
        terminal.see("app>")
        terminal.type("SELECT nmae FROM users;\r")
        terminal.see("MP202")
        terminal.see("^^^^")
        terminal.see("Did you mean 'name'?")
        terminal.see("app>")
        terminal.type("\\watch 100ms\r")
        terminal.see("(2 rows)")
        terminal.see("(2 rows)")
        terminal.type("\x03")
        terminal.see("app>")
        terminal.type("SELECT half of a statement\r")
        terminal.see("   >")
        terminal.type("\x03")
        terminal.see("app>")
        terminal.type("\\demo\r")
        terminal.see("The trading example runs")
        terminal.see("app>")
        terminal.type("SELECT COUNT(*) AS people FROM profiles;\r")
        terminal.see("20")
        terminal.see("app>")
        terminal.type("\x04")
        assert terminal.end() == 0
    assert "CREATE TABLE users" in (tmp_path / "xdg" / "millpond" / "history").read_text("utf-8")


class SlowApp(AnsweringApp):
    """Answers when its query is cancelled, and not before."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.cancelled = threading.Event()

    def answer(self, sql: str, *given: Any, limit: Any = None, cancellation: Cancellation | None = None) -> pa.Table:
        if "slow" not in sql:
            return pa.table({"n": [42]})
        assert cancellation is not None
        with cancellation.stopping(self.cancelled.set):
            self.begun.set()
            self.cancelled.wait(PATIENCE_S)
        cancellation.require()
        raise AssertionError("nobody has cancelled it")


@pytest.mark.process
def test_ctrl_c_cancels_the_query_of_a_running_app_and_nothing_else(tmp_path: Path) -> None:
    state = tmp_path / "shop"
    state.mkdir()
    (state / IDENTITY).write_text("{}")
    app = SlowApp()
    with serving(app, state / SOCKET_NAME), on_terminal("shell", "--state", str(state), folder=tmp_path) as terminal:
        terminal.see("Connected to the running app 'shop'.")
        terminal.see("shop>")
        terminal.type("SELECT slow;\r")
        assert app.begun.wait(PATIENCE_S)
        terminal.type("\x03")
        terminal.see("Cancelled.")
        assert app.cancelled.wait(PATIENCE_S)
        terminal.see("shop>")
        terminal.type("SELECT 42 AS n;\r")
        terminal.see("(1 row)")
        terminal.type("\\q\r")
        assert terminal.end() == 0


def shell(text: str, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    return main(["shell", *words])


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a stopped app in its folder."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "shop.sql"
    file.write_text(
        "CREATE TABLE users (id INT PRIMARY KEY, name STRING);\nINSERT INTO users VALUES (1, 'Ann');\n", "utf-8"
    )
    mp.App(file).run_once()
    return file


def test_the_state_of_a_stopped_app_is_changed_and_read(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
    INSERT INTO users VALUES (2, 'a;b'); -- a comment; with a semicolon
    BEGIN; DELETE FROM users WHERE id = 1; INSERT INTO users VALUES (3, NULL); COMMIT;
    BEGIN; DELETE FROM users; ROLLBACK;
    SELECT id, name FROM users
    ORDER BY id
    """
    assert shell(text, monkeypatch, "shop.sql") == 0
    assert capsys.readouterr().out.endswith("id  name\n--  ----\n 2  a;b\n 3  NULL\n(2 rows)\n")
    assert shell("SHOW TABLES; DELETE FROM users;", monkeypatch) == 1
    captured = capsys.readouterr()
    assert "users" in captured.out
    assert "Without the file of the app" in captured.err


def test_commands_describe_time_expand_and_write(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\\d users\n\\dt\n\\ds\n\\df conc\n\\timing\n\\x\nSELECT * FROM users;\n\\explain\n\\?\n"
    assert (
        shell(text + "\\o rows.csv\nSELECT * FROM users;\nSELECT * FROM users;\n\\q\nnever", monkeypatch, "shop.sql")
        == 0
    )
    out = capsys.readouterr().out
    for expected in (
        "nullable",
        "dead_letters",
        "derived",
        "concat_ws",
        "Time: ",
        "name | Ann",
        "engine arrow",
        "\\watch",
    ):
        assert expected in out, expected
    assert (shop.parent / "rows.csv").read_text("utf-8") == "id,name\n1,Ann\nid,name\n1,Ann\n"


def test_a_command_between_the_lines_of_a_statement_runs_and_the_statement_goes_on(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell("SELECT 'a\n\\x\nb' AS\n\\timing\n text;\n", monkeypatch, "shop.sql") == 0
    out = capsys.readouterr().out
    assert out.startswith("Timing is on.\n"), "the command inside of the quotes is text"
    assert "(1 row)" in out
    assert shell("SELECT 1\n\\q\n;", monkeypatch, "shop.sql") == 0


def test_mistakes_are_reported_and_the_rest_runs(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = "\\wathc\n\\watch\n\\explain\n\\demo\n\\o /no/such/folder\nSELEC 1;\nCOMMIT;\nSELECT 7 AS n;"
    assert shell(wrong, monkeypatch, "shop.sql") == 1
    captured = capsys.readouterr()
    for expected in ("Did you mean '\\watch'?", "no query to repeat", "no statement to explain", "playground only"):
        assert expected in captured.err, expected
    assert "cannot be written" in captured.err
    assert "Traceback" not in captured.err
    assert captured.out.endswith("7\n(1 row)\n")
    assert shell("SELECT 1;", monkeypatch, "nothing.sql") == 1


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("-- a comment\n/* and; one */ SELECT 1; -- ;", ["-- a comment\n/* and; one */ SELECT 1"], ""),
        ("SELECT 1; SELECT 2", ["SELECT 1"], "SELECT 2"),
        ("SELECT ';' AS a; -- ;\n", ["SELECT ';' AS a"], ""),
        ('SELECT `a;b`, ";" /* ; */;', ['SELECT `a;b`, ";" /* ; */'], ""),
        ("SELECT 'it''s;';;", ["SELECT 'it''s;'"], ""),
        ("SELECT 'open;", [], "SELECT 'open;"),
        ("SELECT 1 /* open;", [], "SELECT 1 /* open;"),
    ],
)
def test_a_semicolon_ends_a_statement_outside_of_strings_and_comments(
    text: str, statements: list[str], rest: str
) -> None:
    portions, left = split_statements(text)
    assert ([portion.text for portion in portions], left) == (statements, rest)
    assert all(text[portion.start :].startswith(portion.text) for portion in portions)


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("\\wa", ["\\watch"]),
        ("SELECT * FROM tr", ["trades"]),
        ("\\d us", ["users"]),
        ("SELECT t.pr| FROM trades AS t", ["price"]),
        ("SELECT users.na| FROM users", ["name"]),
        ("SELECT us", ["user_id", "users"]),
        ("select co", ["concat", "count"]),
        ("sel", ["select"]),
        ("CREATE TABLE t (a INT) WITH ('ba", ["backend"]),
        ("CREATE TABLE t (a INT) WITH ('state.ttl' = '1h', 'backend' = 's", ["sqlite"]),
    ],
)
def test_names_options_and_values_are_completed(text: str, offered: list[str]) -> None:
    before, _, after = text.partition("|")
    found = NameCompleter(lambda: NAMES, ["\\watch", "\\d"]).get_completions(
        Document(before + after, len(before)), CompleteEvent()
    )
    assert [completion.text for completion in found] == offered


def test_columns_are_shortened_to_fit_and_shown_one_per_line_when_they_cannot() -> None:
    table = pa.table({"id": [1, 22], "note": ["x" * 50, None], "word": ["水水水水水水水水水水水", "b"]})
    lines = list(lines_of(table, Screen(40, 20)))
    assert lines[0].split() == ["id", "note", "word"]
    assert all(len(line) <= 40 for line in lines)
    assert "…" in lines[2]
    assert lines[3].startswith("22  NULL")
    narrow = list(lines_of(table, Screen(16, 20)))
    assert narrow[0].startswith("-[ row 1 ]")
    assert narrow[2] == "note | " + "x" * 50
    assert fitted([30, 30, 4], 40) == [16, 16, 4]


def test_an_interrupt_cancels_what_runs_here_and_waits_for_its_end() -> None:
    begun, cancelled = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert cancelled.wait(PATIENCE_S)
        raise RunError("MP714", "It was cancelled.")

    def interrupt() -> None:
        assert begun.wait(PATIENCE_S)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        interruptible(work, cancelled.set)
    assert cancelled.is_set()


def test_names_side_by_side_stay_apart_and_fit() -> None:
    names = ["abs", "approx_count_distinct", "approx_percentile", "theta_intersection_agg", "trim", "zip_with"]
    lines = list(side_by_side(names, 50))
    assert [name for line in lines for name in line.split()] == names
    assert max(map(len, lines)) <= 50
    assert lines[0] == "abs                 approx_count_distinct"


def test_the_help_fits_eighty_columns() -> None:
    assert max(map(len, HELP.splitlines())) <= 80


def test_the_session_in_the_docs_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[2] / "docs" / "shell.md"
    blocks = [block for section in read_sections(page) for block in section.blocks]
    lines = next(block.body for block in blocks if block.body.startswith("$ millpond shell\n")).splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("app> "))
    typed = [line[5:] for line in lines if line.startswith(("app> ", "   > "))]
    printed = [line for line in lines[first:] if not line.startswith(("app> ", "   > "))]
    monkeypatch.chdir(tmp_path)
    assert shell("\n".join(typed), monkeypatch) == 0
    assert capsys.readouterr().out.splitlines() == printed
