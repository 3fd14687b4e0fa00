"""The polling thread: polls sources for new records and tables for new contents, each at its own interval."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from millpond.app.shared_views import SharedViews
from millpond.engine.flow import Flow
from millpond.engine.load import Loader
from millpond.engine.supervision import Supervisor

TICK_S = 0.02
# Asking Spark whether a query still runs is a call into the JVM for each flow, so it is done less often than polling.
WATCH_S = 0.2


class Poller:
    """Started when all flows run concurrently; stops between two polls."""

    def __init__(
        self, flows: Sequence[Flow], loaders: Sequence[Loader], shared: SharedViews, supervisor: Supervisor
    ) -> None:
        self._flows = flows
        self._loaders = loaders
        self._shared = shared
        self._stop = threading.Event()
        self._due: dict[int, float] = {}
        # Locked during each round of polls.
        self._round = threading.Lock()
        self._loading: dict[int, threading.Thread] = {}
        self._supervisor = supervisor
        self._thread = supervisor.thread("poller", self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._end_loads()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, the poller does not access any source or flow."""
        with self._round:
            self._end_loads()
            yield

    def _run(self) -> None:
        while not self._stop.wait(TICK_S):
            with self._round:
                self._look_after_all()

    def _look_after_all(self) -> None:
        watching = self._is_due(id(self), WATCH_S)
        for flow in self._flows:
            self._tend(flow, watching=watching)
        for loader in self._loaders:
            loader.follow()
            if loader.is_due:
                self._begin(loader, f"load-{loader.plan.name}", loader.load)
        if self._shared.is_due:
            self._begin(self._shared, "shared-views", self._shared.refresh)

    def _begin(self, owner: object, name: str, work: Callable[[], None]) -> None:
        """In a thread of its own: a source may take its time, and no other thread waits for it."""
        busy = self._loading.get(id(owner))
        if busy is None or not busy.is_alive():
            self._loading[id(owner)] = self._supervisor.thread(name, work)
            self._loading[id(owner)].start()

    def _end_loads(self) -> None:
        for thread in self._loading.values():
            thread.join()
        self._loading.clear()

    def _tend(self, flow: Flow, *, watching: bool) -> None:
        """Poll one flow; an error makes only that flow fail."""
        try:
            if watching:
                flow.watch()
            flow.rest()
            flow.retry()
            if flow.reader is not None and self._is_due(id(flow), flow.reader.interval_s):
                flow.poll()
        except Exception as error:
            flow.failed(error)

    def _is_due(self, what: int, interval_s: float) -> bool:
        now = time.monotonic()
        if self._due.get(what, 0.0) > now:
            return False
        self._due[what] = now + interval_s
        return True
