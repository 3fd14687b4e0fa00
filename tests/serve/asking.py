"""Requests to an app over HTTP, as tests send them."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Answered:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of the first problem."""
        return str(self.json["problems"][0]["code"])

    @property
    def message(self) -> str:
        return str(self.json["problems"][0]["message"])


class Browser:
    """Asks the app at a URL; `headers` go with every request."""

    def __init__(self, url: str, **headers: str) -> None:
        self.host, self.port = urlsplit(url).hostname or "", urlsplit(url).port or 0
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def get(self, path: str, **headers: str) -> Answered:
        return self.send("GET", path, None, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answered:
        return self.send("POST", path, body if isinstance(body, bytes) else json.dumps(body or {}).encode(), **headers)

    def query(self, sql: str, **more: Any) -> Answered:
        return self.post("/api/query", {"sql": sql, **more})

    def send(self, method: str, path: str, body: bytes | None, **headers: str) -> Answered:
        with closing(http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)) as connection:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, {**self._headers, **named})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answered(response.status, found, response.read())

    @contextmanager
    def events(self, path: str, **headers: str) -> Iterator[Events]:
        """An event stream; its connection is closed at the end."""
        with closing(http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)) as connection:
            connection.request("GET", path, headers={name.replace("_", "-"): v for name, v in headers.items()})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield Events(response)

    def raw(self) -> socket.socket:
        """A connection to write anything to."""
        return socket.create_connection((self.host, self.port), timeout=PATIENCE_S)


@dataclass(frozen=True)
class Event:
    """One server-sent event."""

    kind: str
    id: str | None
    data: Any


class Events:
    """The events of a stream, one after another; comments are left out."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def next(self) -> Event:
        """The next event; EOFError when there is none any more."""
        while True:
            fields: dict[str, str] = {}
            while (line := self._response.readline().decode()).strip():
                name, _, value = line.rstrip("\n").partition(": ")
                fields[name] = value
            if not line:
                raise EOFError
            if "event" in fields:
                return Event(fields["event"], fields.get("id"), json.loads(fields["data"]))
