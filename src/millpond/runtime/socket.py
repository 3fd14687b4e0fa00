"""The socket of a running app: one process of the same user asks, the app answers with Arrow.

A request is four bytes of length and a JSON object: `{"sql": ...}`, `{"replay": condition, "repair": expression}`, or
`{"do": "restart" | "apply", ...}` with what that takes. The answer begins with signs of life, one byte each, of which
the first comes at once; then one byte that says what follows, the Arrow stream or JSON itself, and one byte that says
it is complete: an Arrow stream cut between two batches would otherwise look like a short result.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from millpond.errors import MillpondError, RunError
from millpond.redact import redact

SOCKET_NAME = "socket"

# The address of a Unix socket has 104 bytes on some systems and 108 on others, the final zero included.
ADDRESS_BYTES_MAX = 100
REQUEST_BYTES_MAX = 4 * 1024 * 1024
# Answers under way; further requests wait for one of them to end.
ANSWERS_MAX = 16
# Clients that are connected and have not asked yet; beyond it the one that has waited longest is disconnected.
ASKING_MAX = 64
ANSWER_TIMEOUT_S = 60.0
# How often an app shows that it is alive while it works on an answer.
LIFE_S = 1.0

ARROW, JSON, END, LIFE = b"A", b"J", b".", b"~"
LENGTH = struct.Struct(">I")
# What SO_PEERCRED tells: process, user, group.
_CREDENTIALS = struct.Struct("3i")

Answer = Callable[[str], pa.Table]
Replay = Callable[[str | None, str | None], Mapping[str, object]]
StartThread = Callable[[str, Callable[[], None]], object]
# What else an app can be asked to do, by name.
Others = Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, object]]]


class QuerySocket:
    """Answers queries in threads of its own; `answer` may be called from several of them at once. `start_thread` starts
    the one that listens; the app's supervisor notices when it dies."""

    def __init__(
        self,
        path: Path,
        answer: Answer,
        replay: Replay | None = None,
        start_thread: StartThread | None = None,
        *,
        others: Others | None = None,
    ) -> None:
        self.path = path
        self._answer = answer
        self._replay = replay
        self._others = others or {}
        self._start_thread = start_thread or _start_thread
        self._listening: Listening | None = None
        self._folder: str | None = None
        self._room = threading.BoundedSemaphore(ANSWERS_MAX)

    def start(self) -> None:
        """Listen. The caller holds the state directory, so whatever socket is there belongs to a dead process."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            address = self._address()
            listener.bind(address)
            # Nobody can connect before listen(), so there is no moment at which others could.
            os.chmod(address, 0o600)
            listener.listen(ASKING_MAX)
        except OSError as error:
            listener.close()
            self._remove()
            raise RunError(
                "MP805", f"The query socket {self.path} cannot be made: {error.strerror}.", hint=_SOCKET_HINT
            ) from error
        self._listening = Listening(listener, self._serve)
        self._start_thread("query-socket", self._listening.run)

    def stop(self) -> None:
        """Listen no longer; answers under way go on. May be called twice."""
        if self._listening is not None:
            self._listening.stop()
            self._listening = None
            self._remove()

    def _address(self) -> str:
        """Where to bind: the path itself, or when that is too long a short one to which the path is a link."""
        self.path.unlink(missing_ok=True)
        if len(os.fsencode(self.path)) <= ADDRESS_BYTES_MAX:
            return str(self.path)
        self._folder = tempfile.mkdtemp(prefix="millpond-")
        address = os.path.join(self._folder, SOCKET_NAME)
        self.path.symlink_to(address)
        return address

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self, client: Client) -> None:
        """In a thread of its own: work on one request and write the answer."""
        with client.connection, contextlib.suppress(OSError):
            with self._room:
                answer = self._answered(client.request())
            client.begin_answer()
            client.connection.settimeout(ANSWER_TIMEOUT_S)
            with client.connection.makefile("wb") as writer:
                _write_answer(writer, answer)

    def _answered(self, request: Any) -> pa.Table | Mapping[str, object]:
        try:
            match request:
                case {"sql": str(sql)}:
                    return self._answer(sql)
                case {"replay": str() | None as where, "repair": str() | None as repair} if self._replay is not None:
                    return {"replayed": self._replay(where, repair)}
                case {"do": str(name)} if name in self._others:
                    return {"done": self._others[name](request)}
            raise RunError("MP999", "The request is none that this app knows.", hint=_VERSION_HINT)
        except MillpondError as error:
            return _error_json(error)
        except Exception as error:  # the asking process must hear of it, and the app goes on
            return _error_json(RunError("MP999", redact(f"{type(error).__name__}: {error}"), hint=_VERSION_HINT))


class Client:
    """A connection and what has come of its request. One thread reads it, then one thread answers, while the first goes
    on to show that the app is alive."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.setblocking(False)
        self._read = bytearray()
        self._lock = threading.Lock()
        self._answering = False

    def receive(self) -> bool:
        """Take what has come; whether the request is complete. EOFError when it can never be."""
        found = self.connection.recv(65_536)
        if not found:
            raise EOFError
        self._read += found
        return len(self._read) >= LENGTH.size and (self._size > REQUEST_BYTES_MAX or len(self._read) >= self._end)

    def request(self) -> Any:
        """The request; None for one that is none."""
        try:
            return json.loads(self._read[LENGTH.size : self._end]) if self._size <= REQUEST_BYTES_MAX else None
        except ValueError:
            return None

    def show_life(self) -> bool:
        """Let the client know that the app works on its answer; False when there is no need any more."""
        with self._lock, contextlib.suppress(OSError):
            if not self._answering:
                self.connection.send(LIFE)
                return True
        return False

    def begin_answer(self) -> None:
        """From now on only the answer is written."""
        with self._lock:
            self._answering = True

    @property
    def _size(self) -> int:
        return int(LENGTH.unpack_from(self._read)[0])

    @property
    def _end(self) -> int:
        return LENGTH.size + self._size


class Listening:
    """The one thread that takes clients and reads their requests, so that a client that does not ask holds up none."""

    def __init__(self, listener: socket.socket, serve: Callable[[Client], None]) -> None:
        self._listener = listener
        self._serve = serve
        # In the order in which they connected.
        self._asking: dict[socket.socket, Client] = {}
        self._waiting: list[Client] = []
        self._stopped = False

    def stop(self) -> None:
        """From any thread: let `run` end."""
        self._stopped = True
        with contextlib.suppress(OSError):
            # Closing alone does not wake a thread that waits for the next client.
            self._listener.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        """Until it is stopped."""
        with self._listener, selectors.DefaultSelector() as selector:
            self._listener.setblocking(False)
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._stopped:
                ready = [key.fileobj for key, _ in selector.select(LIFE_S)]
                if self._listener in ready:
                    self._accept_all(selector)
                for connection in [c for c in self._asking if c in ready]:
                    self._hear(selector, connection)
                self._waiting = [client for client in self._waiting if client.show_life()]
            for connection in self._asking:
                connection.close()

    def _accept_all(self, selector: selectors.BaseSelector) -> None:
        """Take the clients that have come."""
        while not self._stopped:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                # There is none left; or too many files are open, and the next clients are taken when some are closed.
                return
            self._accept(selector, connection)

    def _accept(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        if not same_user(connection):
            connection.close()
            return
        if len(self._asking) >= ASKING_MAX:
            self._release(selector, next(iter(self._asking))).connection.close()
        self._asking[connection] = Client(connection)
        selector.register(connection, selectors.EVENT_READ)

    def _hear(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        try:
            complete = self._asking[connection].receive()
        except BlockingIOError:
            return
        except (OSError, EOFError):
            self._release(selector, connection).connection.close()
            return
        if complete:
            client = self._release(selector, connection)
            client.show_life()
            self._waiting.append(client)
            threading.Thread(target=self._serve, args=(client,), name="millpond-answer", daemon=True).start()

    def _release(self, selector: selectors.BaseSelector, connection: socket.socket) -> Client:
        selector.unregister(connection)
        return self._asking.pop(connection)


def _start_thread(name: str, work: Callable[[], None]) -> None:
    threading.Thread(target=work, name=f"millpond-{name}", daemon=True).start()


_SOCKET_HINT = "Choose a state directory on a local disk with --state."
_VERSION_HINT = "Ask with the same version of millpond as the app runs."


def same_user(connection: socket.socket) -> bool:
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        # Elsewhere than on Linux the mode of the socket's file alone keeps others out.
        return True
    told = connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(told)[1] == os.getuid())


def _write_answer(writer: BinaryIO, answer: pa.Table | Mapping[str, object]) -> None:
    if isinstance(answer, pa.Table):
        writer.write(ARROW)
        with pa.ipc.new_stream(writer, answer.schema) as stream:
            stream.write_table(answer)
    else:
        text = json.dumps(answer, default=str).encode()
        writer.write(JSON + LENGTH.pack(len(text)) + text)
    writer.write(END)
    writer.flush()


def _error_json(error: MillpondError) -> dict[str, object]:
    return {"exit_code": error.exit_code, "problems": [asdict(problem) for problem in error.problems]}
