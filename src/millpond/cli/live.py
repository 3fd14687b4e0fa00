"""The live picture of a running app on a terminal, redrawn in place: what failed first, then flows, tables, sources."""

from __future__ import annotations

import io
import threading
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from millpond.cli.picture import PROBLEM_COLOURS, Picture
from millpond.errors import Problem, Severity
from millpond.runtime.figures.progress import AppProgress


class LiveView:
    """Redraws the picture in place; everything said goes above it, and the last picture stays on the screen."""

    def __init__(self, terminal: TextIO, stdout: TextIO, file: str | None = None) -> None:
        self._console = Console(file=terminal, force_terminal=True)
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._file = file
        # In the picture for as long as there is one; in full below the last one.
        self._failures: list[Problem] = []
        # Rows on the same terminal must go above the picture; a file or pipe gets them directly.
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

    def tell(self, problem: Problem) -> None:
        if problem.severity is Severity.ERROR:
            self._failures.append(problem)
        else:
            self._print(problem)

    def _print(self, problem: Problem) -> None:
        self._console.print(Text(str(problem), style=PROBLEM_COLOURS[problem.severity]), soft_wrap=True)

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
