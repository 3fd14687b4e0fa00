"""What a running app tells of itself: frozen figures that the terminal, SHOW, `--json` and Python read."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass, field

from millpond.errors import Problem

# The words of a table's and a flow's state, the same everywhere.
MISSING, RETRYING, LOADING, READY, STALE, FAILED = "missing", "retrying", "loading", "ready", "stale", "failed"
WAITING, RUNNING, STOPPED, FINISHED = "waiting", "running", "stopped", "finished"

RATE_WINDOW_S = 60.0


@dataclass(frozen=True)
class TableProgress:
    """One line of SHOW TABLES."""

    name: str
    state: str
    rows: int
    version: int
    backend: str
    key: str
    loaded: str
    updated_at: float | None
    bytes: int


@dataclass(frozen=True)
class SourceProgress:
    """One line of SHOW SOURCES."""

    name: str
    type: str
    state: str
    health: str
    rows: int
    updated_at: float | None
    lag: int | None
    retries: int
    bad_records: int


@dataclass(frozen=True)
class FlowProgress:
    """One line of SHOW FLOWS; `lag` is what is read but not yet worked on, in batches or records, None if unknown."""

    name: str
    stream: str
    state: str
    statements: int
    batches: int
    rows: int
    rows_per_s: float
    batch_ms: float
    lag: int | None
    error: str


@dataclass(frozen=True)
class AppProgress:
    """An app at one moment; `state` is starting | loading | catching up | running | stopping | stopped | failed."""

    name: str
    state: str
    seconds: float
    tables: tuple[TableProgress, ...] = ()
    flows: tuple[FlowProgress, ...] = ()
    sources: tuple[SourceProgress, ...] = ()
    problems: tuple[Problem, ...] = ()

    def as_json(self) -> dict[str, object]:
        """For the progress lines of `run --json`."""
        return {
            "app": self.name,
            "state": self.state,
            "seconds": round(self.seconds, 3),
            "tables": [asdict(t) for t in self.tables],
            "flows": [asdict(f) for f in self.flows],
            "sources": [asdict(s) for s in self.sources],
        }


@dataclass
class Meter:
    """Counts rows and batches of one flow and knows their rate over the last minute."""

    rows: int = 0
    batches: int = 0
    batch_ms: float = 0.0
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, rows: int, seconds: float) -> None:
        self.rows += rows
        self.batches += 1
        self.batch_ms = seconds * 1000
        self._recent.append((time.monotonic(), rows))
        self._forget()

    def rate(self) -> float:
        """Rows per second over the window, or since the first batch if that is shorter."""
        self._forget()
        if not self._recent:
            return 0.0
        span = max(time.monotonic() - self._recent[0][0], 1.0)
        return sum(rows for _, rows in self._recent) / span

    def _forget(self) -> None:
        horizon = time.monotonic() - RATE_WINDOW_S
        while self._recent and self._recent[0][0] < horizon:
            self._recent.popleft()
