"""A process on a pseudo-terminal, as tests type into it and read from it."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 120.0
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[a-zA-Z]|\][^\x07]*\x07|[()][A-Z0-9]|[=>])")


class Terminal:
    """`see` waits for a text in what came since the last text that was seen."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self.process = process
        self._unseen = ""
        self._begun = b""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def see(self, text: str) -> str:
        """What came up to the text; AssertionError if it does not come."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self._unseen:
            remaining = deadline - time.monotonic()
            assert remaining > 0, f"{text!r} did not come, but:\n{self._unseen}"
            assert self._read(remaining), f"the process ended before {text!r}:\n{self._unseen}"
        before, _, self._unseen = self._unseen.partition(text)
        return before

    def end(self) -> int:
        """Read the rest, and return the exit code."""
        while self._read(PATIENCE_S):
            pass
        return self.process.wait(PATIENCE_S)

    def _read(self, timeout_s: float) -> bool:
        """Read more; whether there was more."""
        if not select.select([self._descriptor], [], [], timeout_s)[0]:
            return True
        try:
            found = os.read(self._descriptor, 65_536)
        except OSError:  # how Linux reports the end of a pseudo-terminal
            return False
        self._unseen += _ESCAPES.sub("", (self._begun + found).decode("utf-8", "replace")).replace("\r", "")
        return bool(found)


@contextmanager
def on_terminal(*words: str, folder: Path, columns: int = 100, lines: int = 40) -> Iterator[Terminal]:
    """`millpond` with these words on a terminal of this size; ended at the end."""
    import fcntl
    import struct
    import termios

    def begin() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        # As a script leaves it to what it starts in the background.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "PAGER": "cat"}
    environment |= {"XDG_STATE_HOME": str(folder / "xdg"), "COLUMNS": str(columns), "LINES": str(lines)}
    process = subprocess.Popen(
        [sys.executable, "-m", "millpond.cli.main", *words],
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=begin,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
