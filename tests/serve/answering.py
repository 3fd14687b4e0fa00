"""An app without tables behind a real server: it answers as a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from millpond.app.queries import Cancellation
from millpond.engine.progress import AppProgress, FlowProgress
from millpond.serve.server import AppServer
from millpond.settings import load_settings

Answer = Callable[[str], pa.Table]


def echo(sql: str) -> pa.Table:
    return pa.table({"sql": [sql]})


class AnsweringApp:
    """`asked` are the texts that it was asked, `changes` what `apply` answers."""

    def __init__(self, answer: Answer = echo, settings: Mapping[str, str] | None = None) -> None:
        self.plan = SimpleNamespace(settings=load_settings(settings or {}, {}))
        self.state = "running"
        self.asked: list[str] = []
        self.given: list[tuple[str, dict[str, Any]]] = []
        self.error: Exception | None = None
        self.changes: dict[str, object] = {}
        self._answer = answer

    def answer(
        self,
        sql: str,
        parameters: Sequence[Any] = (),
        *,
        limit: int | None = None,
        cancellation: Cancellation | None = None,
    ) -> pa.Table:
        self.asked.append(sql)
        return self._answer(sql).slice(0, limit)

    def progress(self) -> AppProgress:
        flow = FlowProgress("orders", "orders", "running", 1, 1, 1, 1.0, 1.0, 0, "")
        return AppProgress("app", self.state, 1.0, flows=(flow,))

    def apply_text(self, text: Any, variables: Mapping[str, str], *, accept: bool) -> dict[str, object]:
        self._do("apply", text=text, variables=variables, accept=accept)
        return self.changes

    def restart(self, flow: str) -> None:
        self._do("restart", flow=flow)

    def _do(self, name: str, **given: Any) -> None:
        self.given.append((name, given))
        if self.error is not None:
            raise self.error


def start_thread(name: str, work: Callable[[], None]) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()


@contextmanager
def serving(app: Any, path: Path | None = None, address: str = "off") -> Iterator[AppServer]:
    """The app behind its socket, its port, or both."""
    server = AppServer(app, path, address, start_thread)
    server.start()
    try:
        yield server
    finally:
        server.stop()
