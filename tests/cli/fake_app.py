"""An app without Spark, as the real commands see it; the test's Script says what it does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from millpond.engine.progress import AppProgress, FlowProgress, SourceProgress, TableProgress
from millpond.errors import MillpondError, Problem


def progress(
    state: str = "running",
    *,
    seconds: float = 1.0,
    rows: int = 0,
    table_state: str = "ready",
    flow_state: str = "running",
    error: str = "",
    problems: tuple[Problem, ...] = (),
    failures: tuple[Problem, ...] = (),
) -> AppProgress:
    """An app of one table, one flow and one source at one moment."""
    table = TableProgress("users", table_state, rows, rows, "memory", "user_id", "1 of 3", None, 0)
    flow = FlowProgress("trades", "trades", flow_state, 2, 1, rows, 1234.5, 45.6, 7, error)
    source = SourceProgress("trades", "file", flow_state, "healthy", rows, None, None, 0, 2)
    return AppProgress("app", state, seconds, (table,), (flow,), (source,), problems, failures=failures)


@dataclass
class Script:
    """What the app of a test does and what it was reported."""

    warnings: tuple[Problem, ...] = ()
    failures: tuple[MillpondError, ...] = ()
    run: Callable[[Any], None] = lambda app: None
    shows: Callable[[], AppProgress] = progress
    opened: dict[str, Any] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)


def app_class(script: Script) -> type:
    """The class that takes the place of App."""

    class App:
        def __init__(self, file: str | None = None, **given: Any) -> None:
            script.opened = {"file": file, **given}
            self.output = given["output"]
            self.plan = SimpleNamespace(warnings=script.warnings)
            self.asked_to_stop = threading.Event()

        @property
        def failures(self) -> tuple[MillpondError, ...]:
            return script.failures

        def run_once(self) -> None:
            script.calls.append("run_once")
            script.run(self)

        def start(self) -> None:
            script.calls.append("start")

        def wait(self) -> None:
            script.calls.append("wait")
            script.run(self)

        def stop(self) -> None:
            script.calls.append("stop")

        def request_stop(self) -> None:
            script.calls.append("request_stop")
            self.asked_to_stop.set()

        def progress(self) -> AppProgress:
            return script.shows()

    return App
