"""The socket of a running app, and the client that asks through it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket as sockets
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.serve.answering import Answer, AnsweringApp, echo, serving

from millpond.errors import BindError, InputError, MillpondError, Place, RunError
from millpond.serve import connections, control_client, loop
from millpond.serve.control_client import SOCKET_NAME, Client
from millpond.serve.server import AppServer

PATIENCE_S = 60.0
REQUEST = b"POST /api/query HTTP/1.1\r\nhost: localhost\r\ncontent-length: 19\r\n\r\n" + b'{"sql": "SELECT 1"}'
Serve = Callable[..., AppServer]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / SOCKET_NAME


@pytest.fixture
def serve(path: Path) -> Iterator[Serve]:
    with contextlib.ExitStack() as started:

        def start(answer: Answer, at: Path = path) -> AppServer:
            return started.enter_context(serving(AnsweringApp(answer), at))

        yield start


def ask(path: Path, sql: str = "SELECT 1", silence_s: float = PATIENCE_S) -> pa.Table | None:
    return Client(path, silence_s).query(sql)


def fails_with(error: Exception) -> Answer:
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


def test_a_result_without_rows_has_its_columns(serve: Serve, path: Path) -> None:
    serve(lambda sql: pa.table({"n": pa.array([], pa.int32())}))
    assert ask(path) == pa.table({"n": pa.array([], pa.int32())})


def test_the_thread_that_listens_ends_with_the_socket(path: Path) -> None:
    threads: list[threading.Thread] = []

    def start(name: str, work: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=work))
        threads[0].start()

    server = AppServer(AnsweringApp(), path, "off", start)  # type: ignore[arg-type]
    server.start()
    assert ask(path) is not None
    server.stop()
    threads[0].join(PATIENCE_S)
    assert not threads[0].is_alive()


def test_a_server_that_is_stopped_at_once_leaves_nothing_behind(path: Path) -> None:
    threads: list[threading.Thread] = []

    def start(name: str, work: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=work))

    server = AppServer(AnsweringApp(), path, "off", start)  # type: ignore[arg-type]
    server.start()
    server.stop()
    threads[0].start()
    threads[0].join(PATIENCE_S)
    assert not threads[0].is_alive()
    assert not path.exists()


def test_nobody_listening_is_no_error(path: Path, serve: Serve) -> None:
    assert ask(path) is None
    serve(echo).stop()
    assert ask(path) is None


def test_a_socket_left_by_a_dead_process_is_nobody_and_is_replaced(path: Path, serve: Serve) -> None:
    with sockets.socket(sockets.AF_UNIX) as dead:
        dead.bind(str(path))
    assert ask(path) is None
    serve(echo)
    assert ask(path) is not None


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


def test_a_bug_in_the_app_is_reported_without_its_secrets_and_the_app_goes_on(
    serve: Serve, path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    serve(fails_with(KeyError("kafka://u:hunter2@h/t")))
    for _ in range(2):
        with pytest.raises(MillpondError, match="KeyError") as caught:
            ask(path)
        assert caught.value.code == "MP999"
        assert "hunter2" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_only_the_user_may_open_the_socket(serve: Serve, path: Path) -> None:
    serve(echo)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_another_user_gets_no_answer(serve: Serve, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(echo)
    monkeypatch.setattr("millpond.serve.addresses.os.getuid", lambda: 4242)
    with sockets.socket(sockets.AF_UNIX) as other:
        other.settimeout(PATIENCE_S)
        other.connect(str(path))
        # The server closes without reading, which a client may see as a reset, or before it has written.
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            other.sendall(REQUEST)
            assert other.recv(65_536) == b""
    assert ask(path) is None


def test_a_state_directory_with_a_long_path_works_too(tmp_path: Path, serve: Serve) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    path = folder / SOCKET_NAME
    server = serve(echo, at=path)
    target = path.readlink()
    assert ask(path) is not None
    server.stop()
    assert not path.is_symlink()
    assert not target.parent.exists()


@pytest.mark.parametrize("cut", [0, 20, 200, -5])
def test_an_app_that_dies_in_the_middle_of_an_answer_is_an_error(path: Path, cut: int) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema({"n": pa.int64()})) as stream:
        stream.write_table(pa.table({"n": [1]}))
    body = sink.getvalue().to_pybytes()
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    whole = head + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"

    with sockets.socket(sockets.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=_answer_once, args=(listener, whole[:cut]))
        thread.start()
        with pytest.raises(RunError, match="ended before it responded"):
            ask(path)
        thread.join()


def _answer_once(listener: sockets.socket, answer: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65_536)
        connection.sendall(answer)


@pytest.mark.parametrize(
    "request_bytes", [b"", b"\x00", b"\xff" * 4, b"GET / HTTP/9\r\n\r\n", REQUEST[:-3], b"{}" * 99]
)
def test_garbage_does_not_stop_the_socket(
    serve: Serve, path: Path, request_bytes: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    serve(echo)
    with sockets.socket(sockets.AF_UNIX) as other:
        other.connect(str(path))
        other.sendall(request_bytes)
        other.shutdown(sockets.SHUT_WR)
        other.recv(65_536)
    assert ask(path) is not None
    assert capfd.readouterr() == ("", "")


def test_several_clients_are_answered_at_once(serve: Serve, path: Path) -> None:
    # Each answer waits for the other, so this passes only when two run side by side.
    both = threading.Barrier(2, timeout=PATIENCE_S)

    def answer(sql: str) -> pa.Table:
        both.wait()
        return echo(sql)

    serve(answer)
    found: list[pa.Table | None] = []
    threads = [threading.Thread(target=lambda: found.append(ask(path))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [table is not None for table in found] == [True, True]


def test_clients_that_never_ask_do_not_delay_others(serve: Serve, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 20)
    serve(echo)
    with contextlib.ExitStack() as idle:
        for _ in range(connections.CONNECTIONS_MAX + loop.ANSWERS_MAX):
            other = idle.enter_context(sockets.socket(sockets.AF_UNIX))
            other.connect(str(path))
        assert ask(path) is not None


def test_a_client_whose_request_does_not_come_is_disconnected(
    serve: Serve, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.05)
    serve(echo)
    for begun in (b"", b"POST /api/que"):
        with sockets.socket(sockets.AF_UNIX) as other:
            other.settimeout(PATIENCE_S)
            other.connect(str(path))
            other.sendall(begun)
            with contextlib.suppress(ConnectionResetError):
                assert other.recv(1) == b""


def test_a_request_that_comes_byte_by_byte_is_answered(serve: Serve, path: Path) -> None:
    serve(echo)
    with sockets.socket(sockets.AF_UNIX) as other:
        other.settimeout(PATIENCE_S)
        other.connect(str(path))
        for byte in REQUEST:
            other.send(bytes([byte]))
        assert other.recv(65_536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_long_query_is_waited_for_as_long_as_the_app_is_alive(
    serve: Serve, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_client, "LIFE_S", 0.01)
    released = threading.Event()
    looks: list[int] = []

    def answer(sql: str) -> pa.Table:
        released.wait(PATIENCE_S)
        return echo(sql)

    connect = Client._connect

    def counted(self: Client) -> sockets.socket | None:
        looks.append(1)
        if len(looks) == 20:
            released.set()
        return connect(self)

    monkeypatch.setattr(Client, "_connect", counted)
    serve(answer)
    assert ask(path) is not None
    assert released.is_set()


def test_an_app_whose_threads_are_all_busy_is_alive(serve: Serve, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_client, "LIFE_S", 0.01)
    released = threading.Event()

    def answer(sql: str) -> pa.Table:
        released.wait(PATIENCE_S)
        return echo(sql)

    serve(answer)
    found: list[pa.Table | None] = []
    threads = [threading.Thread(target=lambda: found.append(ask(path))) for _ in range(loop.ANSWERS_MAX + 2)]
    for thread in threads:
        thread.start()
    with sockets.socket(sockets.AF_UNIX) as other:
        other.settimeout(PATIENCE_S)
        other.connect(str(path))
        other.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert other.recv(12) == b"HTTP/1.1 200"
    released.set()
    for thread in threads:
        thread.join()
    assert [table is not None for table in found] == [True] * len(threads)


SILENT_APP = """
import sys
from pathlib import Path
from tests.serve.answering import AnsweringApp, start_thread
from millpond.serve.server import AppServer
AppServer(AnsweringApp(), Path(sys.argv[1]), "off", start_thread).start()
print("listening", flush=True)
sys.stdin.read()
"""


@pytest.mark.process
def test_an_app_that_is_stopped_by_a_signal_does_not_hold_a_query(path: Path) -> None:
    words = [sys.executable, "-c", SILENT_APP, str(path)]
    app = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert app.stdout is not None
        assert app.stdout.readline() == "listening\n"
        assert ask(path) is not None
        os.kill(app.pid, signal.SIGSTOP)
        with pytest.raises(RunError, match=r"MP711.*has not responded") as caught:
            ask(path, silence_s=0.2)
        assert "--timeout" in caught.value.hint
        os.kill(app.pid, signal.SIGCONT)
        assert ask(path) is not None
    finally:
        app.kill()
        app.communicate()
