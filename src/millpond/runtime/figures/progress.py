"""What a running app tells of itself: frozen figures that the terminal, SHOW, `--json` and Python read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from millpond.errors import Problem

# The words of a table's and a flow's state, the same everywhere.
MISSING, RETRYING, LOADING, READY, STALE, FAILED = "missing", "retrying", "loading", "ready", "stale", "failed"
WAITING, RUNNING, STOPPED, FINISHED = "waiting", "running", "stopped", "finished"


@dataclass(frozen=True)
class TableProgress:
    """One line of SHOW TABLES. Beside what SHOW tells: how far loading is, in the source's own unit and in rows, how
    many rows per second it reads and how many seconds it will go on for; None where that cannot be known."""

    name: str
    state: str
    rows: int
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
    per second and how many seconds are left; None where that cannot be known."""

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
        """As SHOW TABLES tells it while a table is loading."""
        left = "" if self.seconds_left is None else f", {self.seconds_left:.0f} s left"
        return f"{self.share}, {self.rows_per_s:.0f} rows/s{left}"


@dataclass(frozen=True)
class SourceProgress:
    """One line of SHOW SOURCES. Beside what SHOW tells: bytes read, seconds that the oldest record not yet in the
    tables has waited, rows per second over one and five minutes. `rows` and counts are of this run."""

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

    SHOWN: ClassVar[int] = 9


@dataclass(frozen=True)
class SinkProgress:
    """What went into a sink in this run."""

    name: str
    type: str
    guarantee: str
    rows: int
    batches: int
    updated_at: float | None
    rows_per_s: float
    rows_per_s_5m: float


@dataclass(frozen=True)
class FlowProgress:
    """One line of SHOW FLOWS; `lag` is what is read but not yet worked on, in records, None if unknown. Beside what
    SHOW tells: rows per second over five minutes, bad records, when the last batch was done, and the lag in seconds."""

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
    rows_per_s_5m: float = 0.0
    bad_records: int = 0
    updated_at: float | None = None
    lag_s: float | None = None

    SHOWN: ClassVar[int] = 10


@dataclass(frozen=True)
class AppProgress:
    """An app at one moment; `state` is starting | loading | catching up | running | stopping | stopped | failed."""

    name: str
    state: str
    seconds: float
    tables: tuple[TableProgress, ...] = ()
    flows: tuple[FlowProgress, ...] = ()
    sources: tuple[SourceProgress, ...] = ()
    # Warnings, in the order in which they came up.
    problems: tuple[Problem, ...] = ()
    sinks: tuple[SinkProgress, ...] = ()
    # What has failed, in the order of the plan.
    failures: tuple[Problem, ...] = ()

    @property
    def trouble(self) -> str:
        """What is wrong in a few words, such as "1 of 3 flows failed"; nothing when all is well."""
        flows, tables = [f.state for f in self.flows], [t.state for t in self.tables]
        found = [_share("flow", flows, FAILED), _share("table", tables, FAILED)]
        if not any(found) and self.state == RUNNING:
            found = [_share("flow", flows, RETRYING), *(_share("table", tables, s) for s in (RETRYING, STALE, MISSING))]
        words = ", ".join(filter(None, found))
        return words or ("something failed" if self.failures else "")

    def as_json(self) -> dict[str, object]:
        """For the progress lines of `run --json`."""
        return {
            "app": self.name,
            "state": self.state,
            "seconds": round(self.seconds, 3),
            "tables": [asdict(t) for t in self.tables],
            "flows": [asdict(f) for f in self.flows],
            "sources": [asdict(s) for s in self.sources],
            "sinks": [asdict(s) for s in self.sinks],
            "failures": [problem.as_json() for problem in self.failures],
        }


def _share(noun: str, states: Sequence[str], state: str) -> str:
    count = states.count(state)
    return f"{count} of {len(states)} {noun}{'s' * (len(states) > 1)} {state}" if count else ""
