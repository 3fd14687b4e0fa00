"""Check: a query has one window, over a stream, on a TIMESTAMP, with a watermark if it is written to a sink."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.bound import BoundSelect
from millpond.plan.checks.state_ttl import entries_of
from millpond.plan.checks.subject import Subject
from millpond.plan.context import Planned
from millpond.plan.expression_types import type_of
from millpond.plan.model import StepKind
from millpond.plan.over_streams import has_over
from millpond.schema import type_name
from millpond.sql import nodes
from millpond.sql.statements import CreateTable


def check(subject: Subject) -> Iterator[Problem]:
    yield from _retention(subject)
    yield from _late_rows(subject)
    yield from _over_options(subject)
    for planned, select in subject.selects():
        windows = [g for g in select.groups if isinstance(g, nodes.Window)]
        if not windows:
            continue
        if len(windows) > 1:
            yield subject.problem("MP211", "A query can have only one window.", windows[1], "Remove one of them.")
        if not select.streams:
            if not any(i.loose for i in select.scope.items):
                hint = "Group a table by an expression such as date_trunc('MINUTE', ts)."
                yield subject.problem(
                    "MP211", "A window requires a stream, but this query reads tables.", windows[0], hint
                )
            continue
        yield from _column(subject, windows[0], select)
        yield from _emitted(subject, planned, windows[0], select)


def _retention(subject: Subject) -> Iterator[Problem]:
    """'retention' requires a window and a watermark."""
    for planned in subject.planned:
        table = subject.tables.get(planned.target.lower()) if isinstance(planned.statement, CreateTable) else None
        if table is None or table.options.get("retention") is None:
            continue
        top = planned.bound.top if planned.bound is not None else None
        if planned.bound is not None and has_over(planned.bound.query):
            continue
        windowed = top is not None and any(isinstance(g, nodes.Window) for g in top.groups)
        if top is None or not windowed or not _watermarked(top):
            message = f"'retention' requires a window over a stream with a watermark; table '{table.name}' has none."
            hint = "Remove it, or group by TUMBLING(ts, ...) over a stream declared with WATERMARK FOR ts."
            yield subject.problem("MP211", message, table.place, hint)


def _late_rows(subject: Subject) -> Iterator[Problem]:
    """'late.rows' requires a window or a join of streams."""
    for planned in subject.planned:
        group = getattr(planned.statement, "options", None)
        entry = next((e for e in group.entries if e.name == "late.rows"), None) if group is not None else None
        top = planned.bound.top if planned.bound is not None else None
        if entry is None or top is None or not top.streams:
            continue
        timed = any(isinstance(g, nodes.Window) for g in top.groups) or has_over(top.node)
        if len(planned.drivers) < 2 and not timed:
            message = "'late.rows' has no effect here: only a window or a join of two streams has late rows."
            hint = "Remove it, or group by TUMBLING(ts, ...)."
            yield subject.problem("MP303", message, entry.place, hint)


def _over_options(subject: Subject) -> Iterator[Problem]:
    """'over.wait', and 'retention' of a statement, require window functions over a stream."""
    for planned in subject.planned:
        if planned.bound is None or has_over(planned.bound.query):
            continue
        names = ("over.wait",) if isinstance(planned.statement, CreateTable) else ("over.wait", "retention")
        for entry in (e for e in entries_of(planned.statement) if e.name in names):
            message = f"'{entry.name}' has no effect here: the statement has no window function over a stream."
            yield subject.problem("MP303", message, entry.place, "Remove it, or add OVER (...).")


def _column(subject: Subject, window: nodes.Window, select: BoundSelect) -> Iterator[Problem]:
    column = window.args.get("column")
    if column is None:
        if not _watermarked(select):
            hint = "Write the column, TUMBLING(ts, INTERVAL 1 MINUTE), or declare WATERMARK FOR ts on the stream."
            yield subject.problem(
                "MP211", "This window has no time column, because the stream has no watermark.", window, hint
            )
        return
    found = type_of(column)
    if found is not None and not pa.types.is_timestamp(found):
        message = f"A window requires a TIMESTAMP, but '{_name(column)}' is {type_name(found)}."
        yield subject.problem("MP211", message, column, "Cast it: CAST(... AS TIMESTAMP).")


def _name(column: exp.Expr) -> str:
    return column.name or "the expression"


def _watermarked(select: BoundSelect) -> bool:
    return any(i.watermark is not None for i in select.streams)


def _emitted(subject: Subject, planned: Planned, window: nodes.Window, select: BoundSelect) -> Iterator[Problem]:
    if planned.kind is StepKind.SINK and not _watermarked(select):
        message = "A sink gets a window when the watermark reaches its end, but the stream has no watermark."
        hint = "Declare it on the stream: WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS."
        yield subject.problem("MP211", message, window, hint)
