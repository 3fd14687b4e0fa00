"""Asking a running app through its socket: its rows, or its error."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from millpond.errors import InputError, MillpondError, Place, Problem, RunError, Severity
from millpond.runtime.socket import ARROW, END, LENGTH, LIFE, same_user

# How long a client waits for a sign of life: a query may take long, an app that is stopped or hangs never answers.
SILENCE_S = 10.0
AGAIN_S = 0.05

_SILENT_HINT = "Its process is stopped, hangs, or the machine is very busy: look at it, or wait longer with --timeout."


def ask(path: Path, sql: str, silence_s: float = SILENCE_S) -> pa.Table | None:
    """The rows of a query from the app that listens at `path`, None when nobody does; the app's error is raised. MP711
    when the app gives no sign of life for `silence_s`."""
    answer = _exchange(path, {"sql": sql}, silence_s)
    return cast("pa.Table | None", answer)


def ask_replay(
    path: Path, where: str | None, repair: str | None, silence_s: float = SILENCE_S
) -> dict[str, int] | None:
    """Let the app that listens at `path` send dead letters again; what became of them, None when nobody listens."""
    answer = _exchange(path, {"replay": where, "repair": repair}, silence_s)
    return None if answer is None else cast("dict[str, int]", answer["replayed"])


def ask_to(path: Path, name: str, given: Mapping[str, object], silence_s: float = SILENCE_S) -> dict[str, Any] | None:
    """Let the app that listens at `path` do something; what came of it, None when nobody listens."""
    answer = _exchange(path, {"do": name, **given}, silence_s)
    return None if answer is None else cast("dict[str, Any]", answer["done"])


def _exchange(path: Path, request: Mapping[str, object], silence_s: float) -> Any:
    try:
        connection = _connect(path, silence_s)
        if connection is None:
            return None
        with connection:
            text = json.dumps(request).encode()
            connection.sendall(LENGTH.pack(len(text)) + text)
            with connection.makefile("rb") as reader:
                return _read_answer(reader)
    except TimeoutError as error:
        message = f"The app that holds {path.parent} has given no sign of life for {silence_s:g} s."
        raise RunError("MP711", message, hint=_SILENT_HINT) from error
    except (OSError, EOFError, pa.ArrowException, ValueError) as error:
        raise RunError("MP705", "The app ended while it answered.", hint="Ask again.") from error


def _connect(path: Path, silence_s: float) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Every wait for bytes of the app is as long; while it works on the answer there is one each second.
    connection.settimeout(silence_s)
    deadline = time.monotonic() + silence_s
    while True:
        try:
            connection.connect(os.readlink(path) if path.is_symlink() else str(path))
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


def _read_answer(reader: BinaryIO) -> Any:
    kind = LIFE
    while kind == LIFE:
        kind = _exactly(reader, 1)
    if kind == ARROW:
        with pa.ipc.open_stream(reader) as stream:
            answer = stream.read_all()
    else:
        (length,) = LENGTH.unpack(_exactly(reader, LENGTH.size))
        answer = json.loads(_exactly(reader, length))
    if _exactly(reader, 1) != END:
        raise EOFError
    if isinstance(answer, dict) and "problems" in answer:
        raise _error_of(answer)
    return answer


def _exactly(reader: BinaryIO, size: int) -> bytes:
    found = reader.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _error_of(answer: Mapping[str, Any]) -> MillpondError:
    kind = InputError if answer["exit_code"] == InputError.exit_code else RunError
    return kind.of(_problem(found) for found in answer["problems"])


def _problem(found: Mapping[str, Any]) -> Problem:
    place = Place(**found["place"]) if found["place"] else None
    return Problem(**{**found, "place": place, "severity": Severity(found["severity"])})
