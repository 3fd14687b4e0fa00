"""The socket of a running app."""

from __future__ import annotations

import contextlib
import os
import signal
import socket as sockets
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.errors import BindError, InputError, MillpondError, Place, RunError
from millpond.runtime import socket
from millpond.runtime.socket import SOCKET_NAME, QuerySocket
from millpond.runtime.socket_client import ask

PATIENCE_S = 60.0
ROWS = pa.table({"sql": ["x"], "n": [1]})
Serve = Callable[..., QuerySocket]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / SOCKET_NAME


@pytest.fixture
def serve(path: Path) -> Iterator[Serve]:
    started: list[QuerySocket] = []

    def start(answer: socket.Answer, at: Path = path) -> QuerySocket:
        server = QuerySocket(at, answer)
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


def echo(sql: str) -> pa.Table:
    return pa.table({"sql": [sql]})


def fails_with(error: Exception) -> socket.Answer:
    def answer(sql: str) -> pa.Table:
        raise error

    return answer


def test_an_app_answers_a_query_with_its_rows(serve: Serve, path: Path) -> None:
    serve(echo)
    assert ask(path, "SELECT 'ü'") == pa.table({"sql": ["SELECT 'ü'"]})


def test_a_result_of_many_batches_arrives_whole(serve: Serve, path: Path) -> None:
    rows = pa.concat_tables([pa.table({"n": range(i, i + 50_000)}) for i in range(0, 500_000, 50_000)])
    serve(lambda sql: rows)
    assert ask(path, "SELECT n FROM t") == rows


def test_the_thread_that_listens_ends_with_the_socket(path: Path) -> None:
    threads: list[threading.Thread] = []

    def start(name: str, work: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=work))
        threads[0].start()

    server = QuerySocket(path, echo, start_thread=start)
    server.start()
    assert ask(path, "SELECT 1") is not None
    server.stop()
    threads[0].join(PATIENCE_S)
    assert not threads[0].is_alive()


def test_nobody_listening_is_no_error(path: Path, serve: Serve) -> None:
    assert ask(path, "SELECT 1") is None
    serve(echo).stop()
    assert ask(path, "SELECT 1") is None


def test_a_socket_left_by_a_dead_process_is_nobody_and_is_replaced(path: Path, serve: Serve) -> None:
    with sockets.socket(sockets.AF_UNIX) as dead:
        dead.bind(str(path))
    assert ask(path, "SELECT 1") is None
    serve(echo)
    assert ask(path, "SELECT 1") is not None


def test_the_apps_error_is_raised_with_code_place_hint_and_exit_code(serve: Serve, path: Path) -> None:
    place = Place("query", 1, 15, 5, "SELECT * FROM usres")
    serve(fails_with(BindError("MP201", "There is no table 'usres'.", place=place, hint="Did you mean 'users'?")))
    with pytest.raises(InputError) as caught:
        ask(path, "SELECT * FROM usres")
    assert (caught.value.code, caught.value.place, caught.value.exit_code) == ("MP201", place, 2)
    assert "^^^^^" in str(caught.value)
    assert "Did you mean 'users'?" in str(caught.value)


def test_a_failure_while_running_has_exit_code_1(serve: Serve, path: Path) -> None:
    serve(fails_with(RunError("MP702", "Two rows.")))
    with pytest.raises(RunError) as caught:
        ask(path, "SELECT (SELECT 1 UNION ALL SELECT 2)")
    assert caught.value.exit_code == 1


def test_a_bug_in_the_app_is_told_without_its_secrets_and_the_app_goes_on(serve: Serve, path: Path) -> None:
    serve(fails_with(KeyError("kafka://u:hunter2@h/t")))
    for _ in range(2):
        with pytest.raises(MillpondError, match="KeyError") as caught:
            ask(path, "SELECT 1")
        assert caught.value.code == "MP999"
        assert "hunter2" not in str(caught.value)


def test_only_the_user_may_open_the_socket(serve: Serve, path: Path) -> None:
    serve(echo)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_another_user_gets_no_answer(serve: Serve, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(echo)
    monkeypatch.setattr(socket.os, "getuid", lambda: 4242)
    request = b'{"sql": "SELECT 1"}'
    with sockets.socket(sockets.AF_UNIX) as client:
        client.connect(str(path))
        # The server closes without reading, which a client may see as a reset, or before it has written.
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            client.sendall(struct.pack(">I", len(request)) + request)
            assert client.recv(65_536) == b""
    assert ask(path, "SELECT 1") is None


def test_a_state_directory_with_a_long_path_works_too(tmp_path: Path, serve: Serve) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    path = folder / SOCKET_NAME
    server = serve(echo, at=path)
    target = path.readlink()
    assert ask(path, "SELECT 1") is not None
    server.stop()
    assert not path.is_symlink()
    assert not target.parent.exists()


def test_an_app_that_dies_in_the_middle_of_an_answer_is_an_error(path: Path) -> None:
    sink = pa.BufferOutputStream()
    stream = pa.ipc.new_stream(sink, ROWS.schema)
    stream.write_table(ROWS)
    half = b"A" + sink.getvalue().to_pybytes()

    with sockets.socket(sockets.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=_answer_once, args=(listener, half))
        thread.start()
        with pytest.raises(RunError, match="ended while it answered"):
            ask(path, "SELECT 1")
        thread.join()


def _answer_once(listener: sockets.socket, answer: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65_536)
        connection.sendall(answer)


@pytest.mark.parametrize("request_bytes", [b"", b"\x00", b"\xff" * 4, struct.pack(">I", 3) + b"[1]", b"\0\0\0\2{{"])
def test_garbage_does_not_stop_the_socket(serve: Serve, path: Path, request_bytes: bytes) -> None:
    serve(echo)
    with sockets.socket(sockets.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(request_bytes)
        client.shutdown(sockets.SHUT_WR)
        client.recv(65_536)
    assert ask(path, "SELECT 1") is not None


def test_several_clients_are_answered_at_once(serve: Serve, path: Path) -> None:
    # Each answer waits for the other, so this passes only when two run side by side.
    both = threading.Barrier(2, timeout=PATIENCE_S)

    def answer(sql: str) -> pa.Table:
        both.wait()
        return echo(sql)

    serve(answer)
    found: list[pa.Table | None] = []
    threads = [threading.Thread(target=lambda: found.append(ask(path, "SELECT 1"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [table is not None for table in found] == [True, True]


def test_clients_that_never_ask_hold_up_nobody(serve: Serve, path: Path) -> None:
    serve(echo)
    with contextlib.ExitStack() as idle:
        for _ in range(socket.ASKING_MAX + socket.ANSWERS_MAX):
            client = idle.enter_context(sockets.socket(sockets.AF_UNIX))
            client.connect(str(path))
        assert ask(path, "SELECT 1", silence_s=PATIENCE_S) is not None


def test_a_request_that_comes_byte_by_byte_is_answered(serve: Serve, path: Path) -> None:
    serve(echo)
    request = b'{"sql": "SELECT 1"}'
    with sockets.socket(sockets.AF_UNIX) as client:
        client.connect(str(path))
        for byte in struct.pack(">I", len(request)) + request:
            client.send(bytes([byte]))
        assert client.recv(1) == socket.LIFE


def test_a_long_query_is_waited_for_as_long_as_the_app_is_alive(
    serve: Serve, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "LIFE_S", 0.01)
    released = threading.Event()
    shown: list[bool] = []

    def answer(sql: str) -> pa.Table:
        released.wait(PATIENCE_S)
        return echo(sql)

    show_life = socket.Client.show_life

    def show(client: socket.Client) -> bool:
        shown.append(show_life(client))
        if len(shown) == 50:
            released.set()
        return shown[-1]

    monkeypatch.setattr(socket.Client, "show_life", show)
    serve(answer)
    assert ask(path, "SELECT 1", silence_s=PATIENCE_S) is not None
    assert released.is_set()


SILENT_APP = """
import sys, time, pyarrow as pa
from pathlib import Path
from millpond.runtime.socket import QuerySocket
QuerySocket(Path(sys.argv[1]), lambda sql: pa.table({"n": [1]})).start()
print("listening", flush=True)
sys.stdin.read()
"""


def test_an_app_that_is_stopped_by_a_signal_does_not_hold_a_query(path: Path) -> None:
    words = [sys.executable, "-c", SILENT_APP, str(path)]
    app = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert app.stdout is not None
        assert app.stdout.readline() == "listening\n"
        os.kill(app.pid, signal.SIGSTOP)
        with pytest.raises(RunError, match=r"MP711.*no sign of life") as caught:
            ask(path, "SELECT 1", silence_s=0.2)
        assert "--timeout" in caught.value.hint
        os.kill(app.pid, signal.SIGCONT)
        assert ask(path, "SELECT 1", silence_s=PATIENCE_S) is not None
    finally:
        app.kill()
        app.communicate()
