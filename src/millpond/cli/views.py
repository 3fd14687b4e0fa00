"""Views of a running app: a live picture on a terminal, else text lines or JSON, updated by a thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Protocol, Self, TextIO

from millpond.cli.lines import JsonView, LineView, LogView, QuietView
from millpond.engine.progress import AppProgress
from millpond.errors import Problem

INTERVAL_S = 0.25


class Watcher:
    """Updates a view four times a second while it is entered; leaving shows the final state.

    Warnings and failures are shown once, when they occur; `reported` were shown before, and those that `excuses`
    accepts are not shown."""

    def __init__(
        self,
        progress: Callable[[], AppProgress],
        view: View,
        reported: Iterable[Problem] = (),
        excuses: Callable[[Problem], bool] = lambda problem: False,
    ) -> None:
        self._excuses = excuses
        self._progress = progress
        self._view = view
        self.reported = set(reported)
        self._failing: set[Problem] = set()
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        last = None if self._failure or isinstance(error, KeyboardInterrupt) else self._look()
        self._view.close(last)
        if self._failure is not None and error is None:
            raise self._failure

    def _watch(self) -> None:
        try:
            while not self._ended.wait(INTERVAL_S):
                self._view.show(self._look())
        except OSError:
            # The terminal was closed; the app continues without a view.
            return
        except Exception as error:
            self._failure = error

    def _look(self) -> AppProgress:
        progress = self._progress()
        # A failure that was repaired and occurs again is reported again.
        self.reported -= self._failing - set(progress.failures)
        self._failing = set(progress.failures)
        for problem in (*progress.problems, *progress.failures):
            if problem not in self.reported and not self._excuses(problem):
                self.reported.add(problem)
                self._view.report(problem)
        return progress


class View(Protocol):
    """Shows the progress of an app. Every method may be called from several threads."""

    @property
    def rows(self) -> TextIO:
        """The output for rows of a bare SELECT, so that they do not disturb the view."""

    def show(self, progress: AppProgress) -> None:
        """Called a few times a second."""

    def close(self, progress: AppProgress | None) -> None:
        """Called once, at the end; the last output stays on the screen."""

    def report(self, problem: Problem) -> None:
        """Show a warning or a failure; called once for each, when it occurs."""

    def announce(self, text: str) -> None:
        """Show a sentence for people; not shown to programs."""


def open_view(*, json: bool, file: str | None = None, quiet: bool = False, log: bool = False) -> View:
    """The view for standard error, depending on what it is; `file` is the SQL file, for suggested commands. `quiet`:
    only problems; `log`: a structured log."""
    if quiet:
        return QuietView(sys.stderr, sys.stdout, json=json or log)
    if log:
        return LogView(sys.stderr, sys.stdout)
    if json:
        return JsonView(sys.stderr, sys.stdout)
    if not sys.stderr.isatty():
        return LineView(sys.stderr, sys.stdout)
    # Imported here, because rich takes longer to import than most commands take to run.
    from millpond.cli.live import LiveView

    return LiveView(sys.stderr, sys.stdout, file)
