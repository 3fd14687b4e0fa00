"""Planning of window functions (OVER) over a stream: takes them out of the query, and determines what is stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.expressions.calls import read
from millpond.expressions.coercion import DATE, INTEGERS
from millpond.expressions.terms import Constant, Interval
from millpond.plan.aggregate_model import END, START, AggregatePlan
from millpond.plan.expression_types import as_expression, type_of, with_type
from millpond.plan.function_names import function_name, parts
from millpond.plan.model import BATCH
from millpond.plan.over_model import RUNNING, FrameKind, OverCall, OverFrame, OverPlan, OverWindow
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ, type_name
from millpond.sql.spark import render

DAY_US = 86_400_000_000
NUMBERINGS = ("row_number", "rank", "dense_rank")
AGGREGATES = ("count", "sum", "avg", "min", "max")
ENDS = ("first", "last")
# The functions that are another one: COUNT_IF counts the rows for which it is true, BOOL_OR is the largest value.
SAME = {
    **dict.fromkeys(("first_value", "any_value"), "first"),
    "last_value": "last",
    "mean": "avg",
    "count_if": "count",
    **dict.fromkeys(("bool_or", "some", "any", "logical_or"), "max"),
    **dict.fromkeys(("bool_and", "every", "logical_and"), "min"),
}
SUPPORTED = (
    "LAG, FIRST_VALUE, LAST_VALUE, ROW_NUMBER, RANK, DENSE_RANK, COUNT, COUNT_IF, SUM, AVG, MIN, MAX, BOOL_AND and "
    "BOOL_OR"
)
AHEAD = "A stream has no rows after the current one yet"


class OverRefusal(Exception):
    """A window function that is not possible over a stream."""

    def __init__(self, message: str, node: exp.Expr, hint: str) -> None:
        super().__init__(message)
        self.message, self.node, self.hint = message, node, hint


def over_select(query: exp.Expr) -> exp.Select | None:
    """The innermost SELECT over the batch that has window functions or QUALIFY."""
    found = [s for s in query.find_all(exp.Select) if _has_windows(s) and _reads_batch(s)]
    return found[-1] if found else None


def has_over(query: exp.Expr) -> bool:
    """Whether a query has window functions over the batch."""
    return over_select(query) is not None


def _has_windows(select: exp.Select) -> bool:
    return select.args.get("qualify") is not None or any(_windows_of(select))


def _windows_of(select: exp.Select) -> Iterator[exp.Window]:
    for clause in _clauses(select):
        yield from (node for node in parts(clause) if isinstance(node, exp.Window))


def _clauses(select: exp.Select) -> list[exp.Expr]:
    order = select.args.get("order")
    qualify = select.args.get("qualify")
    return [*select.expressions, *([qualify] if qualify is not None else []), *([order] if order is not None else [])]


def _reads_batch(select: exp.Select) -> bool:
    sides = [select.args.get("from_"), *(select.args.get("joins") or ())]
    return any(t.name == BATCH for side in sides if side is not None for t in side.find_all(exp.Table))


def plan_over(query: exp.Query, name: str, options: Mapping[str, Any]) -> tuple[OverPlan, exp.Query] | None:
    """The plan of the window functions of a statement's query, and the query over their rows; None if there are
    none."""
    copy = query.copy()
    select = over_select(copy)
    if select is None:
        return None
    _refuse_shapes(copy, select)
    taken = _Taken(select, name)
    outer = taken.outer()
    windows = taken.windows()
    waits = options.get("over.wait") == "watermark"
    plan = OverPlan(
        taken.rows(),
        query,
        windows,
        str(options.get("late.rows") or "dead-letter"),
        options.get("retention"),
        waits,
        f"{name}_held" if waits else "",
    )
    if select is copy:
        return plan, outer
    select.replace(outer)
    if over_select(copy) is not None:
        message = "Window functions over the result of window functions are not supported over a stream."
        raise OverRefusal(message, select, "Store the inner result in a table or stream of its own.")
    return plan, copy


def with_groups(select: exp.Select) -> OverRefusal:
    """The refusal of a SELECT that also groups."""
    message = "Window functions cannot be combined with GROUP BY or DISTINCT over a stream."
    hint = "Store the groups in a table, and use OVER in a view. A sink can rank the groups of each window of time."
    return OverRefusal(message, next(_windows_of(select), select), hint)


def _refuse_shapes(query: exp.Query, select: exp.Select) -> None:
    if select.args.get("group") is not None or select.args.get("distinct") is not None:
        raise with_groups(select)
    if sum(1 for t in query.find_all(exp.Table) if t.name == BATCH) > 1:
        message = "Window functions over a stream that is read twice in one statement are not supported."
        raise OverRefusal(message, select, "Write two statements.")


@dataclass
class _Taken:
    """The parts of a SELECT with window functions: `columns` of its rows by their text, and the functions by theirs."""

    select: exp.Select
    name: str
    columns: dict[str, tuple[str, exp.Expr]] = field(default_factory=dict)
    calls: dict[str, tuple[tuple[tuple[str, ...], str | None, str], OverCall]] = field(default_factory=dict)

    def outer(self) -> exp.Select:
        """The SELECT over the rows and the values of the functions."""
        table = exp.Table(this=exp.Identifier(this=BATCH, quoted=True))
        outer = exp.Select(
            expressions=[self._lifted(e.copy()) for e in self.select.expressions], from_=exp.From(this=table)
        )
        qualify = self.select.args.get("qualify")
        if qualify is not None:
            outer.set("where", exp.Where(this=self._lifted(qualify.this.copy())))
        for clause in ("order", "limit", "offset"):
            node = self.select.args.get(clause)
            outer.set(clause, self._lifted(node.copy()) if node is not None else None)
        return outer

    def rows(self) -> exp.Select:
        rows = exp.Select(
            expressions=[exp.alias_(e.copy(), column, quoted=True) for column, e in self.columns.values()]
        )
        for clause in ("from_", "joins", "laterals", "where", "with_", "hint"):
            node = self.select.args.get(clause)
            if isinstance(node, list):
                rows.set(clause, [n.copy() for n in node])
            elif node is not None:
                rows.set(clause, node.copy())
        return rows

    def windows(self) -> tuple[OverWindow, ...]:
        by_order: dict[tuple[tuple[str, ...], str | None, str], list[OverCall]] = {}
        for order, call in self.calls.values():
            by_order.setdefault(order, []).append(call)
        return tuple(
            OverWindow(keys, time, tuple(calls), f"{self.name}_rows{n}", f"{self.name}_keys{n}", text)
            for n, ((keys, time, text), calls) in enumerate(by_order.items())
        )

    def _lifted(self, node: exp.Expr) -> exp.Expr:
        """An expression in which window functions, columns and subqueries are columns of the rows."""
        holder = exp.Paren(this=node)
        for inner in list(node.walk(bfs=False, prune=_is_taken)):
            if not _is_taken(inner):
                continue
            if isinstance(inner, exp.Window):
                inner.replace(self._value(inner))
            else:
                inner.replace(self._column(inner))
        result: exp.Expr = holder.this
        return result.pop()

    def _column(self, node: exp.Expr) -> exp.Expr:
        text = render(node)
        if text not in self.columns:
            self.columns[text] = (f"c{len(self.columns)}", node.copy())
        return _named(self.columns[text][0], type_of(node))

    def _value(self, window: exp.Window) -> exp.Expr:
        text = render(window)
        if text not in self.calls:
            self.calls[text] = self._call(window, f"w{len(self.calls)}")
        call = self.calls[text][1]
        return _named(call.name, call.type)

    def _call(self, window: exp.Window, name: str) -> tuple[tuple[tuple[str, ...], str | None, str], OverCall]:
        window = _with_named(window, self.select)
        keys = tuple(self._column(key).name for key in window.args.get("partition_by") or ())
        keys = keys or (self._column(with_type(exp.Literal.number(0), pa.int32())).name,)
        order = window.args.get("order")
        ordered = list(order.expressions) if order is not None else []
        time = self._time(window, ordered)
        function, inner, where = _function(window)
        ignores_nulls = _ignores_nulls(window, inner, function)
        argument = _argument(inner, function, where)
        type_ = type_of(window)
        if type_ is None:
            raise OverRefusal(f"The type of {render(window)} is not known.", window, "Cast its argument.")
        frame = _frame(window, function, inner, ordered)
        call = OverCall(name, function, type_, frame, render(window), ignores_nulls=ignores_nulls)
        if argument is not None:
            call = replace(call, argument=self._column(argument).name)
        default = inner.args.get("default") if function == "lag" else None
        if default is not None:
            call = replace(call, default=self._column(exp.cast(default.copy(), type_name(type_))).name)
        return (keys, time, ordered[0].this.name or render(ordered[0].this) if ordered else ""), call

    def _time(self, window: exp.Window, ordered: list[exp.Expr]) -> str | None:
        if not ordered:
            return None
        if len(ordered) > 1:
            message = "ORDER BY of a window function over a stream has one column."
            raise OverRefusal(message, window, "Order by the time of the events; equal times are in order of arrival.")
        if ordered[0].args.get("desc"):
            message = f"{AHEAD}, so ORDER BY ... DESC is not possible over a stream."
            raise OverRefusal(message, window, "Order by the time ascending; LAG and frames look back.")
        type_ = type_of(ordered[0].this)
        if type_ is not None and (pa.types.is_nested(type_) or pa.types.is_boolean(type_)):
            raise OverRefusal(f"A window cannot be ordered by {type_name(type_)}.", window, "Order by a time.")
        return self._column(ordered[0].this).name


def _with_named(window: exp.Window, select: exp.Select) -> exp.Window:
    """The window with what it takes from WINDOW w AS (...)."""
    alias = window.args.get("alias")
    if alias is None:
        return window
    named = next((w for w in select.args.get("windows") or () if w.this.name.lower() == alias.name.lower()), None)
    if named is None:
        raise OverRefusal(f"There is no window '{alias.name}'.", window, "Define it: WINDOW w AS (...).")
    found = window.copy()
    found.set("alias", None)
    for part in ("partition_by", "order", "spec"):
        if not found.args.get(part) and named.args.get(part):
            given = named.args[part]
            found.set(part, [n.copy() for n in given] if isinstance(given, list) else given.copy())
    return found


def with_windows(expr: exp.Expr, select: exp.Select) -> exp.Expr:
    """A copy of an expression in which windows with a name are written out; an unknown name stays, for a finding."""
    holder = exp.Paren(this=expr.copy())
    names = {w.this.name.lower() for w in select.args.get("windows") or ()}
    for window in list(holder.find_all(exp.Window)):
        alias = window.args.get("alias")
        if alias is not None and alias.name.lower() in names:
            window.replace(_with_named(window, select))
    found: exp.Expr = holder.this
    return found.pop()


def ranks_windows(aggregate: AggregatePlan) -> bool:
    """Whether the window functions of a grouped query compare the groups of one window of time, which are complete when
    it is closed."""
    if aggregate.window is None or aggregate.window.is_session:
        return False
    outputs = [e for _, e in aggregate.outputs] + ([aggregate.qualify] if aggregate.qualify is not None else [])
    windows = [window for e in outputs for window in e.find_all(exp.Window)]
    return all(
        any(isinstance(key, exp.Column) and key.name in (START, END) for key in window.args.get("partition_by") or ())
        for window in windows
    )


def _is_taken(node: exp.Expr) -> bool:
    return isinstance(node, exp.Window | exp.Column | exp.Query | exp.Exists) or (
        isinstance(node, exp.In) and node.args.get("query") is not None
    )


def _named(name: str, type_: pa.DataType | None) -> exp.Expr:
    return with_type(exp.column(name, table=BATCH, quoted=True), type_)


def _function(window: exp.Window) -> tuple[str, exp.Expr, exp.Expr | None]:
    """The function of a window, its call, and the condition of its FILTER."""
    inner, where = window.this, None
    while isinstance(inner, exp.Filter | exp.RespectNulls | exp.IgnoreNulls):
        where = inner.expression.this if isinstance(inner, exp.Filter) else where
        inner = inner.this
    if next((n for n in parts(inner) if isinstance(n, exp.Window)), None) is not None:
        message = "A window function is not allowed in another window function."
        raise OverRefusal(
            message, window, "Compute the inner one in a stream: CREATE STREAM s AS SELECT ... OVER (...)."
        )
    written = function_name(inner)
    name = SAME.get(written, written)
    if name == "lead":
        message = f"{AHEAD}, so LEAD is not possible."
        raise OverRefusal(message, window, "Use LAG, which emits a row with its predecessor.")
    if name not in (*NUMBERINGS, *AGGREGATES, "lag", *ENDS):
        raise OverRefusal(f"{name.upper()} OVER is not supported over a stream.", window, f"Supported are {SUPPORTED}.")
    if inner.find(exp.Distinct) is not None:
        message = f"{name.upper()}(DISTINCT ...) OVER is not supported over a stream."
        raise OverRefusal(message, window, "Count distinct values in a table: COUNT(DISTINCT ...) with GROUP BY.")
    if where is not None and name not in AGGREGATES:
        message = f"FILTER is not allowed for {written.upper()}."
        raise OverRefusal(message, window, "Use IGNORE NULLS: LAST_VALUE(CASE WHEN condition THEN x END) IGNORE NULLS.")
    return name, inner, where


def _ignores_nulls(window: exp.Window, inner: exp.Expr, function: str) -> bool:
    """Whether NULL values do not count: IGNORE NULLS, or FIRST_VALUE(x, true)."""
    around = window.this
    while isinstance(around, exp.Filter | exp.RespectNulls):
        around = around.this
    given = list(inner.iter_expressions())[1:] if function in ENDS else []
    if not all(isinstance(flag, exp.Boolean) for flag in given):
        message = f"The second argument of {function_name(inner).upper()} is true or false, for IGNORE NULLS."
        raise OverRefusal(message, window, "Write FIRST_VALUE(x) IGNORE NULLS.")
    ignores = isinstance(around, exp.IgnoreNulls) or any(flag.this for flag in given)
    if ignores and function not in ENDS:
        message = f"{function_name(inner).upper()} with IGNORE NULLS is not supported over a stream."
        raise OverRefusal(message, window, "Use LAST_VALUE(x) IGNORE NULLS, or a CASE in an aggregate.")
    return ignores


def _argument(inner: exp.Expr, function: str, where: exp.Expr | None) -> exp.Expr | None:
    """The argument of a call as an expression over the row, NULL where its FILTER is not true."""
    if function in NUMBERINGS:
        return None
    given = list(inner.iter_expressions())
    conditions = [where.copy()] if where is not None else []
    if function == "count" and (len(given) > 1 or function_name(inner) == "count_if"):
        # COUNT(a, b) counts the rows in which no value is NULL.
        all_of = [exp.Not(this=exp.Is(this=e.copy(), expression=exp.null())) for e in given]
        conditions += all_of if len(given) > 1 else [given[0].copy()]
        given = []
    argument = given[0] if given and not isinstance(given[0], exp.Star) else None
    if argument is None and conditions:
        argument = with_type(exp.Literal.number(1), pa.int32())
    if argument is None or not conditions:
        return argument
    case = exp.Case(ifs=[exp.If(this=exp.and_(*conditions), true=argument.copy())])
    return with_type(case, type_of(argument))


def _frame(window: exp.Window, function: str, inner: exp.Expr, ordered: list[exp.Expr]) -> OverFrame:
    if function == "lag":
        offset = _whole(inner.args.get("offset"), window, 1)
        if offset < 0:
            raise OverRefusal(f"{AHEAD}, so LAG with a negative offset is not possible.", window, "Use LAG(x, 1).")
        return OverFrame(FrameKind.ROWS, offset, offset)
    spec = window.args.get("spec")
    if spec is None or function in NUMBERINGS:
        return RUNNING
    kind = str(spec.args.get("kind") or "").upper()
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude"):
        raise OverRefusal("This frame is not supported over a stream.", window, "Use ROWS or RANGE ... PRECEDING.")
    of_range = kind == "RANGE"
    start = _bound(spec, "start", window, ordered, of_range)
    end = _bound(spec, "end", window, ordered, of_range) if spec.args.get("end") is not None else 0
    if start is None and end:
        message = "A frame without a beginning must end at the current row over a stream."
        raise OverRefusal(message, window, "Write ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW.")
    if start is None:
        return RUNNING
    return OverFrame(FrameKind.RANGE if of_range else FrameKind.ROWS, start, end or 0)


def _bound(spec: exp.Expr, name: str, window: exp.Window, ordered: list[exp.Expr], of_range: bool) -> int | None:
    """The distance of a bound before the current row; None for UNBOUNDED PRECEDING."""
    bound, side = spec.args[name], str(spec.args.get(f"{name}_side") or "").upper()
    if side == "FOLLOWING":
        hint = "End the frame at CURRENT ROW, or use 'over.wait' for events that arrive out of order."
        raise OverRefusal(f"{AHEAD}, so a frame cannot end after the current row.", window, hint)
    if isinstance(bound, str):
        return 0 if bound.upper() == "CURRENT ROW" else None
    if not of_range:
        return _whole(bound, window, 0)
    return _distance(bound, window, ordered)


def _whole(node: exp.Expr | None, window: exp.Window, default: int) -> int:
    if node is None:
        return default
    sign = -1 if isinstance(node, exp.Neg) else 1
    literal = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(literal, exp.Literal) or literal.is_string or not literal.name.isdecimal():
        raise OverRefusal("The number of rows must be a whole number.", window, "Write a literal, such as 3.")
    return sign * int(literal.name)


def _distance(bound: exp.Expr, window: exp.Window, ordered: list[exp.Expr]) -> int:
    """The distance of a RANGE bound in units of the order: microseconds, days, or whole numbers."""
    type_ = type_of(ordered[0].this) if ordered else None
    term = read(as_expression(bound))
    value = term.value if isinstance(term, Constant) else None
    if type_ in (TIMESTAMP, TIMESTAMP_NTZ) and isinstance(value, Interval) and not value.months:
        return value.microseconds
    if type_ == DATE and isinstance(value, Interval) and not value.months and not value.microseconds % DAY_US:
        return value.microseconds // DAY_US
    if type_ in (*INTEGERS, DATE) and isinstance(value, int) and not isinstance(value, bool):
        return value
    if not ordered:
        raise OverRefusal("A RANGE frame requires ORDER BY.", window, "Add ORDER BY ts, or use ROWS.")
    message = f"A RANGE frame over {type_name(type_)} requires a fixed distance."
    raise OverRefusal(message, window, "Write INTERVAL 5 MINUTES for a time, or a whole number for a number.")
