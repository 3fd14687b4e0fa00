"""The supervisor of an app's threads and of Java: if one of them dies, it ends the app with a coded error."""

from __future__ import annotations

import threading
from collections.abc import Callable

from millpond.engine.spark.process import has_ended, java_gone
from millpond.engine.spark.spark_errors import translate
from millpond.errors import MillpondError

# The interval of checks that Java is alive, which take only a system call.
LOOK_S = 0.1


class Supervisor:
    """The supervisor of one app. `end` is called once, with the first failure, by the thread that detected it; all
    methods are thread-safe."""

    def __init__(self, end: Callable[[MillpondError], None]) -> None:
        self.failure: MillpondError | None = None
        self._end = end
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None

    def thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        """A thread for some work, not started yet. If the work raises, the app ends."""
        return threading.Thread(target=self._supervised, args=(work,), name=f"millpond-{name}", daemon=True)

    def watch_java(self) -> None:
        """Start to watch Java."""
        with self._lock:
            if self._watcher is None:
                self._watcher = self.thread("supervisor", self._watch)
                self._watcher.start()

    def report(self, error: BaseException) -> None:
        """End the app because of an unhandled error."""
        with self._lock:
            if self.failure is not None or self._stopped.is_set():
                return
            self.failure = translate(error)
        self._end(self.failure)

    def stop(self) -> None:
        """Called when the app is stopped: failures from now on are consequences of that, and ignored."""
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
