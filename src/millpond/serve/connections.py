"""The clients of the HTTP server: their identity, their timeouts, and their number."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from millpond.serve.addresses import same_user

# The time limit for the head of a request.
HEAD_S = 10.0
# The time limit for a client to read a response.
WRITE_S = 60.0
# How long a connection without a request is kept.
KEEP_ALIVE_S = 30
# The number of open files of a process is limited: clients must leave enough for tables and for Spark.
CONNECTIONS_MAX = 300

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
# uvicorn would log mistakes of clients, which do not belong in the terminal of an app.
_SILENT = logging.getLogger("millpond.serve")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class Connection(H11Protocol):
    """Clients of the Unix socket must belong to the same user. A client whose request does not arrive in time, or that
    does not read its response, is disconnected. If there are too many, the one that has been idle longest is
    disconnected."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.logger = _SILENT
        self.access_log = False
        self._made_at = time.monotonic()
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it has no request in progress."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection.family == socket.AF_UNIX and not same_user(connection):
            transport.abort()
        elif len(self.connections) > CONNECTIONS_MAX and not self._make_room():
            transport.write(_FULL)
            transport.close()
        else:
            self._await_head()

    def _make_room(self) -> bool:
        idle = [c for c in self.connections if isinstance(c, Connection) and c is not self and c.is_idle]
        if idle:
            min(idle, key=lambda c: c._made_at).transport.abort()
        return bool(idle)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            _end(self._reading)
            self._reading = None
        elif self.is_idle and self.conn.trailing_data[0]:
            self._await_head()

    def _await_head(self) -> None:
        if self._reading is None:
            self._reading = self.loop.call_later(HEAD_S, self.transport.abort)

    def on_response_complete(self) -> None:
        self._made_at = time.monotonic()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(WRITE_S, self.transport.abort)

    def resume_writing(self) -> None:
        _end(self._writing)
        self._writing = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        _end(self._reading)
        _end(self._writing)
        super().connection_lost(exc)


def _end(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def http_server(app: ASGIApp) -> uvicorn.Server:
    """A server that runs in our loop, does not change signals and loggers of the process, and prints nothing."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    return uvicorn.Server(config)
