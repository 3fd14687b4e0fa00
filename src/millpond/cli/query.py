"""`millpond query`: one question to the tables of an app, running or stopped."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from millpond.cli.command import Arguments, Command, add_app, add_state, add_timeout, add_variables
from millpond.cli.results import FORMATS, Form, write_result
from millpond.errors import OptionError, SqlError, StateError
from millpond.units import parse_duration

if TYPE_CHECKING:
    import pyarrow as pa

# To the top left, the screen and what was scrolled out of it emptied.
CLEAR = "\x1b[H\x1b[2J\x1b[3J"
pause = time.sleep


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sql", metavar="SQL", help='one query, such as "SELECT * FROM users" or "SHOW TABLES"; - reads standard input'
    )
    parser.add_argument(
        "--watch", metavar="TIME", help="ask again after each TIME, such as 2s, until Ctrl-C (exit 130)"
    )
    add_state(parser)
    add_app(parser)
    add_variables(parser)
    parser.add_argument("--format", choices=FORMATS, default="table", help="how rows are written (table)")
    parser.add_argument(
        "--decimal", choices=("string", "number"), default="string", help="how decimals stand in JSON (string)"
    )
    add_timeout(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="where rows go instead of standard output")


def run(arguments: Arguments) -> int:
    form = Form(arguments.format, arguments.decimal == "number", arguments.output)
    if form.is_binary and form.file is None and sys.stdout.isatty():
        hint = "Write it to a file with -o FILE, or choose another --format."
        raise OptionError("MP310", "Arrow is not for a terminal.", hint=hint)
    interval_s = None if arguments.watch is None else read_interval(arguments.watch, form)
    text = read_standard_input() if arguments.sql == "-" else arguments.sql
    variables = dict(arguments.variables)
    sql = read_query(text, variables)
    state = find_state(arguments.state, arguments.app)
    silence_s = parse_duration(arguments.timeout) / 1_000_000

    def ask() -> pa.Table:
        return answer(sql, state, arguments.app, variables, silence_s)

    if interval_s is not None:
        watch(ask, form, sql, interval_s)
    write_result(ask(), form)
    return 0


def watch(ask: Callable[[], pa.Table], form: Form, sql: str, interval_s: float) -> NoReturn:
    """Ask and write again and again: over each other on a terminal, else with an empty line between two rounds."""
    before = ""
    while True:
        rows = ask()
        terminal = sys.stdout.isatty()
        sys.stdout.write(heading(sql, interval_s, datetime.now().astimezone()) if terminal else before)
        write_result(rows, form)
        before = "\n"
        pause(interval_s)


def heading(sql: str, interval_s: float, at: datetime) -> str:
    """Clears the screen and says what is asked, and when the answer came."""
    return f"{CLEAR}Every {interval_s:g}s: {' '.join(sql.split())}  ({at:%H:%M:%S}, Ctrl-C ends)\n\n"


def read_interval(text: str, form: Form) -> float:
    """The seconds between two rounds; MP310 where rounds could not follow each other."""
    from millpond.units import parse_duration

    interval_s = parse_duration(text) / 1_000_000
    if interval_s <= 0:
        raise OptionError("MP310", "--watch needs a time above zero.", hint="Write it as in: --watch 2s")
    if form.file is not None or form.is_binary:
        message = "--watch writes to standard output, as table, json or csv."
        raise OptionError("MP310", message, hint="Leave out --watch, or -o and --format arrow.")
    return interval_s


def read_standard_input() -> str:
    """The text that is piped in; MP110 for what is not text."""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SqlError("MP110", "Standard input is not UTF-8 text.", hint="Pipe in text in UTF-8.") from error


def read_query(text: str, variables: dict[str, str]) -> str:
    """The one query in the text, variables put in; anything else is an error."""
    # The parser is heavier than everything that `--help` needs.
    from millpond.sql.parser import parse_script
    from millpond.sql.statements import Describe, Explain, Select, Show

    script = parse_script(text, file="query", variables={**os.environ, **variables})
    if script.problems:
        raise SqlError.of(script.problems)
    if len(script.statements) != 1:
        several = f"There are {len(script.statements)} statements here; query takes one."
        message = several if script.statements else "There is no statement here."
        raise OptionError("MP310", message, hint='Write one, such as: millpond query "SELECT * FROM users"')
    statement = script.statements[0]
    if not isinstance(statement, Select | Show | Describe | Explain):
        hint = "Write changes into the app's SQL file, or make them with app.execute in Python."
        raise OptionError("MP310", "This changes something; query only reads.", place=statement.place, hint=hint)
    # As written if possible, so that places in messages are those of the user's own text.
    return statement.text if "${" in text else text


def answer(
    sql: str,
    state: Path,
    app: str | None = None,
    variables: Mapping[str, str] | None = None,
    silence_s: float = 10.0,
) -> pa.Table:
    """The rows of a query, from the app that holds the state directory or, when none does, from its tables."""
    from millpond.runtime.socket import SOCKET_NAME
    from millpond.runtime.socket_client import ask

    told = ask(state / SOCKET_NAME, sql, silence_s)
    if told is not None:
        return told
    from millpond.runtime.reading import query_state

    return query_state(sql, state=state, app_file=Path(app) if app else None, variables=variables)


def find_state(state: str | None, app: str | None) -> Path:
    """The state directory that is meant: given, that of the SQL file, or the only one here; MP807 without one."""
    from millpond.runtime.keeping.state import IDENTITY, state_of
    from millpond.settings import TOML, environment_name, load_settings

    state = state or (os.environ.get(environment_name("state")) if app is None else None)
    if state is None and app is None:
        return _only_state(Path.cwd(), IDENTITY)
    file = Path(app or "")
    path = state_of(file, state, load_settings({}, os.environ, file.resolve().parent / TOML))
    if not (path / IDENTITY).is_file():
        name = app or "app.sql"
        raise StateError(
            "MP807", f"There is no state in {path}.", hint=f"Run the app first: millpond run {name} --once"
        )
    return path


def _only_state(folder: Path, identity: str) -> Path:
    found = sorted(path.parent for path in folder.glob(f".millpond/*/{identity}"))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(path.name for path in found)
        hint = f"Choose one with --app FILE or --state DIR, such as --state {found[0].relative_to(folder)}"
        raise OptionError("MP310", f"There is the state of several apps here: {names}.", hint=hint)
    hint = "Say where it is with --app FILE or --state DIR, or run an app first: millpond run app.sql --once"
    raise StateError("MP807", f"There is no state of an app in {folder}.", hint=hint)


COMMAND = Command("query", "Ask the tables of an app, running or stopped.", configure, run)
