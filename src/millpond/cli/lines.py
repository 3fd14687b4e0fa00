"""Progress as lines, for logs and programs: one when a state changes, and figures every few seconds while rows come."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import TextIO

from millpond.cli.messages import counted, problem_line
from millpond.errors import Problem
from millpond.runtime.figures.progress import AppProgress, FlowProgress, TableProgress

EVERY_S = 5.0


class LineView:
    """Lines for people who read a log."""

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

    def tell(self, problem: Problem) -> None:
        self._print([str(problem)])

    def say(self, text: str) -> None:
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

    def tell(self, problem: Problem) -> None:
        self._print(problem_line(problem))

    def say(self, text: str) -> None:
        """Programs read the app's state instead."""

    def _print(self, line: str) -> None:
        with self._lock:
            print(line, file=self._out, flush=True)


def changes(before: AppProgress | None, now: AppProgress) -> Iterator[str]:
    """A line for the app, each table and each flow whose state is another than before."""
    stamp = f"{now.seconds:7.1f}s  "
    if before is None or before.state != now.state:
        yield f"{stamp}{now.name}: {now.state}"
    tables = {t.name: t.state for t in before.tables} if before else {}
    for table in now.tables:
        if tables.get(table.name) != table.state:
            yield f"{stamp}table {table.name}: {table.state}, {_table_figures(table)}"
    for position, flow in enumerate(now.flows):
        earlier = _flow_before(before, position)
        if earlier is None or flow.state != earlier.state:
            yield f"{stamp}flow {flow.name}: {flow.state}{f' ({flow.error})' if flow.error else ''}"


def figures(before: AppProgress | None, now: AppProgress) -> Iterator[str]:
    """A line for each flow that has taken rows and each table that has changed since the figures before."""
    stamp = f"{now.seconds:7.1f}s  "
    for position, flow in enumerate(now.flows):
        earlier = _flow_before(before, position)
        if flow.rows != (earlier.rows if earlier else 0):
            yield f"{stamp}flow {flow.name}: {_flow_figures(flow)}"
    # A table that is new here has been told of with its state.
    versions = {t.name: t.version for t in before.tables} if before else {}
    for table in now.tables:
        if table.version != versions.get(table.name, table.version):
            yield f"{stamp}table {table.name}: {_table_figures(table)}"


def _flow_before(before: AppProgress | None, position: int) -> FlowProgress | None:
    """The same flow at the moment before; by position, because two flows over unnamed streams may share a name."""
    flows = before.flows if before else ()
    return flows[position] if position < len(flows) else None


def _is_due(before: AppProgress | None, now: AppProgress) -> bool:
    return before is None or now.seconds - before.seconds >= EVERY_S


def _table_figures(table: TableProgress) -> str:
    loaded = f", loaded {table.loaded}" if table.loaded and table.state == "loading" else ""
    return f"{counted(table.rows, 'row')}, version {table.version}{loaded}"


def _flow_figures(flow: FlowProgress) -> str:
    lag = "" if flow.lag is None else f", lag {flow.lag:,}"
    return f"{counted(flow.rows, 'row')}, {flow.rows_per_s:,.0f} rows/s, batch {flow.batch_ms:,.0f} ms{lag}"


def _progress_line(progress: AppProgress) -> str:
    return json.dumps({"event": "progress", **progress.as_json()}, ensure_ascii=False, default=str)
