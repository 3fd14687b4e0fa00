"""Running an app for `run` and `demo`: shown by a view, stopped by signals, with each failure reported once."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from millpond.cli.views import View, Watcher
from millpond.errors import MillpondError, Problem

if TYPE_CHECKING:
    from millpond.app.app import App


SIGNALS = (signal.SIGINT, signal.SIGTERM)
# `timeout`, and a shell that ends its jobs, signal a process and then its group: within this time both count as one.
TOGETHER_S = 0.5
SPARK_FAILED = "MP705"


class Stopper:
    """Handles SIGINT and SIGTERM while it is entered; `received` is the first one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first_at: float | None = None
        self.received: signal.Signals | None = None
        self.failure: Exception | None = None
        self._stop: Callable[[], None] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        # Python handles signals in its main thread only; in another thread, as in a test, the handlers are not changed.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._take) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def on_first(self, stop: Callable[[], None]) -> None:
        """Set what the first signal does from now on; before this is called, a signal ends the process at once."""
        self._stop = stop

    @property
    def exit_code(self) -> int:
        """The exit code of a process that was stopped by a signal, as shells expect it."""
        return 128 + (self.received or signal.SIGINT)

    def excuses(self, problem: Problem) -> bool:
        """Whether a failure is only a consequence of the stop: a service manager signals Java too, and Spark ending in
        the middle of a batch is then no failure, because the batch is repeated at the next start."""
        return self.received is not None and problem.code == SPARK_FAILED

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._first_at is None:
            self._first_at = self._clock()
        elif number == self.received and self._clock() - self._first_at < TOGETHER_S:
            return
        again = self.received is not None
        self.received = self.received or signal.Signals(number)
        if again or self._stop is None:
            raise KeyboardInterrupt
        # Not in this thread, which a signal interrupts anywhere, possibly while it holds a lock.
        threading.Thread(target=self._ask, args=(self._stop,), name="stopper", daemon=True).start()

    def _ask(self, stop: Callable[[], None]) -> None:
        try:
            stop()
        except Exception as error:
            self.failure = error


@dataclass(frozen=True)
class Ended:
    """How an app ended: all failures, and the problems that the view has already shown."""

    failures: list[MillpondError]
    reported: set[Problem]


def watch(app: App, work: Callable[[], None], view: View, stopper: Stopper, reported: Iterable[Problem]) -> Ended:
    """Do the work while the view shows the app, then stop the app."""
    raised: list[MillpondError] = []
    with Watcher(app.progress, view, reported, stopper.excuses) as watcher:
        try:
            work()
        except MillpondError as error:
            raised.append(error)
        except Exception:
            app.stop()
            raise
        # An interrupt is not caught here on purpose: a second one means that the user does not want to wait.
        app.stop()
    if stopper.failure is not None:
        raise stopper.failure
    failures = [f for f in dict.fromkeys([*raised, *app.failures]) if not all(map(stopper.excuses, f.problems))]
    return Ended(failures, watcher.reported)


def leave_at_once(code: int, *, quiet: bool = False) -> NoReturn:
    """End without waiting for the current batch: commits are durable, and the rest is repeated at the next start."""
    sys.stdout.flush()
    if not quiet:
        print("Stopped at once; the next start continues from the last commit.", file=sys.stderr, flush=True)
    # Threads of Spark may wait for each other for a long time; the JVM ends when this process has ended.
    os._exit(code)
