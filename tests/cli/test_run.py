"""`millpond run` over an app without Spark: flags, exit codes, what goes where."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.fake_app import Script, progress

from millpond.cli import app_run
from millpond.cli.main import main
from millpond.errors import BindError, FlowError, Place, Problem, Severity, StateError

WARNING = Problem("MP216", "Unmatched rows come again and again.", severity=Severity.WARNING)
Capture = pytest.CaptureFixture[str]


def test_once_runs_once_and_lets_the_state_go(script: Script) -> None:
    assert main(["run", "app.sql", "--once"]) == 0
    assert script.calls == ["run_once", "stop"]


def test_without_once_it_runs_until_it_is_stopped(script: Script) -> None:
    assert main(["run", "app.sql"]) == 0
    assert script.calls == ["start", "wait", "stop"]


def test_every_flag_reaches_the_app(script: Script) -> None:
    flags = ["--state", "s", "--set", "A=1", "--set", "B=x=y", "--master", "local[2]", "--accept", "--no-http"]
    main(["run", "app.sql", *flags, "--json", "--debug"])
    assert {name: script.opened[name] for name in ("file", "state", "variables", "accept")} == {
        "file": "app.sql",
        "state": "s",
        "variables": {"A": "1", "B": "x=y"},
        "accept": True,
    }
    assert script.opened["settings"] == {"json": "true", "debug": "true", "master": "local[2]", "http": "off"}


def test_without_flags_nothing_is_set(script: Script) -> None:
    main(["run", "app.sql"])
    assert script.opened["settings"] == {}
    assert script.opened["state"] is None


def test_standard_output_holds_nothing_but_rows(script: Script, capsys: Capture) -> None:
    script.warnings = (WARNING,)
    script.run = lambda app: app.output.write('{"n": 1}\n')
    assert main(["run", "app.sql", "--once", "--json"]) == 0
    reported = capsys.readouterr()
    assert reported.out == '{"n": 1}\n'
    events = [json.loads(line) for line in reported.err.splitlines()]
    assert [event["event"] for event in events] == ["problem", "progress"]


def test_warnings_come_first_and_once(script: Script, capsys: Capture) -> None:
    script.warnings = (WARNING, WARNING)
    script.shows = lambda: progress("stopped", problems=(WARNING,))
    assert main(["run", "app.sql", "--once"]) == 0
    reported = capsys.readouterr().err
    assert reported.startswith("MP216  warning: ")
    assert reported.count("MP216") == 1


def test_what_failed_is_reported_once_at_the_end_and_is_exit_1(script: Script, capsys: Capture) -> None:
    failure = FlowError("MP702", "A scalar subquery found two rows.")
    script.failures = (failure,)

    def fails(app: Any) -> None:
        raise failure

    script.run = fails
    assert main(["run", "app.sql", "--once"]) == 1
    reported = capsys.readouterr().err
    assert reported.count("MP702") == 1
    assert reported.endswith("MP702  A scalar subquery found two rows.\n")
    assert script.calls == ["run_once", "stop"]


def test_a_failure_is_one_json_line_at_the_moment_it_happens(script: Script, tmp_path: Path) -> None:
    failure = FlowError("MP702", "A scalar subquery found two rows.", place=Place("app.sql", 3, 8), hint="Use LIMIT 1.")
    script.shows = lambda: progress(flow_state="failed", failures=failure.problems)
    script.failures = (failure,)
    # A file that only grows: pytest's own capture empties its file, and what is written meanwhile would be lost.
    log = tmp_path / "stderr"

    def problems() -> list[dict[str, Any]]:
        whole = log.read_text("utf-8").rpartition("\n")[0]
        return [e for e in map(json.loads, whole.splitlines()) if e["event"] == "problem"]

    while_it_ran: list[dict[str, Any]] = []

    def runs_until_it_is_reported(app: Any) -> None:
        until = time.monotonic() + 30
        while not while_it_ran and time.monotonic() < until:
            while_it_ran.extend(problems())
            time.sleep(0.01)

    script.run = runs_until_it_is_reported
    with standard_error_in(log):
        assert main(["run", "app.sql", "--json"]) == 1
    assert [(e["code"], e["place"], e["hint"]) for e in while_it_ran] == [("MP702", "app.sql:3:8", "Use LIMIT 1.")]
    assert problems() == while_it_ran


@contextmanager
def standard_error_in(file: Path) -> Iterator[None]:
    """Descriptor 2, and what Python prints there, in a file."""
    kept, before = os.dup(2), sys.stderr
    with file.open("w", encoding="utf-8") as stream:
        os.dup2(stream.fileno(), 2)
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        try:
            yield
        finally:
            sys.stderr.flush()
            sys.stderr = before
            os.dup2(kept, 2)
            os.close(kept)


def test_debug_shows_where_a_flow_failed(script: Script, capsys: Capture) -> None:
    script.failures = (FlowError("MP701", "It failed."),)
    assert main(["run", "app.sql", "--once", "--debug"]) == 1
    assert "FlowError: MP701  It failed." in capsys.readouterr().err


def test_a_failed_flow_of_a_live_app_is_exit_1(script: Script) -> None:
    script.failures = (FlowError("MP701", "It failed."),)
    assert main(["run", "app.sql"]) == 1


@pytest.mark.parametrize(("error", "code"), [(BindError("MP201", "No."), 2), (StateError("MP801", "No."), 1)])
def test_an_app_that_cannot_start_has_its_own_exit_code(
    script: Script, monkeypatch: pytest.MonkeyPatch, capsys: Capture, error: Exception, code: int
) -> None:
    def refuse(*given: object, **named: object) -> None:
        raise error

    monkeypatch.setattr(sys.modules["millpond.app.app"], "App", refuse)
    assert main(["run", "app.sql", "--once"]) == code
    assert capsys.readouterr().err == f"{error}\n"


def test_a_bug_in_the_app_is_reported_and_the_state_is_unlocked(script: Script, capsys: Capture) -> None:
    def fails(app: Any) -> None:
        raise LookupError("bug")

    script.run = fails
    assert main(["run", "app.sql", "--once"]) == 1
    assert "MP999" in capsys.readouterr().err
    assert script.calls == ["run_once", "stop"]


def stopped_by(number: signal.Signals, script: Script) -> None:
    def run(app: Any) -> None:
        os.kill(os.getpid(), number)
        assert app.asked_to_stop.wait(60)

    script.run = run


def test_ctrl_c_finishes_the_batch_and_is_130(script: Script, capsys: Capture) -> None:
    stopped_by(signal.SIGINT, script)
    assert main(["run", "app.sql"]) == 130
    assert "Stopping after the current batch" in capsys.readouterr().err
    assert script.calls == ["start", "wait", "request_stop", "stop"]


def test_sigterm_with_a_clean_stop_is_0(script: Script) -> None:
    stopped_by(signal.SIGTERM, script)
    assert main(["run", "app.sql"]) == 0


def test_sigterm_after_a_failure_is_1(script: Script) -> None:
    script.failures = (FlowError("MP701", "It failed."),)
    stopped_by(signal.SIGTERM, script)
    assert main(["run", "app.sql"]) == 1


def test_a_second_ctrl_c_waits_for_nothing(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []

    def leave(code: int) -> None:
        left.append(code)
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(app_run, "TOGETHER_S", 0.0)

    def run(app: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert app.asked_to_stop.wait(60)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the interrupt came first")

    script.run = run
    with pytest.raises(SystemExit):
        main(["run", "app.sql"])
    assert left == [130]
    assert script.calls == ["start", "wait", "request_stop"], "the second signal waits for nothing"


def test_the_page_is_on_unless_the_app_runs_once(script: Script) -> None:
    main(["run", "app.sql"])
    assert script.opened["http"] == "auto"
    main(["run", "app.sql", "--once"])
    assert script.opened["http"] == "off"


def test_flags_of_the_page_are_settings(script: Script) -> None:
    assert main(["run", "app.sql", "--http", "127.0.0.1:9000", "--http-token", "t", "--http-write"]) == 0
    assert script.opened["settings"] == {"http": "127.0.0.1:9000", "http.token": "t", "http.write": "true"}


def test_the_address_of_the_page_is_printed(script: Script, capsys: Capture) -> None:
    script.shows = lambda: replace(progress(), url="http://127.0.0.1:8080/")
    main(["run", "app.sql"])
    assert "page: http://127.0.0.1:8080/" in capsys.readouterr().err
