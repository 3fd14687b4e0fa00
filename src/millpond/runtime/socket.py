"""The socket of a running app: one process of the same user asks, the app answers with Arrow.

A request is four bytes of length and a JSON object, `{"sql": ...}` or `{"replay": condition, "repair": expression}`.
The answer is one byte that says what follows, the Arrow stream or JSON itself, and one byte that says it is complete:
an Arrow stream cut between two batches would otherwise look like a short result.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from millpond.errors import InputError, MillpondError, Place, Problem, RunError, Severity
from millpond.redact import redact

SOCKET_NAME = "socket"

# The address of a Unix socket has 104 bytes on some systems and 108 on others, the final zero included.
ADDRESS_BYTES_MAX = 100
REQUEST_BYTES_MAX = 4 * 1024 * 1024
CONNECTIONS_MAX = 16
REQUEST_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 5.0

_ARROW, _JSON, _END = b"A", b"J", b"."
_LENGTH = struct.Struct(">I")
# What SO_PEERCRED tells: process, user, group.
_CREDENTIALS = struct.Struct("3i")

Answer = Callable[[str], pa.Table]
Replay = Callable[[str | None, str | None], Mapping[str, object]]


class QuerySocket:
    """Answers queries in threads of its own; `answer` may be called from several of them at once."""

    def __init__(self, path: Path, answer: Answer, replay: Replay | None = None) -> None:
        self.path = path
        self._answer = answer
        self._replay = replay
        self._listener: socket.socket | None = None
        self._folder: str | None = None
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)

    def start(self) -> None:
        """Listen. The caller holds the state directory, so whatever socket is there belongs to a dead process."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            address = self._address()
            listener.bind(address)
            # Nobody can connect before listen(), so there is no moment at which others could.
            os.chmod(address, 0o600)
            listener.listen(CONNECTIONS_MAX)
        except OSError as error:
            listener.close()
            self._remove()
            raise RunError(
                "MP805", f"The query socket {self.path} cannot be made: {error.strerror}.", hint=_SOCKET_HINT
            ) from error
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), name="query-socket", daemon=True).start()

    def stop(self) -> None:
        """Listen no longer; answers under way go on. May be called twice."""
        if self._listener is None:
            return
        with contextlib.suppress(OSError):
            # Closing alone does not wake a thread that waits in accept().
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._listener = None
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

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._room.acquire()
            threading.Thread(target=self._serve, args=(connection,), name="query-answer", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError, EOFError):
                if not _same_user(connection):
                    return
                connection.settimeout(REQUEST_TIMEOUT_S)
                with connection.makefile("rb") as reader:
                    request = _read_request(reader)
                connection.settimeout(ANSWER_TIMEOUT_S)
                with connection.makefile("wb") as writer:
                    _write_answer(writer, self._answered(request))
        finally:
            self._room.release()

    def _answered(self, request: Any) -> pa.Table | Mapping[str, object]:
        try:
            match request:
                case {"sql": str(sql)}:
                    return self._answer(sql)
                case {"replay": str() | None as where, "repair": str() | None as repair} if self._replay is not None:
                    return {"replayed": self._replay(where, repair)}
            raise RunError("MP999", "The request is none that this app knows.", hint=_VERSION_HINT)
        except MillpondError as error:
            return _error_json(error)
        except Exception as error:  # the asking process must hear of it, and the app goes on
            return _error_json(RunError("MP999", redact(f"{type(error).__name__}: {error}"), hint=_VERSION_HINT))


_SOCKET_HINT = "Choose a state directory on a local disk with --state."
_VERSION_HINT = "Ask with the same version of millpond as the app runs."


def ask(path: Path, sql: str) -> pa.Table | None:
    """The rows of a query from the app that listens at `path`, None when nobody does; the app's error is raised."""
    answer = _exchange(path, {"sql": sql})
    return cast("pa.Table | None", answer)


def ask_replay(path: Path, where: str | None, repair: str | None) -> dict[str, int] | None:
    """Let the app that listens at `path` send dead letters again; what became of them, None when nobody listens."""
    answer = _exchange(path, {"replay": where, "repair": repair})
    return None if answer is None else cast("dict[str, int]", answer["replayed"])


def _exchange(path: Path, request: Mapping[str, object]) -> Any:
    connection = _connect(path)
    if connection is None:
        return None
    with connection:
        text = json.dumps(request).encode()
        try:
            connection.sendall(_LENGTH.pack(len(text)) + text)
            with connection.makefile("rb") as reader:
                return _read_answer(reader)
        except (OSError, EOFError, pa.ArrowException, ValueError) as error:
            raise RunError("MP705", "The app ended while it answered.", hint="Ask again.") from error


def _connect(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(CONNECT_TIMEOUT_S)
    try:
        connection.connect(os.readlink(path) if path.is_symlink() else str(path))
    except OSError:
        connection.close()
        return None
    if not _same_user(connection):
        connection.close()
        return None
    # A query takes as long as it takes; a dead app closes the connection.
    connection.settimeout(None)
    return connection


def _same_user(connection: socket.socket) -> bool:
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        # Elsewhere than on Linux the mode of the socket's file alone keeps others out.
        return True
    told = connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(told)[1] == os.getuid())


def _read_request(reader: BinaryIO) -> Any:
    (length,) = _LENGTH.unpack(_exactly(reader, _LENGTH.size))
    if length > REQUEST_BYTES_MAX:
        return None
    try:
        return json.loads(_exactly(reader, length))
    except ValueError:
        return None


def _exactly(reader: BinaryIO, size: int) -> bytes:
    found = reader.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _write_answer(writer: BinaryIO, answer: pa.Table | Mapping[str, object]) -> None:
    if isinstance(answer, pa.Table):
        writer.write(_ARROW)
        with pa.ipc.new_stream(writer, answer.schema) as stream:
            stream.write_table(answer)
    else:
        text = json.dumps(answer, default=str).encode()
        writer.write(_JSON + _LENGTH.pack(len(text)) + text)
    writer.write(_END)
    writer.flush()


def _read_answer(reader: BinaryIO) -> Any:
    kind = _exactly(reader, 1)
    if kind == _ARROW:
        with pa.ipc.open_stream(reader) as stream:
            answer = stream.read_all()
    else:
        (length,) = _LENGTH.unpack(_exactly(reader, _LENGTH.size))
        answer = json.loads(_exactly(reader, length))
    if _exactly(reader, 1) != _END:
        raise EOFError
    if isinstance(answer, dict) and "problems" in answer:
        raise _error_of(answer)
    return answer


def _error_json(error: MillpondError) -> dict[str, object]:
    return {"exit_code": error.exit_code, "problems": [asdict(problem) for problem in error.problems]}


def _error_of(answer: Mapping[str, Any]) -> MillpondError:
    kind = InputError if answer["exit_code"] == InputError.exit_code else RunError
    return kind.of(_problem(found) for found in answer["problems"])


def _problem(found: Mapping[str, Any]) -> Problem:
    place = Place(**found["place"]) if found["place"] else None
    return Problem(**{**found, "place": place, "severity": Severity(found["severity"])})
