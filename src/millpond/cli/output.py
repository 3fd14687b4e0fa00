"""Standard output and error of the commands: problems as text or JSON lines, always in UTF-8."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import json as json_module
import os
import sys
import threading
import traceback
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from millpond.errors import MillpondError, Problem, RunError
from millpond.redact import redact


def print_problems(problems: Iterable[Problem], *, json: bool = False, file: TextIO | None = None) -> None:
    """Print each problem once, in order, with its excerpt; to standard error by default."""
    out = file or sys.stderr
    for problem in dict.fromkeys(problems):
        print(problem_line(problem) if json else str(problem), file=out)
    out.flush()


def print_errors(
    errors: Iterable[BaseException], *, json: bool, debug: bool, reported: Collection[Problem] = ()
) -> None:
    """Print each problem of the errors once, to standard error, except those in `reported`; with `debug` also the stack
    traces."""
    found = list(errors)
    problems = (problem for error in found for problem in problems_of(error))
    print_problems((problem for problem in problems if problem not in reported), json=json)
    if debug:
        for error in found:
            print(redact("".join(traceback.format_exception(error))), file=sys.stderr)


def problems_of(error: BaseException) -> tuple[Problem, ...]:
    """The problems of an error; any error that is not Millpond's own is a bug."""
    if isinstance(error, MillpondError):
        return error.problems
    text = redact(" ".join(str(error).split()))
    description = f"{type(error).__name__}: {text}" if text else type(error).__name__
    hint = "Run it again with --debug to see the stack trace, and report it."
    return (Problem("MP999", f"This is a bug in Millpond: {description}", hint=hint),)


def problem_line(problem: Problem) -> str:
    """A problem as one JSON object; `place` is file:line:column, which editors recognize."""
    place = str(problem.place) if problem.place else None
    return json_module.dumps({"event": "problem", **problem.as_json(), "place": place}, ensure_ascii=False)


def counted(count: int, noun: str) -> str:
    """`1 table`, `3 tables`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# Errors of writing to a standard output that is full or closed.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EBADF, errno.EIO, errno.EFBIG, errno.ENXIO)
# The longest incomplete line that is buffered.
LINE_MAX = 65_536
# A child process may keep the pipe open longer than this process lives.
FORWARD_S = 1.0


class ErrorStream(io.TextIOBase):
    """Standard error, which ignores a full disk or a closed pipe. With `json`, a line that is not a JSON object is
    wrapped in one, whatever prints it: a warning of Python, a thread's stack trace, a library's log."""

    def __init__(self, out: TextIO, *, json: bool) -> None:
        self._out = out
        self._json = json
        self._lock = threading.RLock()
        # Threads print concurrently, so each has its own incomplete line.
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
    """A line that is a JSON object unchanged; any other line wrapped in an object."""
    if line.startswith("{"):
        with contextlib.suppress(ValueError):
            if isinstance(json.loads(line), dict):
                return line
    return json.dumps({"event": "output", "text": redact(line)}, ensure_ascii=False)


@contextmanager
def standard_streams(*, json: bool) -> Iterator[None]:
    """Inside, standard output and error exist and use UTF-8, whatever the locale is; with `json` all of standard error
    is JSON."""
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
    """Enter for the rest of the process, because threads and finalizers print after the command has ended too."""
    streams.__enter__()
    _KEPT.append(streams)


_KEPT: list[Any] = []


def unwritable(error: OSError) -> RunError | None:
    """The error of a standard output that cannot be written, which is discarded from then on; None for any other
    error."""
    if error.errno not in _UNWRITABLE or error.filename is not None:
        return None
    discard_output()
    hint = "Check where standard output is redirected to: its disk may be full, or it was closed."
    return RunError("MP805", f"Standard output cannot be written: {error.strerror}.", hint=hint)


def discard_output() -> None:
    """Redirect standard output to nowhere, or Python would report an error about its buffer at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        descriptor = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def _open_missing() -> None:
    """Open the standard descriptors that are closed: otherwise the next file that is opened, such as a table's log,
    would become standard error. Messages are discarded then; rows that would be discarded are an error."""
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
    """The stream under a new descriptor. What other code writes to descriptor 2 directly, past Python, goes through a
    pipe to a thread, which converts it to JSON."""
    try:
        if stream.fileno() != 2:
            raise io.UnsupportedOperation
        copy = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace")
    except (OSError, io.UnsupportedOperation):
        yield stream
        return
    reader, writer = os.pipe()
    # A library that prints while it holds the GIL must not block on a full pipe: the reading thread needs the GIL.
    os.set_blocking(writer, False)
    os.dup2(writer, 2)
    os.close(writer)
    forward = threading.Thread(target=_forward, args=(reader, ErrorStream(copy, json=True)), daemon=True)
    forward.start()
    try:
        yield copy
    finally:
        # This closes the pipe's last writer, so that the thread ends.
        os.dup2(copy.fileno(), 2)
        forward.join(FORWARD_S)
        copy.flush()


def _forward(descriptor: int, out: ErrorStream) -> None:
    with os.fdopen(descriptor, encoding="utf-8", errors="backslashreplace") as lines:
        for line in lines:
            out.write(f"{line.rstrip()}\n")
