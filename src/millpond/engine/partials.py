"""Partial aggregates: what a batch contributes to its groups and windows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from sqlglot import exp

from millpond.contracts.source import ORDER_MAJOR, ORDER_MINOR
from millpond.engine.grouping_sets import in_sets
from millpond.engine.spark.transfer import Dataset, Views
from millpond.engine.work import Work
from millpond.errors import TableError
from millpond.expressions.casts import as_type
from millpond.expressions.compile import NotCompilable, compile_expression
from millpond.expressions.failures import RowError
from millpond.expressions.sort_ranks import single_zero_and_nan
from millpond.plan.aggregate_model import END, START, TIME, AggregatePlan, WindowPlan
from millpond.relational.codes import Numbers, Values, group_codes
from millpond.relational.compiled import QueryCache
from millpond.relational.group_by import GROUPS, aggregated, without_calls
from millpond.relational.inputs import Rows, known_as
from millpond.schema import TIMESTAMP
from millpond.sql.parser import parse_expression


def partials_by_arrow(rows: pa.Table, plan: AggregatePlan, cache: QueryCache, *, touched_only: bool) -> pa.Table | None:
    """One row per group with its accumulators, the same as Spark's; None if Spark must compute them."""
    if plan.window is not None and START not in rows.column_names:
        return None
    try:
        return _partials(rows, plan, cache, touched_only)
    except NotCompilable:
        return None
    except TableError:
        if cache.reports_failures:
            raise
        return None


def _partials(rows: pa.Table, plan: AggregatePlan, cache: QueryCache, touched_only: bool) -> pa.Table:
    keys = [single_zero_and_nan(rows[name]) for name in plan.keys]
    codes, firsts = group_codes(keys, rows.num_rows)
    if not keys and not touched_only:
        firsts = np.zeros(1, np.int64)
    found = aggregates([a.partial for a in plan.partials], rows, (codes, len(firsts)), cache)
    columns = {name: key.take(pa.array(firsts)) for name, key in zip(plan.keys, keys, strict=True)}
    columns |= {a.name: column for a, column in zip(plan.partials, found, strict=True)}
    return pa.table(columns) if columns else pa.table({"rows": pa.nulls(len(firsts), pa.int64())})


def aggregates(texts: Sequence[str], rows: pa.Table, groups: tuple[Numbers, int], cache: QueryCache) -> list[Values]:
    """Expressions over aggregates, in Spark's SQL, as one value per group; `groups` are the group of each row and the
    number of groups. NotCompilable if only Spark can compute them."""
    calls: list[exp.Expr] = []
    parts = [_split_condition(text) for text in texts]
    for part in parts:
        calls += [call for call in part.calls if call not in calls]
    found = aggregated(calls, Rows(rows, {}), groups, _value, cache)
    over = [known_as(GROUPS, _numbered([found[calls.index(c)] for c in p.calls]), itertools.count()) for p in parts]
    return [_of_groups(part, rows_, groups[1], cache) for part, rows_ in zip(parts, over, strict=True)]


@dataclass(frozen=True)
class FlatExpression:
    """An expression over aggregates: `flat` reads the `calls` as columns a0, a1, ... of GROUPS."""

    flat: exp.Expr
    calls: tuple[exp.Expr, ...]


@lru_cache(maxsize=1024)
def _split_condition(text: str) -> FlatExpression:
    calls: list[exp.Expr] = []
    flat = without_calls(parse_expression(text), calls)
    return FlatExpression(flat, tuple(calls))


def _numbered(columns: Sequence[Values]) -> dict[str, Values]:
    return {f"a{n}": column for n, column in enumerate(columns)}


def _of_groups(part: FlatExpression, found: Rows, count: int, cache: QueryCache) -> Values:
    if len(found.table.columns) == 1 and isinstance(part.flat, exp.Column):
        return found.table.column(0)
    if not found.table.num_columns:
        found = Rows(pa.table({"_one": pa.nulls(count, pa.int8())}), {})
    return cache.compiled(part.flat, found).evaluate(found.table)


def _value(expression: exp.Expr, rows: Rows) -> Values:
    return compile_expression(expression, rows.schema).evaluate(rows.table)  # type: ignore[arg-type]


def with_windows(rows: pa.Table, plan: AggregatePlan) -> pa.Table | None:
    """The rows with START and END of the windows that they are in, one row for each window; None for times that only
    Spark can read."""
    window = plan.window
    if window is None:
        return rows
    try:
        times = as_type(rows[TIME].combine_chunks(), TIMESTAMP).cast(pa.int64())
        if window.is_session:
            return _with_sessions(rows, plan, times)
    except (NotCompilable, RowError):
        return None
    places, starts = _starts(window, times)
    found = rows.take(pa.array(places))
    found = found.append_column(START, starts.cast(TIMESTAMP))
    return found.append_column(END, pc.add(starts, pa.scalar(window.size_us, pa.int64())).cast(TIMESTAMP))


def _with_sessions(rows: pa.Table, plan: AggregatePlan, times: pa.Array) -> pa.Table:
    """Sessions within the batch: a new one begins more than a gap after the previous event, as in Spark's session
    windows."""
    assert plan.window is not None
    groups, _ = group_codes([rows[name] for name in plan.groups], rows.num_rows)
    none = times.is_null().to_numpy(zero_copy_only=False)
    known = times.fill_null(0).to_numpy(zero_copy_only=False)
    order = np.lexsort((known, none, groups))
    ordered, group, missing = known[order], groups[order], none[order]
    follows = (group[1:] == group[:-1]) & ~missing[1:] & (ordered[1:] - ordered[:-1] <= plan.window.size_us)
    first = np.insert(~follows, 0, True)[: len(ordered)]
    begins = np.flatnonzero(first)
    session = np.cumsum(first) - 1
    ends = np.append(begins[1:], len(ordered)) - 1 if len(begins) else begins
    starts, lasts = np.empty_like(known), np.empty_like(known)
    starts[order], lasts[order] = ordered[begins][session], ordered[ends][session]
    found = rows.append_column(START, pa.array(starts, mask=none).cast(TIMESTAMP))
    return found.append_column(END, pa.array(lasts + plan.window.size_us, mask=none).cast(TIMESTAMP))


def _starts(window: WindowPlan, times: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """The row and the start of its window, for each pair of them; a row without a time is in no window."""
    none = times.is_null().to_numpy(zero_copy_only=False)
    known = times.fill_null(0).to_numpy(zero_copy_only=False)
    last = known - np.mod(known, window.slide_us)
    count = 1 if window.slide_us == window.size_us else -(-window.size_us // window.slide_us)
    starts = last[:, None] - np.arange(count)[None, :] * window.slide_us
    inside = starts + window.size_us > known[:, None]
    inside[none] = False
    inside[none, 0] = True
    places, _ = np.nonzero(inside)
    return places, pa.array(starts[inside], mask=none[places])


ROWS, WINDOWED = "__rows__", "__windowed__"


class Grouped:
    """The rows of a batch to be grouped: groups, arguments, stream order, and START and END of a window. `local` are
    the rows, if they are on the driver; `view` is created when Spark is first used."""

    def __init__(self, views: Views, rows: Dataset, plan: AggregatePlan, cache: QueryCache | None = None) -> None:
        self._views, self._rows, self._plan = views, rows, plan
        self.cache = cache or QueryCache()
        self.local = with_windows(rows, plan) if isinstance(rows, pa.Table) else None
        self._view: str | None = None

    @property
    def view(self) -> str:
        """The name of the rows in Spark."""
        if self._view is None:
            views, rows = self._views, self._rows if self.local is None else self.local
            self._view = views.frame(ROWS, views.in_spark(rows))
            if self._plan.window is not None and self.local is None:
                text = _window_text(self._plan.window, self._plan.groups, self._view)
                self._view = views.frame(WINDOWED, views.session.sql(text))
        return self._view

    def ask(self, text: str) -> pa.Table:
        """The result of a query by Spark; {view} in it is replaced by the name of the view."""
        return self.frame(text).toArrow()

    def frame(self, text: str) -> DataFrame:
        """The same as a DataFrame, not evaluated yet."""
        return self._views.session.sql(text.format(view=f"`{self.view}`"))


def grouped_rows(work: Work, plan: AggregatePlan, batch: Dataset) -> Grouped:
    """The rows of a batch, prepared for grouping."""
    ordered = work.ordered(plan.rows)
    rows = work.result(ordered or plan.rows, batch)
    rows = in_sets(rows if ordered is not None else in_fixed_order(rows), plan)
    return Grouped(work.views, rows, plan, work.cache)


def in_fixed_order(rows: Dataset) -> Dataset:
    """Add an order to rows that have lost the stream order, as after a RIGHT JOIN: on the driver the order of the rows;
    in Spark one by their content, which does not depend on the partitions of a replay."""
    if isinstance(rows, pa.Table):
        rows = rows.append_column(ORDER_MAJOR, pa.array(np.zeros(rows.num_rows, np.int64)))
        return rows.append_column(ORDER_MINOR, pa.array(np.arange(rows.num_rows)))
    rows = rows.withColumn(ORDER_MAJOR, f.lit(0).cast("bigint"))
    # Spark cannot hash maps.
    hashed = [field.name for field in rows.schema if "map<" not in field.dataType.simpleString()]
    return rows.withColumn(ORDER_MINOR, f.xxhash64(*(f"`{name}`" for name in hashed)))


def partials(grouped: Grouped, plan: AggregatePlan, *, touched_only: bool) -> pa.Table:
    """One row per group of the batch with its accumulators. Without groups it is one row, but none for a batch without
    rows if `touched_only`."""
    if grouped.local is not None:
        found = partials_by_arrow(grouped.local, plan, grouped.cache, touched_only=touched_only)
        if found is not None:
            return found
    return grouped.ask(partials_text(plan, touched_only=touched_only))


def partials_text(plan: AggregatePlan, *, touched_only: bool) -> str:
    """The same as Spark SQL."""
    columns = [f"`{name}`" for name in plan.keys] + [f"{a.partial} AS `{a.name}`" for a in plan.partials]
    text = f"SELECT {', '.join(columns) or 'count(*) AS rows'} FROM {{view}}"
    if plan.keys:
        return f"{text} GROUP BY {names(plan.keys)}"
    return f"{text} HAVING count(*) > 0" if touched_only else text


def names(columns: Iterable[str]) -> str:
    """Column names as a list in Spark SQL."""
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
    """One row for every window that a row is in."""
    count = -(-window.size_us // window.slide_us)
    every = f"transform(sequence(0L, {count - 1}L), i -> {last} - i * {window.slide_us}L)"
    starts = f"filter({every}, s -> s + {window.size_us}L > {time})"
    # A row without a time keeps its place, in no window, so that late_rows.py reports it.
    return f"explode(IF({TIME} IS NULL, array(CAST(NULL AS BIGINT)), {starts}))"


def _session_text(window: WindowPlan, groups: tuple[str, ...], view: str) -> str:
    """Sessions within the batch: a new one begins more than a gap after the previous event, as in Spark's session
    windows."""
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
