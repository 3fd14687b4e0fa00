"""Progress as lines, for logs and programs: one when a state changes, and figures every few seconds."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TextIO

from millpond.cli.output import counted, problem_line
from millpond.engine.progress import AppProgress, FlowProgress, TableProgress
from millpond.errors import Problem, Severity

EVERY_S = 5.0


class LineView:
    """Progress as text lines, for people who read a log."""

    def __init__(self, out: TextIO, rows: TextIO) -> None:
        self.rows = rows
        self._out = out
        self._lock = threading.Lock()
        self._state: AppProgress | None = None
        self._figures: AppProgress | None = None

    def show(self, progress: AppProgress) -> None:
        lines = list(changes(self._state, progress))
        if _is_due(self._figures, progress):
            lines += figures(self._figures, progress)
            self._figures = progress
        self._state = progress
        self._print(lines)

    def close(self, progress: AppProgress | None) -> None:
        if progress is not None:
            self._print([*changes(self._state, progress), *figures(self._figures, progress)])

    def report(self, problem: Problem) -> None:
        self._print([str(problem)])

    def announce(self, text: str) -> None:
        self._print([text])

    def _print(self, lines: list[str]) -> None:
        if lines:
            with self._lock:
                print(*lines, sep="\n", file=self._out, flush=True)


class JsonView:
    """One JSON object per line: `progress` when a state changes and every few seconds, `problem` when one is found."""

    def __init__(self, out: TextIO, rows: TextIO) -> None:
        self.rows = rows
        self._out = out
        self._lock = threading.Lock()
        self._last: AppProgress | None = None

    def show(self, progress: AppProgress) -> None:
        if _is_due(self._last, progress) or any(changes(self._last, progress)):
            self._last = progress
            self._print(_progress_line(progress))

    def close(self, progress: AppProgress | None) -> None:
        if progress is not None:
            self._print(_progress_line(progress))

    def report(self, problem: Problem) -> None:
        self._print(problem_line(problem))

    def announce(self, text: str) -> None:
        """Nothing: programs read the app's state instead."""

    def _print(self, line: str) -> None:
        with self._lock:
            print(line, file=self._out, flush=True)


class LogView:
    """A structured log: one JSON object per line with time, level and event, and where they apply the table, flow,
    batch and error code."""

    def __init__(self, out: TextIO, rows: TextIO, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.rows = rows
        self._out = out
        self._clock = clock
        self._lock = threading.Lock()
        self._last: AppProgress | None = None

    def show(self, progress: AppProgress) -> None:
        before, self._last = self._last, progress
        if before is None or before.state != progress.state:
            self._log("info", "app", app=progress.name, state=progress.state, url=progress.url)
        tables = {table.name: table for table in before.tables} if before else {}
        for table in progress.tables:
            if table.name not in tables or tables[table.name].state != table.state:
                self._log("info", "table", table=table.name, state=table.state, rows=table.rows, version=table.version)
        for position, flow in enumerate(progress.flows):
            self._flow(_flow_before(before, position), flow)

    def _flow(self, earlier: FlowProgress | None, flow: FlowProgress) -> None:
        if earlier is None or earlier.state != flow.state:
            code, _, message = flow.error.partition(" ")
            level = "error" if flow.state == "failed" else "warning" if flow.error else "info"
            self._log(level, "flow", flow=flow.name, state=flow.state, code=code or None, message=message or None)
        if earlier is not None and earlier.batches != flow.batches:
            # The rows since the last line: several short batches may have ended between two lines.
            figures = {"rows": flow.rows - earlier.rows, "batch_ms": flow.batch_ms, "lag": flow.lag}
            self._log("info", "batch", flow=flow.name, batch=flow.batches, **figures)

    def close(self, progress: AppProgress | None) -> None:
        if progress is not None:
            self.show(progress)

    def report(self, problem: Problem) -> None:
        place = str(problem.place) if problem.place else None
        level = {Severity.ERROR: "error", Severity.WARNING: "warning"}.get(problem.severity, "info")
        self._log(level, "problem", code=problem.code, message=problem.message, hint=problem.hint or None, place=place)

    def announce(self, text: str) -> None:
        self._log("info", "message", message=text)

    def _log(self, level: str, event: str, **values: Any) -> None:
        stamp = self._clock().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        entry = {"at": stamp, "level": level, "event": event, **{n: v for n, v in values.items() if v is not None}}
        with self._lock:
            print(json.dumps(entry, ensure_ascii=False, default=str), file=self._out, flush=True)


class QuietView:
    """Only warnings and failures; with `json` as JSON objects."""

    def __init__(self, out: TextIO, rows: TextIO, *, json: bool = False) -> None:
        self.rows = rows
        self._out = out
        self._json = json

    def show(self, progress: AppProgress) -> None:
        """Nothing."""

    def close(self, progress: AppProgress | None) -> None:
        """Nothing."""

    def report(self, problem: Problem) -> None:
        print(problem_line(problem) if self._json else str(problem), file=self._out, flush=True)

    def announce(self, text: str) -> None:
        """Nothing."""


def changes(before: AppProgress | None, now: AppProgress) -> Iterator[str]:
    """A line for the app, each table and each flow whose state changed."""
    stamp = f"{now.seconds:7.1f}s  "
    if before is None or before.state != now.state:
        yield f"{stamp}{now.name}: {now.state}"
    if now.url is not None and (before is None or before.url != now.url):
        yield f"{stamp}page: {now.url}"
    tables = {t.name: t.state for t in before.tables} if before else {}
    for table in now.tables:
        if tables.get(table.name) != table.state:
            yield f"{stamp}table {table.name}: {table.state}, {_table_figures(table)}"
    for position, flow in enumerate(now.flows):
        earlier = _flow_before(before, position)
        if earlier is None or flow.state != earlier.state:
            yield f"{stamp}flow {flow.name}: {flow.state}{f' ({flow.error})' if flow.error else ''}"


def figures(before: AppProgress | None, now: AppProgress) -> Iterator[str]:
    """A line for each flow that has processed rows and each table that has changed since the last figures."""
    stamp = f"{now.seconds:7.1f}s  "
    for position, flow in enumerate(now.flows):
        earlier = _flow_before(before, position)
        if flow.rows != (earlier.rows if earlier else 0):
            yield f"{stamp}flow {flow.name}: {_flow_figures(flow)}"
    # A table that is new was reported with its state already.
    versions = {t.name: t.version for t in before.tables} if before else {}
    for table in now.tables:
        if table.version != versions.get(table.name, table.version):
            yield f"{stamp}table {table.name}: {_table_figures(table)}"


def _flow_before(before: AppProgress | None, position: int) -> FlowProgress | None:
    """The same flow in the previous progress; by position, because two flows over unnamed streams may share a name."""
    flows = before.flows if before else ()
    return flows[position] if position < len(flows) else None


def _is_due(before: AppProgress | None, now: AppProgress) -> bool:
    return before is None or now.seconds - before.seconds >= EVERY_S


def _table_figures(table: TableProgress) -> str:
    loaded = f", loaded {table.loaded}" if table.loaded and table.state == "loading" else ""
    rows = "rows looked up" if table.rows is None else counted(table.rows, "row")
    return f"{rows}, version {table.version}{loaded}"


def _flow_figures(flow: FlowProgress) -> str:
    lag = "" if flow.lag is None else f", lag {flow.lag:,}"
    return f"{counted(flow.rows, 'row')}, {flow.rows_per_s:,.0f} rows/s, batch {flow.batch_ms:,.0f} ms{lag}"


def _progress_line(progress: AppProgress) -> str:
    return json.dumps({"event": "progress", **progress.as_json()}, ensure_ascii=False, default=str)
