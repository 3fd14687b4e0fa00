"""Windows over a stream: the time they are cut by, and queries as they would be without them."""

from __future__ import annotations

from sqlglot import exp

from millpond.plan.aggregate_model import WindowPlan
from millpond.plan.bound import BoundSelect
from millpond.plan.columns import WINDOW_COLUMNS, column_of
from millpond.schema import TIMESTAMP
from millpond.sql import nodes


def time_of(window: nodes.Window, select: BoundSelect) -> exp.Expr | None:
    """The column that a window is over: the one it names, or the watermark's; None where there is neither."""
    column: exp.Expr | None = window.args.get("column")
    return column if column is not None else event_time(select)


def event_time(select: BoundSelect) -> exp.Expr | None:
    """The column of the watermark of the streams that a query reads; None where they have none."""
    for item in select.streams:
        if item.watermark is not None:
            return column_of(item, item.watermark.column.text, TIMESTAMP)
    return None


def window_of(window: nodes.Window, time: exp.Expr) -> WindowPlan:
    """A window as data; one that tumbles slides by its own size."""
    size_us = window.args["size_us"]
    return WindowPlan(window.args["kind"], size_us, window.args.get("slide_us") or size_us, time.name)


def without_windows(query: exp.Query) -> exp.Query:
    """The query as Spark can tell the types of: its window is gone, and the window's ends are times."""
    if query.find(nodes.Window) is None:
        return query

    def plain(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in WINDOW_COLUMNS:
            return exp.cast(exp.Null(), "TIMESTAMP", dialect="spark")
        return node

    made = query.transform(plain)
    assert isinstance(made, exp.Query)
    group = made.args["group"]
    rest = [g for g in group.expressions if not isinstance(g, nodes.Window)]
    group.set("expressions", rest)
    if not rest:
        made.set("group", None)
        # Without another group a window's ends alone would make no aggregate of the query.
        made.set("having", made.args.get("having") or exp.Having(this=exp.true()))
    return made
