"""`millpond shell`: a SQL prompt over live tables; its arguments are read, the prompt itself is not there yet."""

from __future__ import annotations

import argparse

from millpond.cli.command import Arguments, Command, add_state, add_variables
from millpond.errors import NotYetError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", help="the SQL file of the app")
    add_state(parser)
    add_variables(parser)


def run(arguments: Arguments) -> int:
    hint = 'Ask one question at a time with: millpond query "SELECT ..."'
    raise NotYetError("MP901", "The shell comes in a later version.", hint=hint)


COMMAND = Command("shell", "Open a SQL prompt (comes later).", configure, run)
