"""S3 servers for the tests: versitygw, which scripts/system.sh builds, else moto, which verifies neither signatures nor
regions nor clocks; and a relay before a server, in which a test delays, cuts and changes what passes."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.ports import free_ports

REGION = "us-east-1"
ACCESS, SECRET = "test", "test-secret"
START_S = 60.0
INSTALL = "versitygw is not there (scripts/system.sh s3 builds it)"
# Headers of one connection, which a relay does not pass on.
OWN = ("connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "date", "server")


def versitygw() -> Path | None:
    """The server's program, as scripts/system.sh keeps it."""
    named = os.environ.get("MILLPOND_S3_SERVER", "~/.cache/millpond/versitygw/versitygw")
    path = Path(named).expanduser()
    return path if path.exists() else None


class Versity:
    """Buckets in a folder of its own; `start` and `stop` may follow each other."""

    checks_requests = True

    def __init__(self, program: Path) -> None:
        self._program = program
        self.folder = Path(tempfile.mkdtemp(prefix="millpond-s3-"))
        (self.folder / "data").mkdir()
        (self.folder / "users").mkdir()
        (self.port,) = free_ports(1)
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = ["--access", ACCESS, "--secret", SECRET, "--region", REGION, "--port", f"127.0.0.1:{self.port}"]
        kept = ["--quiet", "--health", "/health", "--iam-dir", str(self.folder / "users")]
        command = [str(self._program), *options, *kept, "posix", str(self.folder / "data")]
        with (self.folder / "log.txt").open("ab") as log:
            how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self._process = subprocess.Popen(command, cwd=self.folder, start_new_session=True, **how)
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"versitygw does not start:\n{(self.folder / 'log.txt').read_text()[-3000:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def add_user(self, access: str, secret: str) -> None:
        """A user who owns nothing."""
        login = ["--access", ACCESS, "--secret", SECRET, "--endpoint-url", self.endpoint, "--region", REGION]
        user = ["create-user", "--access", access, "--secret", secret, "--role", "user"]
        subprocess.run([str(self._program), "admin", *login, *user], check=True, capture_output=True, timeout=60)

    def fill(self, bucket: str, folder: str, bodies: Iterator[bytes]) -> None:
        """Many small objects, n.jsonl, at once: they are files of the server's folder."""
        where = self.folder / "data" / bucket / folder
        where.mkdir(parents=True)
        for number, body in enumerate(bodies):
            (where / f"{number}.jsonl").write_bytes(body)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Moto:
    """The same in this process; also a server of queues, to which its buckets send events."""

    checks_requests = False

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"

    def start(self) -> None:
        """It runs since it was made."""

    def fill(self, bucket: str, folder: str, bodies: Iterator[bytes]) -> None:
        import boto3

        keys = {"aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET, "region_name": REGION}
        client: Any = boto3.client("s3", endpoint_url=self.endpoint, **keys)
        for number, body in enumerate(bodies):
            client.put_object(Bucket=bucket, Key=f"{folder}/{number}.jsonl", Body=body)

    def remove(self) -> None:
        self._server.stop()


@contextmanager
def s3_server() -> Iterator[Versity | Moto]:
    program = versitygw()
    if program is None:
        warnings.warn(f"{INSTALL}: moto takes its place, with which less is tested", stacklevel=2)
    server: Versity | Moto = Moto() if program is None else Versity(program)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@dataclass(frozen=True)
class Passing:
    """A request on its way to the server, or its answer on the way back; `cut` ends the connection after so many
    bytes of the body."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    status: int = 0
    cut: int | None = None


class QuietServer(ThreadingHTTPServer):
    """A client that has gone is no error here."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing is printed."""


def unchanged(passing: Passing) -> Passing:
    return passing


class Relay:
    """Passes requests to a server; a test sets `forth` and `back`, which may change, delay or replace what passes."""

    def __init__(self, endpoint: str) -> None:
        self._target = endpoint.removeprefix("http://")
        self.forth: Callable[[Passing], Passing] = unchanged
        self.back: Callable[[Passing], Passing] = unchanged
        self.passed: list[Passing] = []
        self._server = QuietServer(("127.0.0.1", 0), self._handler())
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: Passing) -> Passing:
        """What the server answers, changed as the test has it."""
        self.passed.append(request)
        request = self.forth(request)
        if request.status:
            return request
        connection = http.client.HTTPConnection(self._target, timeout=60)
        try:
            connection.request(request.method, request.path, request.body, dict(request.headers))
            answer = connection.getresponse()
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in OWN}
            found = replace(request, headers=headers, body=answer.read(), status=answer.status)
        finally:
            connection.close()
        return self.back(found)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                # The host is a part of what is signed: the server is asked under the name of the relay.
                asked = Passing(self.command, self.path, dict(self.headers), body)
                answer = relay.answer(asked)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    if name.lower() != "content-length":
                        self.send_header(name, value)
                length = answer.headers.get("Content-Length", str(len(answer.body)))
                self.send_header("Content-Length", length if self.command == "HEAD" else str(len(answer.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body[: answer.cut])
                self.close_connection = answer.cut is not None or self.close_connection

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

            def log_message(self, *_: Any) -> None:
                """Nothing is printed."""

        return Handler
