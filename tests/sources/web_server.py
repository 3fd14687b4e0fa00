"""An HTTP server that answers as a test says, and remembers what it was asked."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Asked:
    """A request: its path with parameters, and its headers by lower-case name."""

    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Says:
    """An answer; `length` is the Content-Length where it is not the body's, None for none."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = -1
    # Called before and after the body is sent.
    before: Callable[[], Any] = lambda: None
    after: Callable[[], Any] = lambda: None


def rows(*found: Any, **headers: str) -> Says:
    """A JSON list."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Says(json.dumps(found).encode(), headers={"Content-Type": "application/json", **given})


class WebServer:
    """`answers` has what is said at each path, or at every other ("*"): an answer, or a function of the request."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self.answers: dict[str, Says | Callable[[Asked], Says]] = {}
        self.asked: list[Asked] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.origin = f"{'http' if certificate is None else 'https'}://127.0.0.1:{self._server.server_port}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, asked: Asked) -> Says:
        self.asked.append(asked)
        found = self.answers.get(asked.path) or self.answers.get(asked.path.partition("?")[0]) or self.answers.get("*")
        if found is None:
            return Says(b"nothing here", 404)
        return found if isinstance(found, Says) else found(asked)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                says = server._answer(Asked(self.path, {n.lower(): v for n, v in self.headers.items()}))
                says.before()
                self.send_response(says.status)
                for name, value in says.headers.items():
                    self.send_header(name, value)
                if says.length is not None and says.status != 304:
                    self.send_header("Content-Length", str(len(says.body) if says.length < 0 else says.length))
                if says.length != -1:
                    self.send_header("Connection", "close")
                    self.close_connection = True
                self.end_headers()
                self.wfile.write(says.body)
                self.wfile.flush()
                says.after()

            def log_message(self, *_: Any) -> None:
                """Nothing is printed."""

        return Handler


@contextmanager
def served(certificate: tuple[Path, Path] | None = None) -> Iterator[WebServer]:
    """A server for the time of a test; with a certificate and its key, by TLS."""
    server = WebServer(certificate)
    try:
        yield server
    finally:
        server.close()
