"""The loop that serves an app: an HTTP server for each address, and threads for the requests."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from millpond.serve.chart_data import record
from millpond.serve.connections import http_server
from millpond.serve.endpoints import Served
from millpond.serve.policy import Policy
from millpond.serve.routes import application

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.serve.postgres.listener import PostgresListener, PostgresPolicy

# Requests in progress at an address; further ones wait for one of them to end.
ANSWERS_MAX = 8
# How long `stop` waits until the addresses are free, and for cancelled requests.
STOP_S = 1.0
# The time limit for clients to read the end of a response.
GRACE_S = 0.5


class ServerLoop:
    """Created and run in the loop; `stop` is called from another thread."""

    def __init__(
        self,
        app: App,
        listeners: Sequence[tuple[socket.socket, Policy]],
        postgres: tuple[socket.socket, PostgresPolicy] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._listeners = [listener for listener, _ in listeners]
        # Each address has its own threads: a busy HTTP port does not block the user's own socket.
        self._served = [Served(app, policy, _threads(), self._stopping) for _, policy in listeners]
        self._postgres = self._postgres_listener(app, *postgres) if postgres is not None else None
        self._servers = [http_server(application(served)) for served in self._served]

    def _postgres_listener(self, app: App, listener: socket.socket, policy: PostgresPolicy) -> PostgresListener:
        from millpond.serve.postgres.listener import PostgresListener

        self._postgres_served = Served(app, policy.policy, _threads(), self._stopping)
        return PostgresListener(self._postgres_served, policy, listener)

    async def run(self) -> None:
        """Runs until it is stopped."""
        pairs = zip(self._servers, self._listeners, strict=True)
        self._tasks = [asyncio.create_task(server.serve([listener])) for server, listener in pairs]
        more = [] if self._postgres is None else [asyncio.create_task(self._postgres.run())]
        recording = [asyncio.create_task(record(served)) for served in self._served if not served.policy.local]
        await asyncio.gather(*self._tasks, *more, return_exceptions=True)
        for task in recording:
            task.cancel()
        failed = [t.exception() for t in (*self._tasks, *more) if not t.cancelled() and t.exception() is not None]
        if failed and not self._stopping.is_set():
            raise failed[0] or AssertionError

    def stop(self) -> None:
        """Stop listening and cancel requests in progress; the addresses are free when this returns."""
        freed = threading.Event()
        self._loop.call_soon_threadsafe(self._end, freed)
        freed.wait(STOP_S)
        every = [*self._served, *([self._postgres_served] if self._postgres is not None else [])]
        for served in every:
            served.pool.shutdown(wait=False, cancel_futures=True)
        wait([future for served in every for future in list(served.working)], STOP_S)

    def _end(self, freed: threading.Event) -> None:
        self._stopping.set()
        for server, task in zip(self._servers, self._tasks, strict=True):
            if not server.started:
                task.cancel()
                continue
            for listening in server.servers:
                listening.close()
            server.should_exit = True
            self._loop.call_later(GRACE_S, setattr, server, "force_exit", True)
        freed.set()


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(ANSWERS_MAX, thread_name_prefix="millpond-answer")
