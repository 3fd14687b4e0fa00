"""`millpond query`: runs a query on the tables of an app, running or stopped, and writes the rows."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from millpond.cli.command import Arguments, Command, add_app, add_state, add_timeout, add_variables
from millpond.cli.output import counted
from millpond.errors import OptionError, RunError, SqlError, StateError
from millpond.units import parse_duration

if TYPE_CHECKING:
    import pyarrow as pa


FORMATS = ("table", "json", "csv", "arrow")


@dataclass(frozen=True)
class Form:
    """The output format and file of rows; None for standard output."""

    format: str
    exact_numbers: bool = False
    file: str | None = None

    @property
    def is_binary(self) -> bool:
        return self.format == "arrow"


def write_result(table: pa.Table, form: Form) -> None:
    """Write all rows of the table."""
    with _opened(form) as out:
        if form.is_binary:
            _write_arrow(table, out)
        else:
            out.writelines(f"{line}\n".encode() for line in _lines(table, form))
        out.flush()


def _lines(table: pa.Table, form: Form) -> Iterator[str]:
    # Imported here, because it loads Arrow, which `millpond --help` does not need.
    from millpond.rendering import csv_lines, json_lines, text_lines

    if form.format == "json":
        yield from json_lines(table, exact_numbers=form.exact_numbers)
    elif form.format == "csv":
        yield from csv_lines(table)
    else:
        yield from text_lines(table)
        yield f"({counted(table.num_rows, 'row')})"


def _write_arrow(table: pa.Table, out: BinaryIO) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)


@contextmanager
def _opened(form: Form) -> Iterator[BinaryIO]:
    if form.file is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    try:
        with open(form.file, "wb") as out:
            yield out
    except OSError as error:
        hint = "Choose another file with -o, or free some space."
        raise RunError("MP805", f"{form.file} cannot be written: {error.strerror}.", hint=hint) from error


# Moves the cursor to the top left and clears the screen and its scrollback.
CLEAR = "\x1b[H\x1b[2J\x1b[3J"
pause = time.sleep


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sql", metavar="SQL", help='one query, such as "SELECT * FROM users" or "SHOW TABLES"; - reads standard input'
    )
    parser.add_argument(
        "--watch", metavar="TIME", help="repeat the query every TIME, such as 2s, until Ctrl-C (exit 130)"
    )
    add_state(parser)
    add_app(parser)
    add_variables(parser)
    parser.add_argument("--format", choices=FORMATS, default="table", help="the output format (table)")
    parser.add_argument(
        "--decimal", choices=("string", "number"), default="string", help="the JSON type of decimals (string)"
    )
    add_timeout(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write rows to a file instead of standard output")


def run(arguments: Arguments) -> int:
    form = Form(arguments.format, arguments.decimal == "number", arguments.output)
    if form.is_binary and form.file is None and sys.stdout.isatty():
        hint = "Write it to a file with -o FILE, or choose another --format."
        raise OptionError("MP310", "Arrow output cannot be written to a terminal.", hint=hint)
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
    """Repeat the query and write its rows: a terminal is cleared before each round, else an empty line separates
    them."""
    before = ""
    while True:
        rows = ask()
        terminal = sys.stdout.isatty()
        sys.stdout.write(heading(sql, interval_s, datetime.now().astimezone()) if terminal else before)
        write_result(rows, form)
        before = "\n"
        pause(interval_s)


def heading(sql: str, interval_s: float, at: datetime) -> str:
    """The line above the rows on a terminal, after clearing it: the interval, the query and the time."""
    return f"{CLEAR}Every {interval_s:g}s: {' '.join(sql.split())}  ({at:%H:%M:%S}, Ctrl-C ends)\n\n"


def read_interval(text: str, form: Form) -> float:
    """The seconds between two rounds; MP310 if the output format does not allow several."""
    from millpond.units import parse_duration

    interval_s = parse_duration(text) / 1_000_000
    if interval_s <= 0:
        raise OptionError(
            "MP310", "The interval of --watch must be longer than zero.", hint="Write it as in: --watch 2s"
        )
    if form.file is not None or form.is_binary:
        message = "--watch cannot write to a file or in Arrow format."
        raise OptionError("MP310", message, hint="Remove --watch, or -o and --format arrow.")
    return interval_s


def read_standard_input() -> str:
    """The text from standard input; MP110 if it is not UTF-8."""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SqlError("MP110", "Standard input is not UTF-8 text.", hint="Pipe in text in UTF-8.") from error


def read_query(text: str, variables: dict[str, str]) -> str:
    """The single query of the text, with variables substituted; raises for anything else."""
    # Imported here, because `--help` should not have to load the parser.
    from millpond.sql.parser import parse_script
    from millpond.sql.statements import Describe, Explain, Select, Show

    script = parse_script(text, file="query", variables={**os.environ, **variables})
    if script.problems:
        raise SqlError.of(script.problems)
    if len(script.statements) != 1:
        several = f"Expected one statement, found {len(script.statements)}."
        message = several if script.statements else "Expected a statement, but the text is empty."
        raise OptionError("MP310", message, hint='Write one, such as: millpond query "SELECT * FROM users"')
    statement = script.statements[0]
    if not isinstance(statement, Select | Show | Describe | Explain):
        hint = "Add it to the app's SQL file, or run it with app.execute in Python."
        raise OptionError(
            "MP310", "This statement is not a query, and 'millpond query' only reads.", place=statement.place, hint=hint
        )
    # As written if possible, so that places in messages refer to the user's own text.
    return statement.text if "${" in text else text


def answer(
    sql: str,
    state: Path,
    app: str | None = None,
    variables: Mapping[str, str] | None = None,
    silence_s: float = 10.0,
) -> pa.Table:
    """The rows of a query, from the app that uses the state directory, or from the stored tables if none does."""
    from millpond.serve.control_client import SOCKET_NAME, Client

    found = Client(state / SOCKET_NAME, silence_s).query(sql)
    if found is not None:
        return found
    from millpond.app.stopped_app import query_state

    return query_state(sql, state=state, app_file=Path(app) if app else None, variables=variables)


def find_state(state: str | None, app: str | None) -> Path:
    """The state directory: the given one, that of the SQL file, or the only one here; MP807 if there is none."""
    from millpond.engine.state_directory import IDENTITY, state_of
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
        raise OptionError("MP310", f"Several apps have state here: {names}.", hint=hint)
    hint = "Choose it with --app FILE or --state DIR, or run an app first: millpond run app.sql --once"
    raise StateError("MP807", f"There is no state of an app in {folder}.", hint=hint)


COMMAND = Command("query", "Query the tables of an app, running or stopped.", configure, run)
