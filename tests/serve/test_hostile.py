"""Hostile clients while a flow runs: wrong names, origins and tokens, huge and slow requests, many open streams. The
flow goes on, nobody gets what is not theirs, and others are still answered."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.serve.asking import Browser

import millpond as mp

STREAMS = 200
SLOW = 20
TOKEN = "open-sesame-0123456789"
SQL = """
CREATE STREAM events (n BIGINT) FROM memory://events;
CREATE TABLE t (n BIGINT PRIMARY KEY);
CREATE TABLE total AS SELECT COUNT(*) AS n FROM events;
UPSERT INTO t SELECT n FROM events;
"""
# Sent over and over while the flow runs, and what each is answered.
REQUESTS: tuple[tuple[str, str, dict[str, str], bytes | None, int], ...] = (
    ("GET", "/api/stats", {"host": "evil.example", "authorization": f"Bearer {TOKEN}"}, None, 421),
    ("GET", "/api/stats", {"host": "127.0.0.1.evil.example", "authorization": f"Bearer {TOKEN}"}, None, 421),
    ("POST", "/api/query", {"origin": "https://evil.example", "authorization": f"Bearer {TOKEN}"}, b"{}", 403),
    ("POST", "/api/query", {"origin": "null", "authorization": f"Bearer {TOKEN}"}, b"{}", 403),
    ("GET", "/api/stats", {}, None, 401),
    ("GET", "/metrics", {"authorization": "Bearer wrong"}, None, 401),
    ("GET", "/api/stats", {"authorization": f"Basic {TOKEN}"}, None, 401),
    ("GET", "/api/stats", {"cookie": "millpond_session=guessed"}, None, 401),
    ("POST", "/api/query", {"authorization": f"Bearer {TOKEN}", "content-length": "99999999999"}, b"{}", 413),
    ("POST", "/api/query", {"authorization": f"Bearer {TOKEN}"}, b"[" * 100_000, 400),
    ("POST", "/api/query", {"authorization": f"Bearer {TOKEN}"}, b'{"sql": "DELETE FROM t"}', 403),
    ("GET", "/page/../../../etc/passwd", {"authorization": f"Bearer {TOKEN}"}, None, 404),
)


@pytest.fixture
def app(tmp_path: Path) -> mp.App:
    settings = {"http": "127.0.0.1:0", "http.token": TOKEN}
    return mp.App(sql=SQL, state=tmp_path / "state", settings=settings)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def head(browser: Browser, method: str, path: str, headers: dict[str, str]) -> bytes:
    given = {"host": f"{browser.host}:{browser.port}", "connection": "close", **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def status(browser: Browser, method: str, path: str, headers: dict[str, str], body: bytes | None) -> int:
    length = {} if body is None or "content-length" in headers else {"content-length": str(len(body))}
    with socket.create_connection((browser.host, browser.port), timeout=120) as connection:
        with suppress(OSError):
            connection.sendall(head(browser, method, path, {**headers, **length}) + (body or b""))
        return int(connection.makefile("rb").readline().split()[1])


def test_a_flow_goes_on_while_clients_are_hostile(app: mp.App) -> None:
    over = threading.Event()
    wrong: list[str] = []
    before = open_files()

    def disturb(browser: Browser) -> None:
        while not over.is_set():
            for method, path, headers, body, wanted in REQUESTS:
                got = status(browser, method, path, headers, body)
                if got != wanted:
                    wrong.append(f"{method} {path} {headers}: {got} instead of {wanted}")

    with app, ExitStack() as opened:
        browser = Browser(app.http_url or "", authorization=f"Bearer {TOKEN}")

        def connected() -> socket.socket:
            return opened.enter_context(socket.create_connection((browser.host, browser.port), timeout=120))

        allowed = {"authorization": f"Bearer {TOKEN}"}
        streams = [connected() for _ in range(STREAMS)]
        for stream in streams:
            stream.sendall(head(browser, "GET", "/api/changes/t", allowed))
        for stream in streams:
            assert stream.recv(12) == b"HTTP/1.1 200"
        # Requests that never end, of clients that wait.
        for number in range(SLOW):
            slow = connected()
            part = head(browser, "POST", "/api/query", {**allowed, "content-length": "1000"})
            slow.sendall(part[:20] if number % 2 else part)
        disturbing = [threading.Thread(target=disturb, args=(browser,)) for _ in range(2)]
        for thread in disturbing:
            thread.start()
        feed = app.feed("memory://events")
        for n in range(50):
            feed.send([{"n": n}])
            eventually(lambda n=n: app.table("t").contains(n))  # type: ignore[misc]
        assert browser.get("/health").status == 200
        assert browser.query("SELECT n FROM total").text.strip() == '{"n": 50}'
        over.set()
        for thread in disturbing:
            thread.join(120)
        assert wrong == []
        (flow,) = app.query("SHOW FLOWS").rows()
        assert (flow["state"], flow["error"]) == ("running", "")
        # Both ends of every connection are in this process; requests that were answered have left none behind.
        assert open_files() - before < 2 * (STREAMS + SLOW) + 200
        # Nobody has read the events of these streams: they have them all the same.
        received = b""
        while b"event: change" not in received:
            more = streams[0].recv(65536)
            assert more
            received += more
