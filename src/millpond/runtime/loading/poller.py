"""One thread that lets sources look for new records and tables for new contents, each at its own pace."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from millpond.runtime.flows.flow import Flow
from millpond.runtime.loading.load import Loader
from millpond.runtime.supervision import Supervisor

TICK_S = 0.02
# To ask Spark whether a query still runs is a call into the JVM, and of many flows it would be one for each.
WATCH_S = 0.2


class Poller:
    """Started when all flows run side by side; ends when asked to, between two polls."""

    def __init__(self, flows: Sequence[Flow], loaders: Sequence[Loader], supervisor: Supervisor) -> None:
        self._flows = flows
        self._loaders = loaders
        self._stop = threading.Event()
        self._due: dict[int, float] = {}
        # Held while flows and tables are looked after.
        self._round = threading.Lock()
        self._thread = supervisor.thread("poller", self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, no source is looked at, and no flow is touched by it."""
        with self._round:
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
            if loader.plan.watch and not loader.is_pending and self._is_due(id(loader), loader.interval_s):
                loader.load()

    def _tend(self, flow: Flow, *, watching: bool) -> None:
        """All that one flow needs now; what goes wrong in it is the failure of that flow."""
        try:
            if watching:
                flow.watch()
            if flow.goes_on:
                flow.renew()
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
