"""What a batch contributes to its groups, as Spark queries: rows, the windows they fall into, aggregates of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from sqlglot import exp

from millpond.contracts.source import ORDER_MAJOR, ORDER_MINOR
from millpond.plan.aggregate_model import END, START, TIME, AggregatePlan, WindowPlan
from millpond.runtime.access import Views
from millpond.runtime.relations import carry_order

ROWS, WINDOWED = "__rows__", "__windowed__"


def grouped_rows(views: Views, plan: AggregatePlan, query: Callable[[exp.Query], DataFrame]) -> str:
    """A view of the batch's rows: groups, arguments, stream order, and START and END of a window."""
    ordered = carry_order(plan.rows)
    rows = query(ordered or plan.rows)
    if ordered is None:
        # The order of arrival is what is left where the stream order is lost, as after a RIGHT JOIN.
        rows = rows.withColumn(ORDER_MAJOR, f.lit(0).cast("bigint"))
        rows = rows.withColumn(ORDER_MINOR, f.monotonically_increasing_id())
    view = views.frame(ROWS, rows)
    if plan.window is None:
        return view
    return views.frame(WINDOWED, views.session.sql(_window_text(plan.window, plan.groups, view)))


def partials(views: Views, plan: AggregatePlan, view: str, *, touched_only: bool) -> DataFrame:
    """One row per group of the batch with its accumulators; without groups one row, but with `touched_only` none for
    a batch without rows."""
    columns = [f"`{name}`" for name in plan.keys] + [f"{a.partial} AS `{a.name}`" for a in plan.accumulators]
    text = f"SELECT {', '.join(columns) or 'count(*) AS rows'} FROM `{view}`"
    if plan.keys:
        return views.session.sql(f"{text} GROUP BY {names(plan.keys)}")
    return views.session.sql(f"{text} HAVING count(*) > 0" if touched_only else text)


def names(columns: Iterable[str]) -> str:
    """Columns as Spark lists them."""
    return ", ".join(f"`{name}`" for name in columns)


def _window_text(window: WindowPlan, groups: tuple[str, ...], view: str) -> str:
    if window.is_session:
        return _session_text(window, groups, view)
    time = f"unix_micros(CAST({TIME} AS TIMESTAMP))"
    last = f"{time} - pmod({time}, {window.slide_us}L)"
    start = last if window.slide_us == window.size_us else _sliding_starts(window, time, last)
    return (
        f"SELECT *, timestamp_micros(__s) AS {START}, timestamp_micros(__s + {window.size_us}L) AS {END} "
        f"FROM (SELECT *, {start} AS __s FROM `{view}`)"
    )


def _sliding_starts(window: WindowPlan, time: str, last: str) -> str:
    """One row for every window that a row falls into."""
    count = -(-window.size_us // window.slide_us)
    every = f"transform(sequence(0L, {count - 1}L), i -> {last} - i * {window.slide_us}L)"
    starts = f"filter({every}, s -> s + {window.size_us}L > {time})"
    # A row without a time keeps its place, in no window: it must be told of.
    return f"explode(IF({TIME} IS NULL, array(CAST(NULL AS BIGINT)), {starts}))"


def _session_text(window: WindowPlan, groups: tuple[str, ...], view: str) -> str:
    """Sessions within the batch: a new one begins more than a gap after the event before it, as in Spark's own."""
    by = names(groups) or "1"
    size = f"{window.size_us}L"
    timed = f"SELECT *, unix_micros(CAST({TIME} AS TIMESTAMP)) AS __t FROM `{view}`"
    begins = f"IF(__t - lag(__t) OVER (PARTITION BY {by} ORDER BY __t) <= {size}, 0, 1)"
    begun = f"SELECT *, {begins} AS __new FROM ({timed})"
    running = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    numbered = f"SELECT *, sum(__new) OVER (PARTITION BY {by} ORDER BY __t {running}) AS __session FROM ({begun})"
    over = f"OVER (PARTITION BY {by}, __session)"
    return (
        f"SELECT *, timestamp_micros(min(__t) {over}) AS {START}, timestamp_micros(max(__t) {over} + {size}) AS {END} "
        f"FROM ({numbered})"
    )
