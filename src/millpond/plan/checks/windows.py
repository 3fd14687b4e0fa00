"""Windows: over a stream, one per query, on a TIMESTAMP, closed by a watermark when they go to a sink."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.bound import BoundSelect
from millpond.plan.checks.subject import Subject
from millpond.plan.context import Planned
from millpond.plan.model import StepKind
from millpond.plan.typed import type_of
from millpond.schema import type_name
from millpond.sql import nodes
from millpond.sql.statements import CreateTable


def check(subject: Subject) -> Iterator[Problem]:
    yield from _retention(subject)
    yield from _late_rows(subject)
    for planned, select in subject.selects():
        windows = [g for g in select.groups if isinstance(g, nodes.Window)]
        if not windows:
            continue
        if len(windows) > 1:
            yield subject.problem("MP211", "A query can have one window.", windows[1], "Remove one of them.")
        if not select.streams:
            if not any(i.loose for i in select.scope.items):
                hint = "Group a table by date_trunc('MINUTE', ts) or the like."
                yield subject.problem("MP211", "A window needs a stream, but this reads tables.", windows[0], hint)
            continue
        yield from _column(subject, windows[0], select)
        yield from _emitted(subject, planned, windows[0], select)


def _retention(subject: Subject) -> Iterator[Problem]:
    """'retention' is about windows, and the watermark tells when it is over."""
    for planned in subject.planned:
        table = subject.tables.get(planned.target.lower()) if isinstance(planned.statement, CreateTable) else None
        if table is None or table.options.get("retention") is None:
            continue
        top = planned.bound.top if planned.bound is not None else None
        windowed = top is not None and any(isinstance(g, nodes.Window) for g in top.groups)
        if top is None or not windowed or not _watermarked(top):
            message = f"'retention' needs a window over a stream with a watermark; table '{table.name}' has none."
            hint = "Remove it, or group by TUMBLING(ts, ...) over a stream declared with WATERMARK FOR ts."
            yield subject.problem("MP211", message, table.place, hint)


def _late_rows(subject: Subject) -> Iterator[Problem]:
    """'late.rows' of a statement is about its windows or the join of its streams."""
    for planned in subject.planned:
        group = getattr(planned.statement, "options", None)
        entry = next((e for e in group.entries if e.name == "late.rows"), None) if group is not None else None
        top = planned.bound.top if planned.bound is not None else None
        if entry is None or top is None or not top.streams:
            continue
        if len(planned.drivers) < 2 and not any(isinstance(g, nodes.Window) for g in top.groups):
            message = "'late.rows' does nothing here: only a window or a join of two streams has late rows."
            hint = "Remove it, or group by TUMBLING(ts, ...)."
            yield subject.problem("MP303", message, entry.place, hint)


def _column(subject: Subject, window: nodes.Window, select: BoundSelect) -> Iterator[Problem]:
    column = window.args.get("column")
    if column is None:
        if not _watermarked(select):
            hint = "Name the column, TUMBLING(ts, INTERVAL 1 MINUTE), or declare WATERMARK FOR ts on the stream."
            yield subject.problem("MP211", "This window has no column: the stream has no watermark.", window, hint)
        return
    found = type_of(column)
    if found is not None and not pa.types.is_timestamp(found):
        message = f"A window needs a TIMESTAMP, but '{_name(column)}' is {type_name(found)}."
        yield subject.problem("MP211", message, column, "Cast it: CAST(... AS TIMESTAMP).")


def _name(column: exp.Expr) -> str:
    return column.name or "the expression"


def _watermarked(select: BoundSelect) -> bool:
    return any(i.watermark is not None for i in select.streams)


def _emitted(subject: Subject, planned: Planned, window: nodes.Window, select: BoundSelect) -> Iterator[Problem]:
    if planned.kind is StepKind.SINK and not _watermarked(select):
        message = "A window into a sink is emitted when the watermark reaches its end, but the stream has none."
        hint = "Declare it on the stream: WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS."
        yield subject.problem("MP211", message, window, hint)
