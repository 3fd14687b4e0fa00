"""SQL-file tests: a section of a Markdown document gives files, an app and the rows that must come out.

Blocks are taken in their order. `csv title=in.csv` (any language) writes a file; `sql` writes app.sql and runs it with
`--once`; `run` runs it again on the same state. `csv query="SELECT ..."`, `csv sink=out` and `csv stdout` hold the rows
expected of a query, a file sink and the bare SELECTs of the last run: a header and one line per row, in any order
unless the query has ORDER BY; nothing between commas is NULL, `""` is the empty string. `says` holds texts that the
last run must have told, one per line. `sql exit=2` and `run exit=1` expect that exit code; 0 otherwise.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from millpond.errors import MillpondError
from millpond.rendering import csv_lines
from millpond.runtime.app import App
from millpond.testing.documents import Block, Section

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP = "app.sql"
STATE = "state"
PROCESS_TIMEOUT_S = 300
_NEEDS_QUOTES = re.compile(r'[",\r\n]')


@dataclass(frozen=True)
class Outcome:
    """How one run ended: `stdout` holds the rows of bare SELECTs as JSON lines, `told` everything said to the user."""

    exit: int
    stdout: str
    told: str


class Driver(Protocol):
    """A way to run the app of a folder and to ask its tables."""

    def run(self, folder: Path) -> Outcome: ...

    def query(self, folder: Path, sql: str) -> list[str]: ...


@dataclass(frozen=True)
class InProcess:
    """Runs through Python with a session that is shared by many tests."""

    spark: SparkSession

    def run(self, folder: Path) -> Outcome:
        output = io.StringIO()
        try:
            with self._app(folder, output) as app:
                app.run_once()
                problems = (*app.plan.warnings, *app.progress().problems)
        except MillpondError as error:
            return Outcome(error.exit_code, output.getvalue(), str(error))
        return Outcome(0, output.getvalue(), "\n".join(map(str, problems)))

    def query(self, folder: Path, sql: str) -> list[str]:
        with self._app(folder, io.StringIO()) as app:
            return list(csv_lines(app.query(sql).to_arrow()))

    @contextmanager
    def _app(self, folder: Path, output: io.StringIO) -> Iterator[App]:
        app = App(folder / APP, state=folder / STATE, spark=self.spark, settings={"json": "true"}, output=output)
        try:
            yield app
        finally:
            app.stop()


@dataclass(frozen=True)
class CommandLine:
    """Runs `millpond` as a process of its own, as a user would."""

    def run(self, folder: Path) -> Outcome:
        done = self._call(folder, "run", APP, "--once", "--state", STATE, "--no-http", "--json")
        return Outcome(done.returncode, done.stdout, done.stderr)

    def query(self, folder: Path, sql: str) -> list[str]:
        done = self._call(folder, "query", sql, "--state", STATE, "--app", APP, "--format", "csv")
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def _call(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "millpond.cli.main", *arguments]
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=PROCESS_TIMEOUT_S
        )


def run_section(section: Section, folder: Path, driver: Driver) -> None:
    """Do what the blocks say, in order; AssertionError with the block's line where something else comes out."""
    last: Outcome | None = None
    for block in section.blocks:
        where = f"{section.file.name}:{block.line}"
        if block.title:
            _write(folder / block.title, block.body)
        elif block.language in ("sql", "run"):
            if block.language == "sql":
                _write(folder / APP, block.body)
            last = driver.run(folder)
            wanted = int(block.attributes.get("exit", "0"))
            assert last.exit == wanted, f"{where}: exit {last.exit} for {wanted}\n{last.told}"
        elif block.has("query"):
            sql = block.attributes["query"]
            compare(driver.query(folder, sql), block, where, ordered="order by" in sql.lower())
        else:
            assert last is not None, f"{where}: nothing has run yet"
            _check(block, last, folder, where)


def _check(block: Block, last: Outcome, folder: Path, where: str) -> None:
    if block.has("sink"):
        compare(json_as_csv(sink_lines(folder / block.attributes["sink"])), block, where)
    elif block.has("stdout"):
        compare(json_as_csv(last.stdout.splitlines()), block, where)
    elif block.language == "says":
        for text in block.body.splitlines():
            assert text in last.told, f"{where}: never says {text!r}\n{last.told}"
    else:
        raise AssertionError(f"{where}: a block that does nothing")


def compare(got: list[str], block: Block, where: str, *, ordered: bool = False) -> None:
    """Rows as CSV lines with their header against those of a block."""
    wanted = block.body.splitlines()
    if not ordered:
        got, wanted = [*got[:1], *sorted(got[1:])], [*wanted[:1], *sorted(wanted[1:])]
    # No rows, no header: a sink or bare SELECT without rows shows no columns either.
    assert got == wanted or (not got and len(wanted) <= 1), f"{where}: got\n" + "\n".join(got)


def sink_lines(folder: Path) -> list[str]:
    """The lines that a JSON-lines sink has published, in the order of its files."""
    files = sorted(
        f for f in folder.rglob("*.jsonl") if not any(p.startswith(".") for p in f.relative_to(folder).parts)
    )
    return [line for file in files for line in file.read_text("utf-8").splitlines()]


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
