"""Shows an app's progress from a thread of its own while the main thread runs the app."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from millpond.cli.views import View
from millpond.errors import Problem
from millpond.runtime.figures.progress import AppProgress

INTERVAL_S = 0.25


class Watcher:
    """Between entering and leaving, the view is redrawn four times a second; leaving shows the final state.

    Warnings and failures are shown once, when they come up; `told` are those that were shown before, and what `excuses`
    holds for is not shown."""

    def __init__(
        self,
        progress: Callable[[], AppProgress],
        view: View,
        told: Iterable[Problem] = (),
        excuses: Callable[[Problem], bool] = lambda problem: False,
    ) -> None:
        self._excuses = excuses
        self._progress = progress
        self._view = view
        self.told = set(told)
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
            # The terminal has gone; the app goes on without being watched.
            return
        except Exception as error:
            self._failure = error

    def _look(self) -> AppProgress:
        progress = self._progress()
        # What was repaired, and fails again, is told again.
        self.told -= self._failing - set(progress.failures)
        self._failing = set(progress.failures)
        for problem in (*progress.problems, *progress.failures):
            if problem not in self.told and not self._excuses(problem):
                self.told.add(problem)
                self._view.tell(problem)
        return progress
