"""`millpond dead-letters`: counts dead letters by source, flow and code; `replay` sends them through the app again."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from millpond.cli.command import Arguments, Command, add_state, add_timeout, add_variables
from millpond.cli.output import counted
from millpond.cli.query import FORMATS, Form, answer, find_state, write_result
from millpond.errors import OptionError
from millpond.units import parse_duration

if TYPE_CHECKING:
    import pyarrow as pa

REPLAY = "replay"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "millpond dead-letters [replay] [FILE] [--where CONDITION] [--repair EXPRESSION] ..."
    parser.add_argument(
        "words",
        nargs="*",
        metavar="[replay] [FILE]",
        help="replay: send the records again through the statements that rejected them; FILE: the app's SQL file",
    )
    parser.add_argument("--where", metavar="CONDITION", help="only these dead letters, such as \"code = 'MP504'\"")
    parser.add_argument(
        "--repair",
        metavar="EXPRESSION",
        help="the corrected value of raw, such as \"replace(CAST(raw AS STRING), 'many', '5')\"; only with replay",
    )
    add_state(parser)
    add_variables(parser)
    add_timeout(parser)
    parser.add_argument("--format", choices=FORMATS, default="table", help="the output format of the counts (table)")


def run(arguments: Arguments) -> int:
    replays = arguments.words[:1] == [REPLAY]
    files = arguments.words[1:] if replays else arguments.words
    if len(files) > 1:
        hint = "Write: millpond dead-letters replay FILE. See: millpond dead-letters --help"
        raise OptionError("MP310", f"There is no action '{files[0]}'.", hint=hint)
    arguments.file = files[0] if files else None
    if replays:
        return _replay(arguments)
    if arguments.repair is not None:
        raise OptionError("MP310", "--repair is only for replay.", hint="Write: millpond dead-letters replay FILE ...")
    letters = f"SELECT source, flow, statement, line, code, at FROM dead_letters{_condition(arguments.where)}"
    state, silence_s = find_state(arguments.state, arguments.file), _silence_s(arguments)
    write_result(_counts(answer(letters, state, silence_s=silence_s)), Form(arguments.format))
    return 0


def _silence_s(arguments: Arguments) -> float:
    return parse_duration(arguments.timeout) / 1_000_000


def _condition(where: str | None) -> str:
    return f" WHERE {where}" if where else ""


def _counts(letters: pa.Table) -> pa.Table:
    """One row for each source, flow, statement and code."""
    by = ["source", "flow", "statement", "line", "code"]
    found = letters.group_by(by, use_threads=False).aggregate([("at", "count"), ("at", "min"), ("at", "max")])
    named = found.rename_columns([*by, "letters", "first", "last"])
    return named.sort_by([(name, "ascending") for name in by])


def _replay(arguments: Arguments) -> int:
    from millpond.serve.control_client import SOCKET_NAME, Client

    client = Client(find_state(arguments.state, arguments.file) / SOCKET_NAME, _silence_s(arguments))
    found = client.post("/api/dead-letters/replay", {"where": arguments.where, "repair": arguments.repair})
    if found is None:
        found = _replay_stopped(arguments)
    summary = f"{counted(found['sent'], 'record')} replayed, {found['refused']} rejected again"
    print(f"{summary}, {found['left']} left because they cannot be replayed." if found["left"] else f"{summary}.")
    return 0


def _replay_stopped(arguments: Arguments) -> dict[str, int]:
    """Open the stopped app for the replay only; its flows are not started."""
    if arguments.file is None:
        hint = "Add the app's SQL file: millpond dead-letters replay FILE"
        raise OptionError("MP310", "The app is not running, so its SQL file is required.", hint=hint)
    from millpond.app.app import App

    app = App(arguments.file, state=arguments.state, variables=dict(arguments.variables))
    try:
        found = app.replay_dead_letters(arguments.where, repair=arguments.repair)
    finally:
        app.stop()
    return {"sent": found.sent, "refused": found.refused, "left": found.left}


COMMAND = Command("dead-letters", "Count the records that were rejected, or replay them.", configure, run)
