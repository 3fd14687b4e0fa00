"""What a batch contributes to its groups: rows, the windows they fall into, aggregates of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from millpond.contracts.source import ORDER_MAJOR, ORDER_MINOR
from millpond.plan.aggregate_model import END, START, TIME, AggregatePlan, WindowPlan
from millpond.runtime.aggregates.partials_by_arrow import partials_by_arrow, with_windows
from millpond.runtime.flows.work import Work
from millpond.runtime.spark.access import Relation, Views

ROWS, WINDOWED = "__rows__", "__windowed__"


class Grouped:
    """The rows of a batch that are grouped: groups, arguments, stream order, and START and END of a window. `local`
    are those on the driver, if they are; `view` is made when Spark is first asked."""

    def __init__(self, views: Views, rows: Relation, plan: AggregatePlan) -> None:
        self._views, self._rows, self._plan = views, rows, plan
        self.local = with_windows(rows, plan) if isinstance(rows, pa.Table) else None
        self._view: str | None = None

    @property
    def view(self) -> str:
        """The name by which Spark knows them."""
        if self._view is None:
            views, rows = self._views, self._rows if self.local is None else self.local
            self._view = views.frame(ROWS, views.in_spark(rows))
            if self._plan.window is not None and self.local is None:
                text = _window_text(self._plan.window, self._plan.groups, self._view)
                self._view = views.frame(WINDOWED, views.session.sql(text))
        return self._view

    def ask(self, text: str) -> pa.Table:
        """A query over the view, which stands as {view} in it, by Spark."""
        return self.frame(text).toArrow()

    def frame(self, text: str) -> DataFrame:
        """The same, not yet run."""
        return self._views.session.sql(text.format(view=f"`{self.view}`"))


def grouped_rows(work: Work, plan: AggregatePlan, batch: Relation) -> Grouped:
    """The rows of a batch, made ready for grouping."""
    ordered = work.ordered(plan.rows)
    rows = work.result(ordered or plan.rows, batch)
    return Grouped(work.views, rows if ordered is not None else in_fixed_order(rows), plan)


def in_fixed_order(rows: Relation) -> Relation:
    """An order where that of the stream is lost, as after a RIGHT JOIN: on the driver that of the rows; in Spark one by
    what they hold, which is the same however a replay cuts them into partitions."""
    if isinstance(rows, pa.Table):
        rows = rows.append_column(ORDER_MAJOR, pa.array(np.zeros(rows.num_rows, np.int64)))
        return rows.append_column(ORDER_MINOR, pa.array(np.arange(rows.num_rows)))
    rows = rows.withColumn(ORDER_MAJOR, f.lit(0).cast("bigint"))
    # Spark hashes no maps.
    hashed = [field.name for field in rows.schema if "map<" not in field.dataType.simpleString()]
    return rows.withColumn(ORDER_MINOR, f.xxhash64(*(f"`{name}`" for name in hashed)))


def partials(grouped: Grouped, plan: AggregatePlan, *, touched_only: bool) -> pa.Table:
    """One row per group of the batch with its accumulators; without groups one row, but with `touched_only` none for
    a batch without rows."""
    if grouped.local is not None:
        found = partials_by_arrow(grouped.local, plan, touched_only=touched_only)
        if found is not None:
            return found
    return grouped.ask(partials_text(plan, touched_only=touched_only))


def partials_text(plan: AggregatePlan, *, touched_only: bool) -> str:
    """The same as Spark computes it."""
    columns = [f"`{name}`" for name in plan.keys] + [f"{a.partial} AS `{a.name}`" for a in plan.partials]
    text = f"SELECT {', '.join(columns) or 'count(*) AS rows'} FROM {{view}}"
    if plan.keys:
        return f"{text} GROUP BY {names(plan.keys)}"
    return f"{text} HAVING count(*) > 0" if touched_only else text


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
