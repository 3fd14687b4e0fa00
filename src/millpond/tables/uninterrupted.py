"""A stretch of work that Ctrl-C waits for: between the log and the tables a commit cannot stop half way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted() -> Iterator[None]:
    """An interrupt that comes meanwhile is handled at the end. Python interrupts only its main thread."""
    on_main = threading.current_thread() is threading.main_thread()
    if not on_main or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    caught: list[FrameType | None] = []
    usual = signal.signal(signal.SIGINT, lambda _, frame: caught.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if caught and callable(usual):
            usual(signal.SIGINT, caught[0])
