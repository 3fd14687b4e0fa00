"""`millpond query`: one question to the tables of an app, running or stopped."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.cli.command import Arguments, Command, add_state, add_variables
from millpond.cli.results import FORMATS, Form, write_result
from millpond.errors import OptionError, SqlError, StateError

if TYPE_CHECKING:
    import pyarrow as pa


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sql", metavar="SQL", help='one query, such as "SELECT * FROM users" or "SHOW TABLES"')
    add_state(parser)
    parser.add_argument("--app", metavar="FILE", help="the app's SQL file; its state directory is found by it")
    add_variables(parser)
    parser.add_argument("--format", choices=FORMATS, default="table", help="how rows are written (table)")
    parser.add_argument(
        "--decimal", choices=("string", "number"), default="string", help="how decimals stand in JSON (string)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where rows go instead of standard output")


def run(arguments: Arguments) -> int:
    form = Form(arguments.format, arguments.decimal == "number", arguments.output)
    if form.is_binary and form.file is None and sys.stdout.isatty():
        hint = "Write it to a file with -o FILE, or choose another --format."
        raise OptionError("MP310", "Arrow is not for a terminal.", hint=hint)
    sql = read_query(arguments.sql, dict(arguments.variables))
    state = find_state(arguments.state, arguments.app)
    write_result(answer(sql, state, arguments.app, dict(arguments.variables)), form)
    return 0


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


def answer(sql: str, state: Path, app: str | None = None, variables: Mapping[str, str] | None = None) -> pa.Table:
    """The rows of a query, from the app that holds the state directory or, when none does, from its tables."""
    from millpond.runtime.socket import SOCKET_NAME, ask

    told = ask(state / SOCKET_NAME, sql)
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
