"""The command `millpond`: finds the subcommand, runs it, and turns errors into messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import pairwise

from millpond.cli import (
    apply,
    check,
    dead_letters,
    demo,
    doctor,
    explain,
    init,
    query,
    restart,
    run,
    shell,
    test,
    version,
    why,
)
from millpond.cli.command import Command, Parser
from millpond.cli.output import discard_output, keep_for_good, print_errors, standard_streams, unwritable
from millpond.errors import MillpondError, OptionError, did_you_mean

# In the order in which `millpond --help` shows them.
COMMANDS: tuple[Command, ...] = (
    init.COMMAND,
    run.COMMAND,
    check.COMMAND,
    explain.COMMAND,
    query.COMMAND,
    why.COMMAND,
    shell.COMMAND,
    apply.COMMAND,
    restart.COMMAND,
    test.COMMAND,
    demo.COMMAND,
    doctor.COMMAND,
    dead_letters.COMMAND,
    version.COMMAND,
)

FINE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises, and shows a stack trace only with `--debug`."""
    given = list(sys.argv[1:] if words is None else words)
    streams = standard_streams(json=_reports_json(given))
    if words is not None:
        with streams:
            return _ended(given)
    keep_for_good(streams)
    return _ended(given)


def _ended(words: list[str]) -> int:
    """Run a command, print its errors, and return its exit code."""
    try:
        return _run(words)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the pipe, such as `head`, has closed it.
        discard_output()
        return FINE
    except Exception as error:
        found = (unwritable(error) if isinstance(error, OSError) else None) or error
        debug = "--debug" in words or os.environ.get("MILLPOND_DEBUG", "").lower() in ("1", "true", "yes", "on")
        print_errors([found], json=_reports_json(words), debug=debug)
        return found.exit_code if isinstance(found, MillpondError) else FAILED


def _reports_json(words: Sequence[str]) -> bool:
    """Whether standard error is JSON."""
    return "--json" in words or "--log-format=json" in words or ("--log-format", "json") in pairwise(words)


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
            "Options of a command: millpond COMMAND --help",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
