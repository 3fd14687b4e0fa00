"""The command `millpond`: finds the command, runs it, and turns what went wrong into a message and an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from millpond.cli import check, dead_letters, demo, doctor, explain, query, run, shell, version
from millpond.cli.command import Command, Parser
from millpond.cli.messages import print_errors
from millpond.errors import MillpondError, OptionError
from millpond.suggest import did_you_mean

# In the order in which `millpond --help` shows them.
COMMANDS: tuple[Command, ...] = (
    run.COMMAND,
    check.COMMAND,
    explain.COMMAND,
    query.COMMAND,
    shell.COMMAND,
    demo.COMMAND,
    doctor.COMMAND,
    dead_letters.COMMAND,
    version.COMMAND,
)

FINE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises, never shows a stack trace unless `--debug` is given."""
    words = list(sys.argv[1:] if words is None else words)
    debug = "--debug" in words or os.environ.get("MILLPOND_DEBUG", "").lower() in ("1", "true", "yes", "on")
    _speak_utf8()
    try:
        return _run(words)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, `head` perhaps, has had enough. Standard output goes nowhere, or Python would complain at the end.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except Exception as error:
        print_errors([error], json="--json" in words, debug=debug)
        return error.exit_code if isinstance(error, MillpondError) else FAILED


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview(), file=sys.stdout if words else sys.stderr)
        return FINE if words else WRONG_INPUT
    name = "version" if words[0] in ("--version", "-V") else words[0]
    command = next((c for c in COMMANDS if c.name == name), None)
    if command is None:
        hint = f"{did_you_mean(name, [c.name for c in COMMANDS])} See: millpond --help".strip()
        raise OptionError("MP310", f"There is no command '{name}'.", hint=hint)
    try:
        arguments = Parser(command).read(words[1:])
    except SystemExit as leaving:  # argparse has printed the help that was asked for
        return int(leaving.code or FINE)
    code = command.run(arguments)
    sys.stdout.flush()
    return code


def _overview() -> str:
    width = max(len(c.name) for c in COMMANDS)
    lines = [f"  {c.name:<{width}}  {c.summary}" for c in COMMANDS]
    return "\n".join(
        [
            "usage: millpond COMMAND [ARGUMENTS]",
            "",
            "SQL tables kept up to date from streams, files and databases, on Spark.",
            "",
            *lines,
            "",
            "What a command takes: millpond COMMAND --help",
        ]
    )


def _speak_utf8() -> None:
    """Rows and messages are UTF-8 whatever the locale says, so that no character of the data can fail to print."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(encoding="utf-8", errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
