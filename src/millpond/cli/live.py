"""The live picture of a running app on a terminal: tables, flows and sources, redrawn in place."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from millpond.errors import Problem, Severity
from millpond.runtime.figures.progress import AppProgress, FlowProgress, SourceProgress, TableProgress

_COLOURS = {
    "missing": "yellow",
    "retrying": "yellow",
    "loading": "cyan",
    "waiting": "cyan",
    "starting": "cyan",
    "catching up": "cyan",
    "ready": "green",
    "running": "green",
    "finished": "green",
    "stale": "yellow",
    "stopping": "yellow",
    "failed": "bold red",
    "disconnected": "red",
    "not_found": "red",
}
_PROBLEM_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


class LiveView:
    """Redraws the picture in place; everything said goes above it, and the last picture stays on the screen."""

    def __init__(self, terminal: TextIO, stdout: TextIO) -> None:
        self._console = Console(file=terminal, force_terminal=True)
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        # Rows on the same terminal must go above the picture; a file or pipe gets them directly.
        self.rows: TextIO = RowsAbove(self._console) if stdout.isatty() else stdout

    def show(self, progress: AppProgress) -> None:
        if not self._live.is_started:
            self._live.start()
        self._live.update(picture(progress), refresh=True)

    def close(self, progress: AppProgress | None) -> None:
        if progress is not None:
            self.show(progress)
        self._live.stop()

    def tell(self, problem: Problem) -> None:
        self._console.print(Text(str(problem), style=_PROBLEM_COLOURS[problem.severity]), soft_wrap=True)

    def say(self, text: str) -> None:
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
        """No: whoever writes here must not send colours or move the cursor."""
        return False


def picture(progress: AppProgress) -> RenderableType:
    """The whole picture of one moment."""
    head = Text.assemble((progress.name, "bold"), "  ", _state(progress.state), f"  {_duration(progress.seconds)}")
    return Group(head, *_grids(progress))


def _grids(progress: AppProgress) -> Iterator[RenderableType]:
    if progress.tables:
        yield _grid("table", ("rows", "version"), ("state", "backend"), map(_table_cells, progress.tables))
    if progress.flows:
        yield _grid("flow", ("rows", "rows/s", "batch ms", "lag"), ("state", "error"), map(_flow_cells, progress.flows))
    if progress.sources:
        yield _grid("source", ("rows", "lag", "bad"), ("state", "health"), map(_source_cells, progress.sources))


def _grid(
    kind: str, numbers: Sequence[str], words: Sequence[str], rows: Iterable[Sequence[RenderableType]]
) -> RenderableType:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    grid.add_column(kind, no_wrap=True, overflow="ellipsis", min_width=16)
    for name in numbers:
        grid.add_column(name, justify="right", no_wrap=True, min_width=9)
    for name in words:
        grid.add_column(name, no_wrap=True, overflow="ellipsis")
    for row in rows:
        grid.add_row(*row)
    return Group(Text(""), grid)


def _table_cells(table: TableProgress) -> tuple[RenderableType, ...]:
    state = f"{table.state} {table.loaded}" if table.state == "loading" and table.loaded else table.state
    return table.name, f"{table.rows:,}", f"{table.version:,}", _state(state), table.backend


def _flow_cells(flow: FlowProgress) -> tuple[RenderableType, ...]:
    speed = (f"{flow.rows:,}", f"{flow.rows_per_s:,.0f}", f"{flow.batch_ms:,.0f}", _number(flow.lag))
    return flow.name, *speed, _state(flow.state), Text(flow.error)


def _source_cells(source: SourceProgress) -> tuple[RenderableType, ...]:
    counts = (f"{source.rows:,}", _number(source.lag), f"{source.bad_records:,}")
    return source.name, *counts, _state(source.state), _state(source.health)


def _state(words: str) -> Text:
    return Text(words, style=_COLOURS.get(words) or _COLOURS.get(words.split(" ")[0], ""))


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
