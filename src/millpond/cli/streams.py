"""Standard output and error as the commands use them: always there, in UTF-8, and with `--json` nothing but JSON."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from millpond.errors import RunError
from millpond.redact import redact

# What writing to standard output raises when that is full, closed or gone.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EBADF, errno.EIO, errno.EFBIG, errno.ENXIO)
# The longest line that is kept while its end has not come.
LINE_MAX = 65_536
# A process that this one has started may hold the pipe open for longer than this one lives.
FORWARD_S = 1.0


class ErrorStream(io.TextIOBase):
    """Standard error. A disk that is full, or a reader that has gone, is no reason to stop. With `json` a line that is
    no JSON object, whoever prints it, is the text of one: a warning of Python, a thread's trace, a library's log."""

    def __init__(self, out: TextIO, *, json: bool) -> None:
        self._out = out
        self._json = json
        self._lock = threading.RLock()
        # Threads print side by side: each has the beginning of a line of its own.
        self._begun = threading.local()

    def write(self, text: str) -> int:
        if self._json:
            lines = (getattr(self._begun, "text", "") + text).split("\n")
            self._begun.text = lines.pop()
            if len(self._begun.text) > LINE_MAX:
                lines.append(self._begun.text)
                self._begun.text = ""
            self._put("".join(f"{as_json(line)}\n" for line in lines if line.strip()))
        else:
            self._put(text)
        return len(text)

    def flush(self) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._out.flush()

    def fileno(self) -> int:
        return self._out.fileno()

    def isatty(self) -> bool:
        return self._out.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def writable(self) -> bool:
        return True

    def _put(self, text: str) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._out.write(text)
            if self._json:
                self._out.flush()


def as_json(line: str) -> str:
    """A line that is a JSON object as it is, any other as the text of one."""
    if line.startswith("{"):
        with contextlib.suppress(ValueError):
            if isinstance(json.loads(line), dict):
                return line
    return json.dumps({"event": "output", "text": redact(line)}, ensure_ascii=False)


@contextmanager
def standard_streams(*, json: bool) -> Iterator[None]:
    """Inside, standard output and error are there and speak UTF-8, whatever the locale says; with `json` all of
    standard error is JSON."""
    before = sys.stdout, sys.stderr
    _open_missing()
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(encoding="utf-8", errors="backslashreplace")
    with _diverted(sys.stderr) if json else contextlib.nullcontext(sys.stderr) as out:
        sys.stderr = ErrorStream(out, json=json)
        try:
            yield
        finally:
            sys.stderr.flush()
            sys.stdout, sys.stderr = before


def keep_for_good(streams: contextlib.AbstractContextManager[None]) -> None:
    """Enter for the rest of the process: threads and finalizers print after the command has ended too."""
    streams.__enter__()
    _KEPT.append(streams)


_KEPT: list[Any] = []


def unwritable(error: OSError) -> RunError | None:
    """The error of a standard output that cannot be written; None for any other. Nothing more is written to it."""
    if error.errno not in _UNWRITABLE or error.filename is not None:
        return None
    discard_output()
    hint = "See where standard output goes: its disk may be full, or it was closed."
    return RunError("MP805", f"Standard output cannot be written: {error.strerror}.", hint=hint)


def discard_output() -> None:
    """Let standard output go nowhere, or Python would complain about what is left in its buffer at the end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        descriptor = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def _open_missing() -> None:
    """Take the descriptors that are closed: the next file that is opened, a table's log perhaps, must not become
    standard error. Messages then go nowhere; rows that go nowhere are an error."""
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, flags)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


@contextmanager
def _diverted(stream: TextIO) -> Iterator[TextIO]:
    """The stream by a descriptor of its own. What is printed past Python, to descriptor 2 itself, passes through a pipe
    and a thread, which makes JSON of it."""
    try:
        if stream.fileno() != 2:
            raise io.UnsupportedOperation
        copy = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace")
    except (OSError, io.UnsupportedOperation):
        yield stream
        return
    reader, writer = os.pipe()
    # A library that prints much while it holds Python's lock must not wait for a thread that needs it.
    os.set_blocking(writer, False)
    os.dup2(writer, 2)
    os.close(writer)
    forward = threading.Thread(target=_forward, args=(reader, ErrorStream(copy, json=True)), daemon=True)
    forward.start()
    try:
        yield copy
    finally:
        # With this the pipe has no writer left, and the thread ends.
        os.dup2(copy.fileno(), 2)
        forward.join(FORWARD_S)
        copy.flush()


def _forward(descriptor: int, out: ErrorStream) -> None:
    with os.fdopen(descriptor, encoding="utf-8", errors="backslashreplace") as lines:
        for line in lines:
            out.write(f"{line.rstrip()}\n")
