"""Looking how far topics reach, where there is no Java any more."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from millpond.sources.kafka import lag
from millpond.sources.kafka.lag import Reach

PATIENCE_S = 60.0


def test_a_java_that_is_gone_ends_the_thread_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    raised: list[Any] = []

    def connected(*given: Any) -> Any:
        asked.set()
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(lag, "connected", connected)
    monkeypatch.setattr(threading, "excepthook", raised.append)
    found = Reach(None, {}, tmp_path, None)  # type: ignore[arg-type]
    found.look(None, ("orders",))  # type: ignore[arg-type]
    assert asked.wait(PATIENCE_S)
    assert found._thread is not None
    found._thread.join(PATIENCE_S)
    assert not found._thread.is_alive()
    assert raised == []
