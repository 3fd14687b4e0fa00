"""Planning of GROUP BY, DISTINCT and windows over a stream: what a batch contributes, and what is stored by group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from millpond.plan.aggregate_calls import (
    RUNNING,
    Call,
    depends_on_order,
    depends_on_set,
    is_distinct_count,
    is_running,
    kept_text,
    read_call,
)
from millpond.plan.aggregate_model import (
    END,
    SET,
    START,
    TIME,
    TOUCHED,
    Accumulator,
    AggregatePlan,
    DistinctPlan,
    Expiry,
    Final,
    KeptPlan,
    WindowPlan,
)
from millpond.plan.bound import BoundQuery, BoundSelect
from millpond.plan.catalog import Catalog
from millpond.plan.columns import WINDOW_COLUMNS, column_of
from millpond.plan.expression_types import as_expression, type_of, with_type
from millpond.plan.function_names import WRAPPERS, aggregates_in
from millpond.plan.grouping_sets import grouping_sets, has_sets, membership
from millpond.plan.model import BESIDE
from millpond.plan.over_streams import with_windows
from millpond.schema import TIMESTAMP
from millpond.sql import nodes
from millpond.sql.spark import render

ROWS = "_union"
# Clauses of a UNION that apply to its whole result.
AFTER = ("order", "limit", "offset", "with_")


def as_distinct(query: exp.Query, catalog: Catalog) -> exp.Query:
    """A UNION with a stream as SELECT DISTINCT over UNION ALL; any other query unchanged."""
    if not isinstance(query, exp.Union) or not query.args.get("distinct") or not _reads_stream(query, catalog):
        return query
    union: exp.Expr = query
    while isinstance(union, exp.Union):
        union.set("distinct", False)
        union = union.this
    outer = exp.Select(expressions=[exp.Star()], distinct=exp.Distinct())
    for clause in AFTER:
        outer.set(clause, query.args.get(clause))
        query.set(clause, None)
    alias = exp.TableAlias(this=exp.to_identifier(ROWS))
    return outer.from_(exp.Subquery(this=query, alias=alias), copy=False)


def _reads_stream(query: exp.Query, catalog: Catalog) -> bool:
    for from_ in query.find_all(exp.From):
        table = from_.this
        if not isinstance(table, exp.Table):
            continue
        relation = catalog.find(table.name) if isinstance(table.this, exp.Identifier) else None
        if relation is None or relation.is_stream:
            return True
    return False


def time_of(window: nodes.Window, select: BoundSelect) -> exp.Expr | None:
    """The column of a window: its argument, or the watermark's column; None if there is neither."""
    column: exp.Expr | None = window.args.get("column")
    return column if column is not None else event_time(select)


def event_time(select: BoundSelect) -> exp.Expr | None:
    """The column of the watermark of the streams that a query reads; None if they have none."""
    for item in select.streams:
        if item.watermark is not None:
            return column_of(item, item.watermark.column.text, TIMESTAMP)
    return None


def window_of(window: nodes.Window, time: exp.Expr) -> WindowPlan:
    """A window as data; a tumbling one slides by its own size."""
    size_us = window.args["size_us"]
    return WindowPlan(window.args["kind"], size_us, window.args.get("slide_us") or size_us, time.name)


def without_windows(query: exp.Query) -> exp.Query:
    """The query in a form whose types Spark can determine: without its window, whose bounds are plain timestamps."""
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
        # Without another group, the bounds of a window alone would not make the query an aggregate.
        made.set("having", made.args.get("having") or exp.Having(this=exp.true()))
    return made


@dataclass
class _Kept:
    """Collects the state of all aggregate calls of a query; equal parts are shared."""

    name: str
    session: bool
    arguments: list[exp.Expr] = field(default_factory=list)
    accumulators: list[Accumulator] = field(default_factory=list)
    finals: list[tuple[exp.Expr, Final]] = field(default_factory=list)
    distincts: list[DistinctPlan] = field(default_factory=list)
    values: list[tuple[Call, str, str]] = field(default_factory=list)
    sets: tuple[tuple[str, ...], ...] = ()

    def column(self, call: exp.Expr) -> str:
        """The column of the merged row with a call's value."""
        for known, final in self.finals:
            if known == call:
                return final.name
        for kept, name, _ in self.values:
            if kept.node == call:
                return name
        read = read_call(call)
        if is_running(read, session=self.session):
            return self._running(read)
        if is_distinct_count(read, session=self.session):
            return self._distinct(read)
        return self._value(read)

    def _running(self, call: Call) -> str:
        rule = RUNNING[call.name]
        columns = [self._argument(a) for a in call.arguments]
        where = self._where(call)
        if call.ignores_nulls:
            where = f"{columns[0]} IS NOT NULL" + (f" AND {where}" if where else "")
        parts = {"x": columns[0], "y": columns[-1], "f": f" FILTER (WHERE {where})" if where else ""}
        if call.name == "count":
            parts["x"] = ", ".join(columns)
        return self._final(call, rule.how, [(text.format(**parts), merge) for text, merge in rule.partials])

    def _final(self, call: Call, how: str, partials: list[tuple[str, str]]) -> str:
        names = tuple(self._accumulator(text, merge) for text, merge in partials)
        final = Final(f"f{len(self.finals)}", how, names, type_of(call.inner), call.text)
        self.finals.append((call.node, final))
        return final.name

    def _accumulator(self, partial: str, merge: str) -> str:
        for known in self.accumulators:
            if known.partial == partial:
                return known.name
        return self._new_accumulator(partial, merge)

    def _new_accumulator(self, partial: str, merge: str) -> str:
        self.accumulators.append(Accumulator(f"a{len(self.accumulators)}", partial, merge))
        return self.accumulators[-1].name

    def _distinct(self, call: Call) -> str:
        """Spark does not compute it: the engine adds the number of values that are new."""
        columns = tuple(dict.fromkeys(self._plain(a) for a in call.arguments))
        where = self._plain(call.where) if call.where is not None else None
        accumulator = self._new_accumulator("count_if(false)", "sum")
        companion = f"{self.name}{BESIDE}distinct{len(self.distincts)}"
        self.distincts.append(DistinctPlan(accumulator, columns, where, companion))
        final = Final(f"f{len(self.finals)}", "count", (accumulator,), type_of(call.inner), call.text)
        self.finals.append((call.node, final))
        return final.name

    def _value(self, call: Call) -> str:
        name = f"v{len(self.values)}"
        replaced = call.node.copy().transform(self._placed(call), copy=False)
        columns = tuple(self._argument(a) for a in call.arguments)
        self.values.append((call, name, kept_text(call, replaced, columns, self._where(call))))
        return name

    def _placed(self, call: Call) -> Callable[[exp.Expr], exp.Expr]:
        """A function that replaces each argument, condition and order of a call by a column of the rows."""
        parts = list(call.arguments) + ([call.where] if call.where is not None else [])
        parts += [o.this for o in call.order.expressions] if call.order is not None else []

        def placed(node: exp.Expr) -> exp.Expr:
            if any(node == part for part in parts) and not _is_constant(node):
                return exp.column(self._plain(node), quoted=True)
            return node

        return placed

    def _where(self, call: Call) -> str | None:
        return self._argument(call.where) if call.where is not None else None

    def _argument(self, expr: exp.Expr) -> str:
        """An argument as SQL in an aggregate over the rows."""
        return render(expr) if _is_constant(expr) else f"`{self._plain(expr)}`"

    def _plain(self, expr: exp.Expr) -> str:
        """The column of the rows with an expression's value."""
        if expr not in self.arguments:
            self.arguments.append(expr)
        return f"x{self.arguments.index(expr)}"

    def kept(self) -> KeptPlan | None:
        if not self.values:
            return None
        calls = [call for call, _, _ in self.values]
        used = [f"x{n}" for n, a in enumerate(self.arguments) if any(_uses(call, a) for call in calls)]
        is_set = all(depends_on_set(c) and not depends_on_order(c) for c in calls)
        finals = tuple((name, text, call.text) for call, name, text in self.values)
        return KeptPlan(tuple(used), finals, is_set, f"{self.name}{BESIDE}values")


def _is_constant(expr: exp.Expr) -> bool:
    return isinstance(expr, exp.Star) or expr.find(exp.Column, exp.Query) is None


def _uses(call: Call, argument: exp.Expr) -> bool:
    orders = [o.this for o in call.order.expressions] if call.order is not None else []
    return any(part == argument for part in (*call.arguments, *orders, call.where))


def plan_aggregate(
    bound: BoundQuery, top: BoundSelect | None, name: str, ttl_us: int | None = None
) -> AggregatePlan | None:
    """The plan of a grouped or distinct query over a stream, with state in hidden tables whose names start with `name`;
    None for a query without groups, and for what is not supported: DISTINCT of groups. `ttl_us` is its
    'state.ttl'."""
    found = _planned(bound, top, name)
    if found is None or top is None or ttl_us is None or found.window is not None or not found.groups:
        return found
    time = event_time(top)
    if time is None:
        return replace(found, expiry=Expiry(ttl_us, ""))
    rows = found.rows.select(exp.alias_(time.copy(), TOUCHED, quoted=True))
    return replace(found, rows=rows, expiry=Expiry(ttl_us, time.name))


def _planned(bound: BoundQuery, top: BoundSelect | None, name: str) -> AggregatePlan | None:
    if top is None or bound.outputs is None or not bound.drivers:
        return None
    if top.node.args.get("distinct"):
        return None if top.grouped or not _is_plain(top.node.args["distinct"]) else _distinct(bound, top, name)
    return _grouped(bound, top, name) if top.grouped else None


def _is_plain(distinct: exp.Expr) -> bool:
    return distinct.args.get("on") is None


def _grouped(bound: BoundQuery, top: BoundSelect, name: str) -> AggregatePlan | None:
    window = next((g for g in top.groups if isinstance(g, nodes.Window)), None)
    time = time_of(window, top) if window is not None else None
    if window is not None and time is None:
        return None
    planned = window_of(window, time) if window is not None and time is not None else None
    found = grouping_sets(top.node) if has_sets(top.node) else None
    if found is not None:
        by = {f"g{n}": key for n, key in enumerate(found.keys)}
        sets = tuple(tuple(f"g{n}" for n in set_) for set_ in found.sets)
        return _plan(bound, top, name, by, (planned, time), sets=sets)
    by = {f"g{n}": g for n, g in enumerate(g for g in top.groups if not isinstance(g, nodes.Window))}
    return _plan(bound, top, name, by, (planned, time))


def _distinct(bound: BoundQuery, top: BoundSelect, name: str) -> AggregatePlan | None:
    assert bound.outputs is not None
    by = {f"g{n}": o.expr for n, o in enumerate(bound.outputs)}
    return _plan(bound, top, name, by, (None, None), first_only=True)


def _plan(
    bound: BoundQuery,
    top: BoundSelect,
    name: str,
    by: dict[str, exp.Expr],
    window: tuple[WindowPlan | None, exp.Expr | None],
    first_only: bool = False,
    sets: tuple[tuple[str, ...], ...] = (),
) -> AggregatePlan:
    args, (planned, time) = top.node.args, window
    kept = _Kept(name, planned is not None and planned.is_session, sets=sets)
    outputs = tuple((o.name, _over_merged(with_windows(o.expr, top.node), by, kept)) for o in bound.outputs or ())
    qualify = _over_merged(with_windows(args["qualify"].this, top.node), by, kept) if args.get("qualify") else None
    number = {SET: exp.cast(exp.Literal.number(0), "INT")} if sets else {}
    having = _over_merged(args["having"].this, by, kept) if args.get("having") else None
    order = tuple(_over_merged(o, by, kept) for o in args["order"].expressions) if args.get("order") else ()
    return AggregatePlan(
        _rows_query(top, {**by, **number}, time, kept.arguments),
        (*by, *number),
        tuple(kept.accumulators),
        tuple(final for _, final in kept.finals),
        outputs,
        f"{name}{BESIDE}groups",
        having,
        order,
        args.get("limit"),
        tuple(kept.distincts),
        kept.kept(),
        planned,
        first_only,
        sets=sets,
        qualify=qualify,
    )


def _over_merged(expr: exp.Expr, by: dict[str, exp.Expr], kept: _Kept) -> exp.Expression:
    """The expression with groups and aggregates replaced by columns of the merged row."""

    def replaced(node: exp.Expr) -> exp.Expr:
        if _is_of_subquery(node) or _is_window_function(node):
            return node
        if kept.sets and isinstance(node, exp.Grouping | exp.GroupingId):
            return membership(node, by, kept.sets)
        for name, group in by.items():
            if node == group:
                return with_type(exp.column(name, quoted=True), type_of(group))
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in WINDOW_COLUMNS:
            name = START if node.name.lower() == WINDOW_COLUMNS[0] else END
            return with_type(exp.column(name, quoted=True), TIMESTAMP)
        if next(aggregates_in(node), None) is node:
            return with_type(exp.column(kept.column(node), quoted=True), type_of(node))
        return node

    return as_expression(expr.copy().transform(replaced, copy=False))


def _is_window_function(node: exp.Expr) -> bool:
    """Whether a node is the function of OVER, whose arguments may be aggregates."""
    while isinstance(node.parent, WRAPPERS) and node.arg_key == "this":
        node = node.parent
    return isinstance(node.parent, exp.Window) and node.arg_key == "this"


def _is_of_subquery(node: exp.Expr) -> bool:
    """Whether a column or aggregate belongs to a subquery inside the expression: what that reads is not grouped here,
    and an aggregate without columns, COUNT(*), belongs to the query that contains it."""
    around = _queries_around(node)
    own = {r.alias_or_name.lower() for query in around for r in _relations(query)}
    columns = [c.table.lower() for c in node.find_all(exp.Column)]
    return bool(around) and (not columns or any(table in own for table in columns))


def _queries_around(node: exp.Expr) -> list[exp.Select]:
    found: list[exp.Select] = []
    parent = node.parent
    while parent is not None:
        found += [parent] if isinstance(parent, exp.Select) else []
        parent = parent.parent
    return found


def _relations(query: exp.Select) -> list[exp.Expr]:
    first = query.args.get("from_")
    return [r.this for r in ([first] if first is not None else []) + (query.args.get("joins") or [])]


def _rows_query(
    top: BoundSelect, by: dict[str, exp.Expr], time: exp.Expr | None, arguments: list[exp.Expr]
) -> exp.Select:
    select = top.node.copy()
    for clause in ("group", "having", "order", "limit", "offset", "sort", "hint", "distinct", "qualify", "windows"):
        select.set(clause, None)
    named = [*by.items(), *([(TIME, time)] if time is not None else [])]
    named += [(f"x{n}", argument) for n, argument in enumerate(arguments)]
    # A query must have a column, but COUNT(*) without groups needs none.
    columns = [exp.alias_(e.copy(), n, quoted=True) for n, e in named] or [exp.alias_(exp.Literal.number(1), "one")]
    select.set("expressions", columns)
    return select
