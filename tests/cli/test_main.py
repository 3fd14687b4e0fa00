"""Finding the command, and what becomes of errors."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from millpond.cli import main as main_module
from millpond.cli.main import COMMANDS, main

# The command line as the contract of the surface states it.
FLAGS = {
    "init": ("NAME",),
    "run": (
        "FILE",
        "--once",
        "--state",
        "--set",
        "--master",
        "--http",
        "--no-http",
        "--pg",
        "--pg-write",
        "--quiet",
        "--log-format",
        "--json",
        "--accept",
        "--debug",
    ),
    "check": ("FILE", "--set", "--json"),
    "explain": ("FILE", "--state", "--master", "--storage", "--set", "--json"),
    "query": ("SQL", "--watch", "--state", "--app", "--set", "--format", "--decimal", "-o"),
    "shell": ("FILE", "--state", "--set"),
    "apply": ("FILE", "--state", "--set", "--accept", "--json"),
    "restart": ("FLOW", "--app", "--state", "--json"),
    "test": ("PATH", "--only", "--update", "--junit", "--engine"),
    "demo": (),
    "doctor": ("--install", "--repair"),
    "dead-letters": ("replay",),
    "version": (),
    "why": ("FILE", "--statement", "--event", "--state", "--set"),
}

Capture = pytest.CaptureFixture[str]


def with_command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """The command `version` fails."""

    def fail(arguments: object) -> int:
        raise error

    commands = tuple(replace(c, run=fail) if c.name == "version" else c for c in COMMANDS)
    monkeypatch.setattr(main_module, "COMMANDS", commands)


def test_no_command_shows_the_commands_and_is_wrong_input(capsys: Capture) -> None:
    assert main([]) == 2
    reported = capsys.readouterr()
    assert reported.out == ""
    assert "usage: millpond" in reported.err


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help_lists_every_command(word: str, capsys: Capture) -> None:
    assert main([word]) == 0
    reported = capsys.readouterr().out
    assert all(f"  {command.name} " in reported for command in COMMANDS)


def test_there_are_exactly_the_commands_of_the_contract() -> None:
    assert [command.name for command in COMMANDS] != []
    assert {command.name for command in COMMANDS} == set(FLAGS)


@pytest.mark.parametrize("name", FLAGS)
def test_every_command_prints_its_flags(name: str, capsys: Capture) -> None:
    assert main([name, "--help"]) == 0
    reported = capsys.readouterr().out
    assert [flag for flag in FLAGS[name] if flag not in reported] == []


def test_a_misspelt_command_is_named_with_the_nearest_one(capsys: Capture) -> None:
    assert main(["chek", "app.sql"]) == 2
    assert capsys.readouterr().err == (
        "MP310  There is no command 'chek'.\n  hint: Did you mean 'check'? See: millpond --help\n"
    )


@pytest.mark.parametrize("flag", ["--onec", "--onec=1"])
def test_a_misspelt_flag_is_named_with_the_nearest_one(flag: str, capsys: Capture) -> None:
    assert main(["run", "app.sql", flag]) == 2
    assert capsys.readouterr().err == (
        "MP310  There is no option '--onec'.\n  hint: Did you mean '--once'? See: millpond run --help\n"
    )


def test_a_flag_is_never_guessed_from_its_beginning(capsys: Capture) -> None:
    assert main(["run", "app.sql", "--stat", "x"]) == 2
    assert "Did you mean '--state'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run"], "The following arguments are required: FILE."),
        (["check", "a.sql", "b.sql"], "There is no argument 'b.sql'."),
        (["check", "a.sql", "--set", "novalue"], "'novalue' is not NAME=VALUE"),
        (["check", "a.sql", "--set", "=x"], "'=x' is not NAME=VALUE"),
        (["run", "a.sql", "--http", "x:1", "--no-http"], "not allowed with argument"),
        (["query", "SELECT 1", "--format", "xml"], "invalid choice: 'xml'"),
        (["dead-letters", "repaly", "app.sql"], "There is no action 'repaly'"),
    ],
)
def test_wrong_arguments_are_coded_and_exit_2(words: list[str], says: str, capsys: Capture) -> None:
    assert main(words) == 2
    reported = capsys.readouterr().err
    assert reported.startswith("MP310  ")
    assert says in reported
    assert f"millpond {words[0]} --help" in reported


def test_version_prints_what_is_installed(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("millpond 0.")


def test_a_bug_is_one_line_without_a_trace_or_a_secret(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with_command(monkeypatch, KeyError("postgresql://me:hunter2@host/db\nline two"))
    assert main(["version"]) == 1
    reported = capsys.readouterr().err
    assert reported.startswith("MP999  This is a bug in Millpond: KeyError: ")
    assert reported.endswith("\n  hint: Run it again with --debug to see the stack trace, and report it.\n")
    assert reported.count("\n") == 2
    assert "hunter2" not in reported


def test_debug_shows_the_trace(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with_command(monkeypatch, KeyError("x"))
    assert main(["version", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_error_is_a_json_object_when_json_was_asked_for(capsys: Capture) -> None:
    assert main(["run", "app.sql", "--json", "--onec"]) == 2
    reported = json.loads(capsys.readouterr().err)
    assert (reported["event"], reported["code"], reported["severity"]) == ("problem", "MP310", "error")


def test_ctrl_c_is_130_and_silent(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with_command(monkeypatch, KeyboardInterrupt())
    assert main(["version"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.process
def test_a_reader_that_goes_away_is_no_error() -> None:
    # Standard output is a pipe that nobody reads any more.
    code = "import os, sys\nfrom millpond.cli.main import main\nsys.exit(main(['doctor']))"
    reader = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    reader.wait()
    done = subprocess.run([sys.executable, "-c", code], stdout=reader.stdin, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
