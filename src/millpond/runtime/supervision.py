"""What watches over the threads of an app and over Java: whatever of them dies ends the app with a coded error."""

from __future__ import annotations

import threading
from collections.abc import Callable

from millpond.errors import MillpondError
from millpond.runtime.spark.errors import translate
from millpond.runtime.spark.process import has_ended, java_gone

# How often Java is looked for: a system call, without asking Java itself.
LOOK_S = 0.1


class Supervisor:
    """Of one app. `end` is called once, by the thread that noticed, with the first failure; any thread may call any
    method."""

    def __init__(self, end: Callable[[MillpondError], None]) -> None:
        self.failure: MillpondError | None = None
        self._end = end
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None

    def thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        """A thread that does the work; not started yet. If the work raises, the app ends."""
        return threading.Thread(target=self._supervised, args=(work,), name=f"millpond-{name}", daemon=True)

    def watch_java(self) -> None:
        """Notice from now on when Java ends."""
        with self._lock:
            if self._watcher is None:
                self._watcher = self.thread("supervisor", self._watch)
                self._watcher.start()

    def report(self, error: BaseException) -> None:
        """End the app because of an error that nothing else takes care of."""
        with self._lock:
            if self.failure is not None or self._stopped.is_set():
                return
            self.failure = translate(error)
        self._end(self.failure)

    def stop(self) -> None:
        """From now on the app is being stopped, and whatever ends does so because of that."""
        self._stopped.set()

    def _supervised(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.report(error)

    def _watch(self) -> None:
        while not self._stopped.wait(LOOK_S):
            if has_ended():
                self.report(java_gone())
                return
