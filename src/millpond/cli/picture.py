"""One moment of a running app as lines that fit a terminal: its state, what failed, flows, tables, sources, warnings.

Nothing is said by colour alone: what needs attention has a `!` before it. When there are more lines than the terminal
has, those that need attention are shown before the others, and a line says how many are left out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from millpond.errors import Problem, Severity
from millpond.runtime.figures.progress import AppProgress, FlowProgress, SourceProgress, TableProgress

FAILURES_MAX = 3
WARNINGS_MAX = 3
NAME_WIDTH_MIN = 12
# A loading table also tells how far it is.
STATE_WIDTH_MAX = 36
# Between two columns.
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
        """Those that fit, in their order; those that need attention before the others."""
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
    """What rich draws; `file` is the SQL file, for what to do next."""

    progress: AppProgress
    file: str | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        above, below = list(self._above(width)), list(self._below(width))
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
            return f"Repair {file} and run 'millpond apply {file}', or try again: 'millpond restart FLOW --app {file}'."
        return f'Ctrl-C stops. Ask with: millpond query "SHOW TABLES" --app {file}'


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
    state = f"{table.state} {table.loaded}" if table.state == "loading" and table.loaded else table.state
    return Line(table.name, (_fitted(state, STATE_WIDTH_MAX), f"{table.rows:,}", f"{table.version:,}", table.backend))


def _source(source: SourceProgress) -> Line:
    counts = (f"{source.rows:,}", _number(source.lag), f"{source.bad_records:,}")
    return Line(source.name, (source.state, source.health, *counts))


def _shared(rows: int, wanted: Sequence[int]) -> list[int]:
    """The lines that there are, dealt out one by one to grids that want more; each has at least two."""
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
