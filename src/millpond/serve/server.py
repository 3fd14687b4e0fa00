"""The thread that serves an app: its control socket and its HTTP port, in one loop.

Addresses are bound when the app starts, so that errors are reported; the libraries are loaded in the thread. The engine
never waits for it."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.contracts.server import StartThread
from millpond.serve.addresses import AUTO, OFF, Address, UnixSocket, listen, listen_at_first_free, parse_address
from millpond.serve.policy import Policy, network_policy

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.serve.loop import ServerLoop
    from millpond.serve.postgres.listener import PostgresPolicy


class AppServer:
    """The server of one run of an app. `socket_path` is None for an app in a temporary directory, which no client could
    find."""

    def __init__(self, app: App, socket_path: Path | None, address: str, start_thread: StartThread) -> None:
        self._app = app
        self._unix = UnixSocket(socket_path) if socket_path is not None else None
        self._address = address
        self._start_thread = start_thread
        self._listeners: list[tuple[socket.socket, Policy]] = []
        self._postgres: tuple[socket.socket, PostgresPolicy] | None = None
        self._lock = threading.Lock()
        self._loop: ServerLoop | None = None
        self._stopped = False
        self.url: str | None = None
        # Where clients of PostgreSQL's protocol connect.
        self.postgres_port: int | None = None

    def start(self) -> None:
        """Listen, and serve in a thread."""
        try:
            if self._unix is not None:
                self._listeners.append((self._unix.listen(), Policy()))
            if self._address != OFF:
                self._listeners.append(self._listen_http())
            if self._app.plan.settings["pg"] != OFF:
                self._postgres = self._listen_postgres(self._app.plan.settings["pg"])
        except BaseException:
            self._close()
            raise
        self._start_thread("serve", self._run)

    def _listen_http(self) -> tuple[socket.socket, Policy]:
        given = None if self._address == AUTO else parse_address(self._address, "http")
        policy = network_policy(given or Address("127.0.0.1", 0), self._app.plan.settings)
        listener = listen(given, "http") if given is not None else listen_at_first_free("http")
        host, port = listener.getsockname()[:2]
        shown = socket.gethostname() if host in ("0.0.0.0", "::") else host
        self.url = f"http://{Address(shown, port)}/"
        return listener, policy

    def _listen_postgres(self, text: str) -> tuple[socket.socket, PostgresPolicy]:
        # Loaded here, since most apps do without it.
        from millpond.serve.postgres.listener import postgres_policy

        address = parse_address(text, "pg")
        policy = postgres_policy(address, self._app.plan.settings)
        listener = listen(address, "pg")
        self.postgres_port = listener.getsockname()[1]
        return listener, policy

    def stop(self) -> None:
        """Stop; the addresses are free when this returns."""
        with self._lock:
            self._stopped = True
            loop = self._loop
        if loop is not None:
            loop.stop()
        self._close()

    def _close(self) -> None:
        for listener, _ in self._listeners:
            listener.close()
        if self._postgres is not None:
            self._postgres[0].close()
        if self._unix is not None:
            self._unix.remove()

    def _run(self) -> None:
        """Runs in a thread until it is stopped."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        # Loading it takes a tenth of a second, for which the app need not wait.
        from millpond.serve.loop import ServerLoop

        loop = ServerLoop(self._app, self._listeners, self._postgres)
        with self._lock:
            if self._stopped:
                return
            self._loop = loop
        await loop.run()
