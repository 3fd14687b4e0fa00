"""`millpond shell`: statements typed at a prompt, or read from standard input, against an app or a playground."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from millpond.cli.command import Arguments, Command, add_state, add_variables
from millpond.cli.output import counted, print_errors
from millpond.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa
    from prompt_toolkit import PromptSession

    from millpond.cli.shell_target import Target

# Names that a statement can use are read again after this time.
NAMES_S = 2.0
WATCH_DEFAULT = "2s"
HELP = """\
A statement ends with a semicolon and may have several lines. BEGIN; collects
statements, COMMIT; runs them as one transaction, ROLLBACK; forgets them.
Ctrl-C cancels a query or the current line, Ctrl-D leaves.

\\d [NAME]        tables, views and streams, or the columns of one
\\dt              tables with state, rows and version
\\ds              streams
\\df [TEXT]       functions whose names contain a text
\\explain [SQL]   how a statement is evaluated; without SQL, the last one
\\timing          switch the display of times on or off
\\watch [2s]      run the last query again and again; Ctrl-C ends it
\\x               switch between columns and one value per line
\\o [FILE]        write rows to a file (.csv, .jsonl or text); alone, show them
\\demo            bring the trading example into a playground
\\? or \\h         this help
\\q               leave"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", help="the SQL file of the app (the only app here)")
    add_state(parser)
    add_variables(parser)


def run(arguments: Arguments) -> int:
    # Imported here, after the arguments were checked, because it may load Spark.
    from millpond.cli.shell_target import open_target

    target = open_target(arguments.file, arguments.state, dict(arguments.variables))
    shell = Shell(target, debug=arguments.debug)
    try:
        if sys.stdin.isatty():
            # A shell takes Ctrl-C even if whoever started it ignores the signal, as scripts do in the background.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            print(f"{target.greeting}\nEnd statements with ; and see \\? for help.", flush=True)
            shell.read_all(Prompt(shell).lines())
            return 0
        shell.read_all(line.rstrip("\n") for line in sys.stdin)
        return 1 if shell.failures else 0
    finally:
        target.close()


class Leave(Exception):
    """The user leaves."""


@dataclass
class Shell:
    """Takes lines, runs statements and commands, and prints what comes of them."""

    target: Target
    debug: bool = False
    failures: int = 0
    timing: bool = False
    expanded: bool = False
    output: Path | None = None
    last: str = ""
    begun: str = ""
    # The statements of an open transaction.
    transaction: list[str] | None = None
    _names: tuple[float, Mapping[str, Any]] = field(default=(0.0, {}), repr=False)

    def read_all(self, lines: Iterator[str]) -> None:
        """Until the last line, or \\q; a statement at the end needs no semicolon."""
        try:
            for line in lines:
                self.take(line)
            if self.begun.strip():
                self.take(";")
        except Leave:
            return

    def take(self, line: str) -> None:
        """Run what a line completes."""
        from millpond.sql.split import split_statements

        # Not inside of quotes or a comment that an earlier line opened.
        if line.lstrip().startswith("\\") and not split_statements(f"{self.begun}\n;")[1]:
            self._guarded(lambda: self._command(line.strip()))
            return
        statements, self.begun = split_statements(f"{self.begun}\n{line}" if self.begun else line)
        for statement in statements:
            self._guarded(lambda text=statement.text: self.statement(text))  # type: ignore[misc]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except KeyboardInterrupt:
            self.failures += 1
            print("Cancelled.", file=sys.stderr, flush=True)
        except Leave:
            raise
        except Exception as error:
            self.failures += 1
            red = sys.stderr.isatty() and "NO_COLOR" not in os.environ
            sys.stderr.write("\033[31m" if red else "")
            print_errors([error], json=False, debug=self.debug)
            sys.stderr.write("\033[0m" if red else "")
            sys.stderr.flush()

    def statement(self, sql: str) -> None:
        """Run one statement, or add it to the open transaction."""
        from millpond.sql.split import first_word

        word = first_word(sql)
        if word in ("BEGIN", "START") and self.transaction is None:
            self.transaction = []
            print("A transaction begins; its statements run at COMMIT.", flush=True)
        elif word == "ROLLBACK" and self.transaction is not None:
            self.transaction = None
            print("The transaction is discarded.", flush=True)
        elif word in ("COMMIT", "END") and self.transaction is not None:
            statements, self.transaction = self.transaction, None
            self._run("".join(f"{text};\n" for text in ("BEGIN", *statements, "COMMIT")) if statements else "")
        elif self.transaction is not None and word not in ("SELECT", "SHOW", "DESCRIBE", "EXPLAIN", "WITH", "VALUES"):
            self.transaction.append(sql)
            print(f"Statement {len(self.transaction)} of the transaction.", flush=True)
        else:
            self._run(sql)
            self.last = sql

    def _run(self, sql: str) -> None:
        started = time.monotonic()
        found = self.target.run(sql) if sql else 0
        seconds = time.monotonic() - started
        if isinstance(found, int):
            self._names = (0.0, {})
            print(f"{counted(found, 'row')} changed." if found else "Done.", flush=True)
        else:
            self._show(found)
        if self.timing:
            print(f"Time: {seconds * 1000:,.1f} ms", flush=True)

    def _show(self, table: pa.Table) -> None:
        from millpond.cli.shell_rows import Screen, append, show

        if self.output is not None:
            append(table, self.output)
        else:
            show(table, Screen.current(), expanded=self.expanded)

    def names(self) -> Mapping[str, Any]:
        """The names that a statement can use, at most a moment old."""
        read_at, names = self._names
        if not names or time.monotonic() - read_at > NAMES_S:
            try:
                names = self.target.completions()
            except Exception:
                # Completion must not disturb; the statement itself will report what is wrong.
                return names
            self._names = (time.monotonic(), names)
        return names

    # Commands

    def _command(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        command = COMMANDS.get(word.rstrip(";"))
        if command is None:
            hint = f"{did_you_mean(word, COMMANDS)} See: \\?".strip()
            raise OptionError("MP310", f"There is no command '{word}'.", hint=hint)
        command(self, rest.strip().rstrip(";").strip())

    def describe(self, name: str) -> None:
        if name:
            self._show(self._rows(f"DESCRIBE {name}"))
            return
        self._show(self._rows("SHOW TABLES"))
        streams = self._rows("SHOW STREAMS")
        if streams.num_rows:
            self._show(streams)

    def _rows(self, sql: str) -> pa.Table:
        found = self.target.run(sql)
        assert not isinstance(found, int), sql
        return found

    def functions(self, text: str) -> None:
        from millpond.cli.shell_rows import side_by_side

        names = [name for name in self.names().get("functions", []) if text.lower() in name.lower()]
        for line in side_by_side(names, get_terminal_size().columns):
            print(line)
        print(f"({counted(len(names), 'function')})", flush=True)

    def explain(self, sql: str) -> None:
        asked = sql or self.last
        if not asked:
            raise OptionError("MP310", "There is no statement to explain.", hint="Write one: \\explain SELECT ...")
        for line in self._rows(f"EXPLAIN {asked}").column(0).to_pylist():
            print(line)
        sys.stdout.flush()

    def watch(self, interval: str) -> None:
        from millpond.units import parse_duration

        if not self.last:
            raise OptionError("MP310", "There is no query to repeat.", hint="Run one first.")
        seconds = max(parse_duration(interval or WATCH_DEFAULT) / 1_000_000, 0.1)
        try:
            while True:
                print(f"{time.strftime('%H:%M:%S')}  every {seconds:g} s, Ctrl-C ends", flush=True)
                self._run(self.last)
                time.sleep(seconds)
        except KeyboardInterrupt:
            print(flush=True)

    def switch_timing(self, _: str) -> None:
        self.timing = not self.timing
        print(f"Timing is {'on' if self.timing else 'off'}.", flush=True)

    def switch_expanded(self, _: str) -> None:
        self.expanded = not self.expanded
        print("One value per line." if self.expanded else "Columns.", flush=True)

    def write_to(self, file: str) -> None:
        self.output = Path(file).expanduser() if file else None
        if self.output is not None:
            # Emptied now, so that a file that cannot be written is reported here.
            try:
                self.output.write_text("", "utf-8")
            except OSError as error:
                file, self.output = str(self.output), None
                raise OptionError(
                    "MP310", f"{file} cannot be written: {error.strerror}.", hint="Choose another."
                ) from None
        print(f"Rows are written to {file}." if file else "Rows are shown.", flush=True)

    def demo(self, _: str) -> None:
        print(self.target.demo(), flush=True)
        self._names = (0.0, {})

    def help(self, _: str) -> None:
        print(HELP, flush=True)

    def leave(self, _: str) -> None:
        raise Leave


COMMANDS: dict[str, Callable[[Shell, str], None]] = {
    "\\d": Shell.describe,
    "\\dt": lambda shell, _: shell._show(shell._rows("SHOW TABLES")),
    "\\ds": lambda shell, _: shell._show(shell._rows("SHOW STREAMS")),
    "\\df": Shell.functions,
    "\\explain": Shell.explain,
    "\\timing": Shell.switch_timing,
    "\\watch": Shell.watch,
    "\\x": Shell.switch_expanded,
    "\\o": Shell.write_to,
    "\\demo": Shell.demo,
    "\\?": Shell.help,
    "\\h": Shell.help,
    "\\q": Shell.leave,
}


class Prompt:
    """Reads lines from a terminal, with history, colours and completion."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._session = self._made()

    def _made(self) -> PromptSession[str]:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.lexers import PygmentsLexer
        from pygments.lexers.sql import SqlLexer

        from millpond.cli.shell_completion import NameCompleter

        return PromptSession(
            history=_history(),
            lexer=PygmentsLexer(SqlLexer),
            completer=NameCompleter(self._shell.names, COMMANDS),
            complete_while_typing=False,
            enable_history_search=True,
        )

    def lines(self) -> Iterator[str]:
        """Until Ctrl-D; Ctrl-C forgets the lines of an unfinished statement."""
        while True:
            mark = "*" if self._shell.transaction is not None else ""
            name = f"{self._shell.target.name}{mark}"
            try:
                yield self._session.prompt(f"{' ' * len(name)}> " if self._shell.begun else f"{name}> ")
            except KeyboardInterrupt:
                self._shell.begun = ""
            except EOFError:
                return


def _history() -> Any:
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    folder = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "millpond"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = folder / "history"
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


COMMAND = Command("shell", "Query and change the tables of an app at a prompt.", configure, run)
