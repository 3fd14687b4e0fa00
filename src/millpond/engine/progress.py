"""Figures of a running app: meters, and frozen values for the terminal, SHOW, `--json` and Python."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from millpond.contracts.table import StoreStats
from millpond.errors import Problem
from millpond.histogram import Durations

ONE_MINUTE_S, FIVE_MINUTES_S = 60.0, 300.0


@dataclass
class Meter:
    """Counts rows and seconds. Written by one thread, read by any. Rows are summed by second, so it holds at most five
    minutes of seconds."""

    rows: int = 0
    bad: int = 0
    batches: int = 0
    batch_ms: float = 0.0
    # When something was last counted, in seconds since the epoch.
    updated_at: float | None = None
    clock: Callable[[], float] = time.monotonic
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, rows: int, seconds: float = 0.0, *, bad: int = 0) -> None:
        """Count a batch; `bad` is the number of its rows that could not be read."""
        self.rows += rows
        self.bad += bad
        self.batches += 1
        self.batch_ms = seconds * 1000
        self.updated_at = time.time()
        second = self.clock() // 1.0
        if self._recent and self._recent[-1][0] == second:
            rows += self._recent.pop()[1]
        self._recent.append((second, rows))
        while self._recent[0][0] < second - FIVE_MINUTES_S:
            self._recent.popleft()

    def rate(self, window_s: float = ONE_MINUTE_S) -> float:
        """Rows per second over the window, or since the first batch in it if that is shorter."""
        now = self.clock()
        recent = [(at, rows) for at, rows in tuple(self._recent) if at >= now - window_s]
        if not recent:
            return 0.0
        return round(sum(rows for _, rows in recent) / max(now - recent[0][0], 1.0), 1)


# The states of tables and flows, in the same words everywhere.
MISSING, RETRYING, LOADING, READY, STALE, FAILED = "missing", "retrying", "loading", "ready", "stale", "failed"
WAITING, RUNNING, STOPPED, FINISHED = "waiting", "running", "stopped", "finished"


@dataclass(frozen=True)
class TableProgress:
    """One line of SHOW TABLES, and what SHOW leaves out: how far loading is, in the source's own unit and in rows, how
    many rows per second it reads and how many seconds are left; None where that is unknown."""

    name: str
    state: str
    rows: int | None
    version: int
    backend: str
    key: str
    loaded: str
    updated_at: float | None
    bytes: int
    load: LoadProgress | None = None

    SHOWN: ClassVar[int] = 9


@dataclass(frozen=True)
class LoadProgress:
    """How far the loading of a table is: `done` of `total` in the source's `unit`, the rows read so far, how many come
    per second and how many seconds are left; None where that is unknown."""

    done: int
    total: int | None
    unit: str
    rows: int
    rows_per_s: float
    seconds_left: float | None

    @property
    def share(self) -> str:
        return f"{self.done} {self.unit}" if self.total is None else f"{self.done} of {self.total} {self.unit}"

    def __str__(self) -> str:
        """As SHOW TABLES reports it while a table is loading."""
        left = "" if self.seconds_left is None else f", {self.seconds_left:.0f} s left"
        return f"{self.share}, {self.rows_per_s:.0f} rows/s{left}"


@dataclass(frozen=True)
class SourceProgress:
    """One line of SHOW SOURCES, and what SHOW leaves out: bytes read, the seconds that the oldest record not yet in the
    tables has waited, rows per second over one and five minutes; of captured changes, the bytes of the server's
    log that are not read yet and those that it keeps for the app. `rows` and counts are those of this run."""

    name: str
    type: str
    state: str
    health: str
    rows: int
    updated_at: float | None
    lag: int | None
    retries: int
    bad_records: int
    bytes: int = 0
    lag_s: float | None = None
    rows_per_s: float = 0.0
    rows_per_s_5m: float = 0.0
    log_unread: int | None = None
    log_kept: int | None = None
    id: str = ""

    SHOWN: ClassVar[int] = 9


@dataclass(frozen=True)
class SinkProgress:
    """One line of SHOW SINKS: what was written to a sink in this run."""

    name: str
    type: str
    guarantee: str
    rows: int
    batches: int
    updated_at: float | None
    rows_per_s: float
    rows_per_s_5m: float
    id: str = ""


@dataclass(frozen=True)
class FlowProgress:
    """One line of SHOW FLOWS. `lag` is the number of records that are read but not processed, None if unknown;
    `arrow_*` and `spark_*` count this run's batches by engine, with their mean time. SHOW leaves out: rows per second
    over five minutes, bad records, the time of the last batch, the lag in seconds, the watermark in seconds since the
    epoch, the durations of batches by engine, and the events that found no row because their time was before a table's
    history."""

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
    arrow_batches: int = 0
    arrow_rows: int = 0
    arrow_ms: float = 0.0
    spark_batches: int = 0
    spark_rows: int = 0
    spark_ms: float = 0.0
    rows_per_s_5m: float = 0.0
    bad_records: int = 0
    updated_at: float | None = None
    lag_s: float | None = None
    watermark: float | None = None
    durations: Mapping[str, Durations] = field(default_factory=dict)
    id: str = ""
    outside_history: int = 0

    SHOWN: ClassVar[int] = 16


@dataclass(frozen=True)
class StatementProgress:
    """One line of SHOW STATEMENTS: what an engine has done of a statement since the state directory was created."""

    flow: str
    line: int
    target: str
    engine: str
    batches: int
    rows: int
    batch_ms: float

    SHOWN: ClassVar[int] = 7


@dataclass(frozen=True)
class MemoryUse:
    """Memory in use by the process and by its Java process, in bytes; None if unknown or not started."""

    python: int | None = None
    java: int | None = None


@dataclass(frozen=True)
class AppProgress:
    """The state of an app at one moment; `state` is starting | loading | catching up | running | stopping | stopped |
    failed."""

    name: str
    state: str
    seconds: float
    tables: tuple[TableProgress, ...] = ()
    flows: tuple[FlowProgress, ...] = ()
    sources: tuple[SourceProgress, ...] = ()
    # Warnings, in the order in which they occurred.
    problems: tuple[Problem, ...] = ()
    sinks: tuple[SinkProgress, ...] = ()
    # Failures, in the order of the plan.
    failures: tuple[Problem, ...] = ()
    statements: tuple[StatementProgress, ...] = ()
    # The address of the app's page; None if it is off.
    url: str | None = None
    store: StoreStats = field(default_factory=StoreStats)
    memory: MemoryUse = field(default_factory=MemoryUse)

    @property
    def trouble(self) -> str:
        """A summary of the failures, such as "1 of 3 flows failed"; empty if there are none."""
        flows, tables = [f.state for f in self.flows], [t.state for t in self.tables]
        found = [_share("flow", flows, FAILED), _share("table", tables, FAILED)]
        if not any(found) and self.state == RUNNING:
            found = [_share("flow", flows, RETRYING), *(_share("table", tables, s) for s in (RETRYING, STALE, MISSING))]
        words = ", ".join(filter(None, found))
        return words or ("something failed" if self.failures else "")

    def as_json(self) -> dict[str, Any]:
        """For the progress lines of `run --json`."""
        return {
            "app": self.name,
            "state": self.state,
            "seconds": round(self.seconds, 3),
            "url": self.url,
            "tables": [_plain(t) for t in self.tables],
            "flows": [_plain(f) for f in self.flows],
            "statements": [_plain(s) for s in self.statements],
            "sources": [_plain(s) for s in self.sources],
            "sinks": [_plain(s) for s in self.sinks],
            "failures": [problem.as_json() for problem in self.failures],
            "store": _plain(self.store),
            "memory": _plain(self.memory),
        }


def _share(noun: str, states: Sequence[str], state: str) -> str:
    count = states.count(state)
    return f"{count} of {len(states)} {noun}{'s' * (len(states) > 1)} {state}" if count else ""


def _plain(item: Any) -> dict[str, Any]:
    """Statistics as JSON values, with lists instead of tuples."""
    found: dict[str, Any] = _listed(asdict(item))
    return found


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _listed(part) for name, part in value.items()}
    return [_listed(part) for part in value] if isinstance(value, tuple) else value
