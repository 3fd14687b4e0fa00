"""`millpond dead-letters`: records that stepped aside; its arguments are read, listing and replay are not there yet."""

from __future__ import annotations

import argparse

from millpond.cli.command import Arguments, Command, add_state
from millpond.errors import NotYetError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("replay",), help="send the records through their flows again")
    add_state(parser)


def run(arguments: Arguments) -> int:
    hint = 'They are in a table: millpond query "SELECT * FROM dead_letters"'
    raise NotYetError("MP901", "The command dead-letters comes in a later version.", hint=hint)


COMMAND = Command("dead-letters", "List or replay the records that stepped aside (comes later).", configure, run)
