"""The live view of a running app on a terminal: its state, failures, flows, tables, sources and warnings."""

from __future__ import annotations

import io
import textwrap
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from millpond.engine.progress import AppProgress, FlowProgress, SourceProgress, TableProgress
from millpond.errors import Problem, Severity

FAILURES_MAX = 3
WARNINGS_MAX = 3
NAME_WIDTH_MIN = 12
# Bars of tables that are loading.
LOADING_MAX = 5
BAR_WIDTH = 16
BAR_FULL, BAR_EMPTY, BAR_UNKNOWN = "█", "░", "·"
# A loading table also shows its progress.
STATE_WIDTH_MAX = 36
# Spaces between two columns.
GAP = "  "

COLOURS = {
    "missing": "yellow",
    "retrying": "yellow",
    "loading": "cyan",
    "waiting": "cyan",
    "starting": "cyan",
    "catching up": "cyan",
    "ready": "green",
    "running": "green",
    "finished": "green",
    "healthy": "green",
    "stale": "yellow",
    "stopping": "yellow",
    "failed": "bold red",
    "disconnected": "red",
    "not_found": "red",
}
PROBLEM_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
ATTENTION = ("failed", "retrying", "missing", "stale", "disconnected", "not_found")


@dataclass(frozen=True)
class Line:
    """One flow, table or source: its name, and a cell for each column."""

    name: str
    cells: tuple[str, ...]

    @property
    def needs_attention(self) -> bool:
        return any(cell in ATTENTION for cell in self.cells)


@dataclass(frozen=True)
class Grid:
    """Lines under their headings; numbers are set to the right, words to the left."""

    kind: str
    headings: tuple[str, ...]
    words: frozenset[str]
    lines: tuple[Line, ...]

    def drawn(self, width: int, rows: int) -> Iterator[Text]:
        """A heading and at most `rows` lines, none of them wider than `width`."""
        shown = self._chosen(rows)
        widths = [max(len(h), *(len(line.cells[i]) for line in shown)) for i, h in enumerate(self.headings)]
        room = width - 2 - sum(widths) - len(GAP) * len(widths)
        name_width = max(NAME_WIDTH_MIN, min(room, max(len(self.kind), *(len(line.name) for line in shown))))
        heading = self._drawn(Line(self.kind, self.headings), name_width, widths, "dim")
        yield _cut(Text.assemble("  ", heading), width)
        for line in shown:
            mark = Text("! ", style="bold red") if line.needs_attention else Text("  ")
            yield _cut(Text.assemble(mark, self._drawn(line, name_width, widths, "")), width)
        if len(shown) < len(self.lines):
            yield Text(f"  ... and {len(self.lines) - len(shown)} more", style="dim")

    def _chosen(self, rows: int) -> Sequence[Line]:
        """As many lines as fit, in their order; those that need attention take precedence."""
        if len(self.lines) <= rows:
            return self.lines
        ranked = sorted(range(len(self.lines)), key=lambda i: not self.lines[i].needs_attention)
        return [self.lines[i] for i in sorted(ranked[: max(rows - 1, 1)])]

    def _drawn(self, line: Line, name_width: int, widths: Sequence[int], style: str) -> Text:
        text = Text(_fitted(line.name, name_width).ljust(name_width), style=style)
        for heading, cell, width in zip(self.headings, line.cells, widths, strict=True):
            padded = cell.ljust(width) if heading in self.words else cell.rjust(width)
            text.append(GAP + padded, style=style or COLOURS.get(cell) or COLOURS.get(cell.split(" ")[0], ""))
        return text


@dataclass(frozen=True)
class Picture:
    """The picture that rich renders; `file` is the SQL file, for the suggested next command."""

    progress: AppProgress
    file: str | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        above, below = [*self._above(width), *loading(self.progress, width)], list(self._below(width))
        grids = _grids(self.progress)
        # Each grid has an empty line and a heading; one line stays free for the cursor.
        rows = _shared(
            options.size.height - 1 - len(above) - len(below) - 2 * len(grids), [len(grid.lines) for grid in grids]
        )
        yield from above
        for grid, most in zip(grids, rows, strict=True):
            yield Text("")
            yield from grid.drawn(width, most)
        yield from below

    def _above(self, width: int) -> Iterator[Text]:
        progress, trouble = self.progress, self.progress.trouble
        failed = bool(progress.failures) or "failed" in trouble
        state = f"{progress.state}, {trouble}" if trouble else progress.state
        colour = "bold red" if failed else "bold yellow" if trouble else COLOURS.get(progress.state, "")
        mark = Text("! ", style="bold red") if trouble else Text("")
        head = Text.assemble(mark, (progress.name, "bold"), GAP, (state, colour), GAP, _duration(progress.seconds))
        yield _cut(head, width)
        for problem in progress.failures[:FAILURES_MAX]:
            hint = [f"  hint: {problem.hint}"] if problem.hint else []
            for text in (f"! {_in_one_line(problem)}", *hint):
                yield from _wrapped(text, width, "red")
        if len(progress.failures) > FAILURES_MAX:
            yield Text(f"  ... and {len(progress.failures) - FAILURES_MAX} more failures", style="red")

    def _below(self, width: int) -> Iterator[Text]:
        warnings = [p for p in self.progress.problems if p.severity is Severity.WARNING][-WARNINGS_MAX:]
        if warnings:
            yield Text("")
            yield Text("  last warnings", style="dim")
        for problem in warnings:
            yield _cut(Text(f"  {_in_one_line(problem)}", style="yellow"), width)
        if self.file is not None and self.progress.state == "running":
            yield Text("")
            yield from _wrapped(f"  {self._next_step(self.file)}", width, "dim")

    def _next_step(self, file: str) -> str:
        if self.progress.failures:
            return (
                f"Correct {file} and run 'millpond apply {file}', or retry with 'millpond restart FLOW --app {file}'."
            )
        page = f"Page: {self.progress.url}  " if self.progress.url else ""
        return f'{page}Ctrl-C stops. Query with: millpond query "SHOW TABLES" --app {file}'


def loading(progress: AppProgress, width: int) -> Iterator[Text]:
    """A bar for each table that is loading, with its share, speed and remaining time."""
    tables = [table for table in progress.tables if table.state == "loading" and table.load is not None]
    names = max((len(table.name) for table in tables[:LOADING_MAX]), default=0)
    if tables:
        yield Text("")
    for table in tables[:LOADING_MAX]:
        assert table.load is not None
        share = table.load.done / table.load.total if table.load.total else None
        bar = BAR_UNKNOWN * BAR_WIDTH if share is None else bar_of(share)
        percent = "    " if share is None else f"{min(share, 1.0):4.0%}"
        name = _fitted(table.name, 20).ljust(min(names, 20))
        yield _cut(Text.assemble("  ", name, "  ", (bar, "cyan"), f" {percent}  {table.load}"), width)
    if len(tables) > LOADING_MAX:
        yield Text(f"  ... and {len(tables) - LOADING_MAX} more tables are loading", style="dim")


def bar_of(share: float) -> str:
    """A share between 0 and 1 as a bar of fixed width."""
    full = round(max(0.0, min(share, 1.0)) * BAR_WIDTH)
    return BAR_FULL * full + BAR_EMPTY * (BAR_WIDTH - full)


def _grids(progress: AppProgress) -> list[Grid]:
    words = frozenset({"state", "backend", "health"})
    found = [
        Grid("flow", ("state", "rows", "rows/s", "batch ms", "lag"), words, tuple(map(_flow, progress.flows))),
        Grid("table", ("state", "rows", "version", "backend"), words, tuple(map(_table, progress.tables))),
        Grid("source", ("state", "health", "rows", "lag", "bad"), words, tuple(map(_source, progress.sources))),
    ]
    return [grid for grid in found if grid.lines]


def _flow(flow: FlowProgress) -> Line:
    speed = (f"{flow.rows:,}", f"{flow.rows_per_s:,.0f}", f"{flow.batch_ms:,.0f}", _number(flow.lag))
    return Line(flow.name, (flow.state, *speed))


def _table(table: TableProgress) -> Line:
    # A table with a bar above needs no second description.
    shown = table.state == "loading" and table.loaded and table.load is None
    state = f"{table.state} {table.loaded}" if shown else table.state
    return Line(table.name, (_fitted(state, STATE_WIDTH_MAX), _number(table.rows), f"{table.version:,}", table.backend))


def _source(source: SourceProgress) -> Line:
    counts = (f"{source.rows:,}", _number(source.lag), f"{source.bad_records:,}")
    return Line(source.name, (source.state, source.health, *counts))


def _shared(rows: int, wanted: Sequence[int]) -> list[int]:
    """Distribute the available lines one by one to the grids that need more; each gets at least two."""
    given = [min(2, want) for want in wanted]
    while sum(given) < rows and given != list(wanted):
        for i, want in enumerate(wanted):
            if given[i] < want and sum(given) < rows:
                given[i] += 1
    return given


def _in_one_line(problem: Problem) -> str:
    where = f" {problem.place}" if problem.place else ""
    return f"{problem.code}{where}  {problem.message}"


def _fitted(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _wrapped(text: str, width: int, style: str) -> Iterator[Text]:
    for line in textwrap.wrap(text, width, subsequent_indent="  "):
        yield Text(line, style=style)


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    return text


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class LiveView:
    """Redraws the picture in place; messages appear above it, and the last picture stays on the screen."""

    def __init__(self, terminal: TextIO, stdout: TextIO, file: str | None = None) -> None:
        self._console = Console(file=terminal, force_terminal=True)
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._file = file
        # Shown in the picture while it is live, and in full below the last one.
        self._failures: list[Problem] = []
        # Rows on the same terminal must appear above the picture; a file or pipe gets them directly.
        self.rows: TextIO = RowsAbove(self._console) if stdout.isatty() else stdout

    def show(self, progress: AppProgress) -> None:
        if not self._live.is_started:
            self._live.start()
        self._failures = [failure for failure in self._failures if failure in progress.failures]
        self._live.update(Picture(progress, self._file), refresh=True)

    def close(self, progress: AppProgress | None) -> None:
        if progress is not None:
            self.show(progress)
        self._live.stop()
        for failure in self._failures:
            self._print(failure)

    def report(self, problem: Problem) -> None:
        if problem.severity is Severity.ERROR:
            self._failures.append(problem)
        else:
            self._print(problem)

    def _print(self, problem: Problem) -> None:
        self._console.print(Text(str(problem), style=PROBLEM_COLOURS[problem.severity]), soft_wrap=True)

    def announce(self, text: str) -> None:
        self._console.print(Text(text, style="dim"), soft_wrap=True)


class RowsAbove(io.TextIOBase, TextIO):
    """A stream whose whole lines appear above the picture."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._begun = ""

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._begun = (self._begun + text).split("\n")
            for line in lines:
                self._console.out(line, highlight=False)
        return len(text)

    def isatty(self) -> bool:
        """False, so that writers do not send colours or move the cursor."""
        return False
