"""Tests of apps in Markdown: a section has input files, an app and the expected rows. `millpond test` runs them.

Blocks are processed in order, in a folder of the section's own:

- `csv title=in.csv` (any language) writes a file, `copy` copies files beside the document: a path or pattern per line.
- `sql` writes app.sql and runs it with `--once`; with `file=../app.sql` the app is that file. `run` runs it again, on
  the same state. `set="N=1 M=2"` has values of ${N} and ${M}, `now=2026-03-01T10:00:00Z` the time: that of commits, by
  which `'state.ttl'` expires, and of current_timestamp(). `exit=1` expects that exit code, and not 0.
- `csv query="SELECT ..."`, `csv sink=out` and `csv stdout` have the expected rows of a query, a file sink and the bare
  SELECTs of the last run: a header and one line per row, in any order unless the query has ORDER BY; an empty field is
  NULL, `""` is the empty string.
- `says` has texts that the last run must have printed, one per line.
- `database url="${DATABASE}"` runs statements in a server of PostgreSQL, those of the block or of `file=schema.sql`;
  variables are those of the environment.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyarrow import parquet

from millpond.app.app import App
from millpond.errors import MillpondError
from millpond.expressions.frames import statement_clock
from millpond.redact import redact
from millpond.rendering import csv_lines
from millpond.sql.split import split_statements
from millpond.testing.documents import Block, Section

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP = "app.sql"
STATE = "state"
PROCESS_TIMEOUT_S = 300
CONNECT_S = 10
_NEEDS_QUOTES = re.compile(r'[",\r\n]')


@dataclass(frozen=True)
class Outcome:
    """The result of one run: `stdout` has the rows of bare SELECTs as JSON lines, `messages` everything else
    printed."""

    exit: int
    stdout: str
    messages: str


@dataclass(frozen=True)
class Conditions:
    """How an app is run: the values of its variables, and the time of commits; None is the real one."""

    variables: Mapping[str, str] = field(default_factory=dict)
    now: float | None = None


class Driver(Protocol):
    """Runs the app of a folder, and queries its tables."""

    def run(self, folder: Path, conditions: Conditions) -> Outcome: ...

    def query(self, folder: Path, sql: str, conditions: Conditions) -> list[str]: ...


@dataclass(frozen=True)
class InProcess:
    """Runs the app in this process. Apps that need Spark share the session that `spark` returns."""

    spark: Callable[[], SparkSession]

    def run(self, folder: Path, conditions: Conditions) -> Outcome:
        output = io.StringIO()
        try:
            with self._app(folder, conditions, output) as app:
                app.run_once()
                problems = (*app.plan.warnings, *app.progress().problems)
        except MillpondError as error:
            return Outcome(error.exit_code, output.getvalue(), str(error))
        return Outcome(0, output.getvalue(), "\n".join(map(str, problems)))

    def query(self, folder: Path, sql: str, conditions: Conditions) -> list[str]:
        with self._app(folder, conditions, io.StringIO()) as app:
            return list(csv_lines(app.query(sql).to_arrow()))

    @contextmanager
    def _app(self, folder: Path, conditions: Conditions, output: io.StringIO) -> Iterator[App]:
        now = conditions.now
        statement_clock.fixed = None if now is None else datetime.fromtimestamp(now, UTC)
        app = App(
            folder / APP,
            state=folder / STATE,
            spark=self.spark,
            variables=conditions.variables,
            settings={"json": "true"},
            output=output,
            clock=None if now is None else lambda: now,
        )
        try:
            yield app
        finally:
            app.stop()
            statement_clock.fixed = None


@dataclass(frozen=True)
class CommandLine:
    """Runs `millpond` as a process of its own, as a user would; it cannot set the time."""

    def run(self, folder: Path, conditions: Conditions) -> Outcome:
        given = _flags(conditions)
        done = self._call(folder, "run", APP, "--once", "--state", STATE, "--no-http", "--json", *given)
        return Outcome(done.returncode, done.stdout, done.stderr)

    def query(self, folder: Path, sql: str, conditions: Conditions) -> list[str]:
        given = _flags(conditions)
        done = self._call(folder, "query", sql, "--state", STATE, "--app", APP, "--format", "csv", *given)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def _call(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "millpond.cli.main", *arguments]
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=PROCESS_TIMEOUT_S
        )


def _flags(conditions: Conditions) -> list[str]:
    return [word for name, value in conditions.variables.items() for word in ("--set", f"{name}={value}")]


@dataclass(frozen=True)
class Failure:
    """A block whose result is not the expected one. `got` has the lines in its place, for a block with rows."""

    block: Block
    message: str
    wanted: tuple[str, ...] = ()
    got: tuple[str, ...] | None = None

    def lines(self) -> Iterator[str]:
        """The message, then each row that is missing (-) or was not expected (+)."""
        yield self.message
        if self.got is None:
            return
        missing, more = _difference(self.wanted, self.got), _difference(self.got, self.wanted)
        yield from (f"  - {line}" for line in missing)
        yield from (f"  + {line}" for line in more)
        if not missing and not more:
            yield "  The rows are the expected ones, in another order:"
            yield from (f"    {line}" for line in self.got)


def _difference(lines: Iterable[str], others: Iterable[str]) -> list[str]:
    """The lines that are not among the others, each as often as it is more there."""
    left = list(others)
    found = []
    for line in lines:
        if line in left:
            left.remove(line)
        else:
            found.append(line)
    return found


def failures(section: Section, folder: Path, driver: Driver) -> Iterator[Failure]:
    """Process the blocks in order, and yield those whose result differs. After a run that ended otherwise than
    expected nothing more is processed."""
    last: Outcome | None = None
    conditions = Conditions()
    for block in section.blocks:
        if block.title:
            _write(folder / block.title, block.body)
        elif block.language == "copy":
            yield from _copy(block, section.file.parent, folder)
        elif block.language == "database":
            yield from _execute(block, _app_text(block, section))
        elif block.language in ("sql", "run"):
            conditions = _conditions(block, conditions)
            if block.language == "sql":
                _write(folder / APP, _app_text(block, section))
            last = driver.run(folder, conditions)
            wanted = int(block.attributes.get("exit", "0"))
            if last.exit != wanted:
                yield Failure(block, f"exit code {last.exit} instead of {wanted}\n{last.messages}")
                return
        elif block.has("query"):
            yield from _compared(block, driver.query(folder, block.attributes["query"], conditions))
        elif last is None:
            yield Failure(block, "nothing has run yet")
        else:
            yield from _checked(block, last, folder)


def run_section(section: Section, folder: Path, driver: Driver) -> None:
    """Process the blocks in order; AssertionError with the block's line if a result differs."""
    for failure in failures(section, folder, driver):
        raise AssertionError(f"{section.file.name}:{failure.block.line}: " + "\n".join(failure.lines()))


def _app_text(block: Block, section: Section) -> str:
    named = block.attributes.get("file")
    return block.body if named is None else (section.file.parent / named).read_text("utf-8")


def _conditions(block: Block, before: Conditions) -> Conditions:
    """Those of a run; `run` has those of the run before unless it has its own."""
    given, now = block.attributes.get("set"), block.attributes.get("now")
    variables = before.variables if given is None and block.language == "run" else _variables(given or "")
    if now is None:
        return Conditions(variables, before.now if block.language == "run" else None)
    moment = datetime.fromisoformat(now)
    return Conditions(variables, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _variables(text: str) -> dict[str, str]:
    return {name: value for name, _, value in (word.partition("=") for word in text.split())}


def _copy(block: Block, base: Path, folder: Path) -> Iterator[Failure]:
    for pattern in block.body.split():
        found = sorted(base.glob(pattern)) if not pattern.startswith("..") else sorted(_from_above(base, pattern))
        if not found:
            yield Failure(block, f"there is no file {pattern}")
        for file in found:
            shutil.copy(file, folder / file.name)


def _execute(block: Block, statements: str) -> Iterator[Failure]:
    """Run statements in a server; those between BEGIN and COMMIT are one transaction."""
    import psycopg

    url = os.path.expandvars(block.attributes.get("url", ""))
    if not url.startswith(("postgresql://", "postgres://")) or "$" in url:
        written = block.attributes.get("url", "")
        yield Failure(block, f'url="{written}" is not an address such as postgresql://user:password@host/database')
        return
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_S) as connection:
            for portion in split_statements(f"{statements};")[0]:
                connection.execute(portion.text.encode())
    except psycopg.Error as error:
        yield Failure(block, redact(f"the server rejects it: {error}".strip()))


def _from_above(base: Path, pattern: str) -> Iterator[Path]:
    above = base
    while pattern.startswith("../"):
        above, pattern = above.parent, pattern.removeprefix("../")
    return above.glob(pattern)


def _checked(block: Block, last: Outcome, folder: Path) -> Iterator[Failure]:
    if block.has("sink"):
        yield from _compared(block, sink_rows(folder / block.attributes["sink"]))
    elif block.has("stdout"):
        yield from _compared(block, json_as_csv(last.stdout.splitlines()))
    elif block.language == "says":
        for text in block.body.splitlines():
            if text not in last.messages:
                yield Failure(block, f"did not print {text!r}\n{last.messages}")
    else:
        yield Failure(block, "a block without effect")


def _compared(block: Block, got: list[str]) -> Iterator[Failure]:
    """Rows as CSV lines with their header against those of a block."""
    wanted = block.body.splitlines()
    if "order by" not in block.attributes.get("query", "").lower():
        got, wanted = [*got[:1], *sorted(got[1:])], [*wanted[:1], *sorted(wanted[1:])]
    # Without rows there is no header either: a sink or bare SELECT without rows shows no columns.
    if got != wanted and (got or len(wanted) > 1):
        name = next(
            f"{name} {block.attributes[name]}".strip() for name in ("query", "sink", "stdout") if block.has(name)
        )
        yield Failure(block, f"other rows than expected: {name}", tuple(wanted), tuple(got))


def sink_rows(folder: Path) -> list[str]:
    """The rows that a file sink has published, as CSV lines with one header, in the order of its files."""
    parts = [file.read_text("utf-8").splitlines() for file in _published(folder, "csv")]
    parts += [list(csv_lines(parquet.read_table(file))) for file in _published(folder, "parquet")]
    return json_as_csv(sink_lines(folder)) or [line for n, part in enumerate(parts) for line in part[bool(n) :]]


def sink_lines(folder: Path) -> list[str]:
    """The lines that a JSON-lines sink has published, in the order of its files."""
    return [line for file in _published(folder, "jsonl") for line in file.read_text("utf-8").splitlines()]


def _published(folder: Path, ending: str) -> list[Path]:
    found = sorted(folder.rglob(f"*.{ending}"))
    return [file for file in found if not any(part.startswith(".") for part in file.relative_to(folder).parts)]


def json_as_csv(lines: Iterable[str]) -> list[str]:
    """JSON lines as CSV lines; numbers keep their digits."""
    rows = [json.loads(line, parse_float=str) for line in lines if line.strip()]
    return [",".join(map(_field, rows[0])), *(",".join(map(_field, row.values())) for row in rows)] if rows else []


def _field(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return '"' + text.replace('"', '""') + '"' if text == "" or _NEEDS_QUOTES.search(text) else text


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
