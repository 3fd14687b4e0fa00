"""How a running app is shown: a live picture on a terminal, else lines, else JSON; one of them per run."""

from __future__ import annotations

import sys
from typing import Protocol, TextIO

from millpond.cli.lines import JsonView, LineView
from millpond.errors import Problem
from millpond.runtime.figures.progress import AppProgress


class View(Protocol):
    """Where progress is shown. Every method may be called from several threads."""

    @property
    def rows(self) -> TextIO:
        """Where the rows of a bare SELECT go, so that they do not disturb what is shown."""

    def show(self, progress: AppProgress) -> None:
        """Called a few times a second."""

    def close(self, progress: AppProgress | None) -> None:
        """Called once, at the end; what is shown last stays on the screen."""

    def tell(self, problem: Problem) -> None:
        """A warning or a failure, at the moment it comes up; called once for each."""

    def say(self, text: str) -> None:
        """A sentence for people; programs have the states."""


def open_view(*, json: bool, file: str | None = None) -> View:
    """The view that fits where standard error goes; `file` is the SQL file, for what to do next."""
    if json:
        return JsonView(sys.stderr, sys.stdout)
    if not sys.stderr.isatty():
        return LineView(sys.stderr, sys.stdout)
    # rich takes longer to import than most commands take to run.
    from millpond.cli.live import LiveView

    return LiveView(sys.stderr, sys.stdout, file)
