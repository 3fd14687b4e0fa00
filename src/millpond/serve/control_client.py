"""Requests to a running app through the socket of its state directory, by HTTP as on its port."""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.errors import RunError
from millpond.serve.addresses import same_user
from millpond.serve.problems import error_of

if TYPE_CHECKING:
    import pyarrow as pa

SOCKET_NAME = "socket"
ARROW = "application/vnd.apache.arrow.stream"
# How long a client waits for any response: a query may take long, but an app that is stopped or hangs never responds.
SILENCE_S = 10.0
# How often an app that works on an answer is asked whether it is alive.
LIFE_S = 1.0
AGAIN_S = 0.05

_SILENT_HINT = "Its process is stopped or hangs, or the machine is very busy: check it, or wait longer with --timeout."


class Client:
    """Of the app that listens at a path. Each call is a connection of its own. The app's error is raised; MP711 when it
    does not respond for `silence_s`, MP705 when it ends meanwhile."""

    def __init__(self, path: Path, silence_s: float = SILENCE_S) -> None:
        self._path = path
        self._silence_s = silence_s

    def query(self, sql: str) -> pa.Table | None:
        """The rows of a query; None when no app listens."""
        with self._call("POST", "/api/query", {"sql": sql}, ARROW) as response:
            return None if response is None else _rows(response)

    def run(self, sql: str) -> pa.Table | int | None:
        """The rows of a statement, or the number of rows that it has changed; None when no app listens."""
        with self._call("POST", "/api/query", {"sql": sql}, ARROW) as response:
            if response is None:
                return None
            if response.getheader("content-type") != ARROW:
                return int(json.loads(response.read())["changed"])
            return _rows(response)

    def get(self, path: str) -> dict[str, Any] | None:
        """The JSON response to a GET request; None when no app listens."""
        with self._call("GET", path, {}, "application/json") as response:
            return None if response is None else json.loads(response.read())

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """The JSON response to a request; None when no app listens."""
        with self._call("POST", path, body, "application/json") as response:
            return None if response is None else json.loads(response.read())

    @contextmanager
    def _call(
        self, method: str, path: str, body: Mapping[str, Any], accept: str
    ) -> Iterator[http.client.HTTPResponse | None]:
        try:
            connection = self._connect()
            if connection is None:
                yield None
                return
            with connection:
                yield self._answered(connection, method, path, body, accept)
        except TimeoutError as error:
            message = f"The app that uses {self._path.parent} has not responded for {self._silence_s:g} s."
            raise RunError("MP711", message, hint=_SILENT_HINT) from error
        except (OSError, EOFError, http.client.HTTPException, ValueError) as error:
            raise RunError("MP705", "The app ended before it responded.", hint="Try again.") from error

    def _answered(
        self, connection: socket.socket, method: str, path: str, body: Mapping[str, Any], accept: str
    ) -> http.client.HTTPResponse:
        text = json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\ncontent-type: application/json\r\n"
        connection.sendall(f"{head}content-length: {len(text)}\r\nconnection: close\r\n\r\n".encode() + text)
        self._await_answer(connection)
        response = http.client.HTTPResponse(connection, method=method)
        response.begin()
        if response.status >= 400:
            raise error_of(json.loads(response.read()))
        return response

    def _await_answer(self, connection: socket.socket) -> None:
        """Wait as long as the app is alive: it is asked so beside the request. TimeoutError when it is not."""
        while not select.select([connection], [], [], min(LIFE_S, self._silence_s))[0]:
            beside = self._connect()
            if beside is None:
                raise EOFError
            with beside:
                beside.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                if not beside.recv(1):
                    raise EOFError

    def _connect(self) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Every wait for bytes of the app is as long.
        connection.settimeout(self._silence_s)
        deadline = time.monotonic() + self._silence_s
        while True:
            try:
                connection.connect(os.readlink(self._path) if self._path.is_symlink() else str(self._path))
                break
            except BlockingIOError:
                # As many clients as there is room for wait to be taken.
                if time.monotonic() > deadline:
                    connection.close()
                    raise TimeoutError from None
                time.sleep(AGAIN_S)
            except OSError:
                connection.close()
                return None
        if not same_user(connection):
            connection.close()
            return None
        return connection


def _rows(response: http.client.HTTPResponse) -> pa.Table:
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(_Body(response)) as stream:
            found = stream.read_all()
    except pa.ArrowException as error:
        raise EOFError from error
    # An Arrow stream that is cut between two batches looks like a short result: the end of the body must come.
    response.read()
    return found


class _Body:
    """The body of a response as Arrow reads it: each read returns as many bytes as requested, unless the body ends."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        return self._response.read(None if size < 0 else size)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
