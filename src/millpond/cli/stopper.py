"""Ctrl-C and SIGTERM: the first asks the app to finish its batch and stop, the next ends the process at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from millpond.errors import Problem

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# `timeout`, and a shell that ends its jobs, signal a process and then its group: within this time that is one signal.
TOGETHER_S = 0.5
SPARK_FAILED = "MP705"


class Stopper:
    """Holds the signals while it is entered; `received` is the first that came."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first_at: float | None = None
        self.received: signal.Signals | None = None
        self.failure: Exception | None = None
        self._stop: Callable[[], None] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        # Python takes signals in its main thread only; elsewhere, as in a test, they stay with whoever holds them.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._take) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def on_first(self, stop: Callable[[], None]) -> None:
        """What the first signal does from now on; before this is called, a signal ends the process at once."""
        self._stop = stop

    @property
    def exit_code(self) -> int:
        """What a process that was stopped at once returns, as shells expect it."""
        return 128 + (self.received or signal.SIGINT)

    def excuses(self, problem: Problem) -> bool:
        """Whether a failure only follows from the stop: whoever ends a service signals Java too, and that Spark then
        ends in the middle of a batch is no failure, for the batch is done again at the next start."""
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
        # Not in this thread: it may stand anywhere, with any lock in its hand.
        threading.Thread(target=self._ask, args=(self._stop,), name="stopper", daemon=True).start()

    def _ask(self, stop: Callable[[], None]) -> None:
        try:
            stop()
        except Exception as error:
            self.failure = error
