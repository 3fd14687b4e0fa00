"""The cache of compiled expressions: work that is done once for a query and used for every batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from sqlglot import exp

from millpond.errors import BindError
from millpond.expressions.aggregates import CompiledAggregate, compile_aggregate
from millpond.expressions.compile import Compiled, NotCompilable, compile_expression
from millpond.relational.inputs import Rows

# The relation whose columns are the values of subqueries.
SUBQUERY = "__subquery"
# A bound on memory; an app has far fewer expressions than this.
ENTRIES_MAX = 10_000
Found = TypeVar("Found")


@dataclass(frozen=True)
class Flat:
    """An expression without subqueries and window functions: `parts` are those that were extracted, `expression` reads
    their values as columns s0, s1, ... of SUBQUERY."""

    expression: exp.Expr
    parts: tuple[exp.Expr, ...]


# The clauses of a SELECT that can be evaluated here.
PARTS = {
    "expressions", "from_", "joins", "where", "group", "having", "distinct", "order", "limit", "offset", "kind", "hint",
    "with_", "laterals", "windows",
}  # fmt: skip


class QueryCache:
    """What was derived from nodes of queries, to be reused for every batch. Not thread-safe. Nodes are identified by
    `id()`, so callers must pass the same query object each time."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[exp.Expr, Any]] = {}
        # The outer row for which a scalar subquery of the latest query returned several rows.
        self.several = ""
        # Whether a query that fails on a row raises TableError, instead of being evaluated by Spark, which reports why.
        self.reports_failures = False

    def flat(self, expression: exp.Expr) -> Flat:
        return self._once(("flat", id(expression)), expression, lambda: _flattened(expression))

    def compiled(self, expression: exp.Expr, rows: Rows) -> Compiled:
        return self._once(
            ("compiled", id(expression), *_signature(rows)), expression, lambda: _compiled(expression, rows)
        )

    def aggregate(self, call: exp.Expr, rows: Rows) -> CompiledAggregate:
        return self._once(("aggregate", id(call), *_signature(rows)), call, lambda: _aggregate(call, rows))

    def once(self, kind: str, node: exp.Expr, make: Callable[[], Found]) -> Found:
        """Return anything else that depends only on a node of the query."""
        return self._once((kind, id(node)), node, make)

    def _once(self, key: tuple[Any, ...], node: exp.Expr, make: Callable[[], Found]) -> Found:
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= ENTRIES_MAX:
                self._known.clear()
            # The reference to the node prevents that its id is reused for another node.
            known = self._known[key] = (node, _tried(make))
        if isinstance(known[1], NotCompilable):
            raise known[1]
        found: Found = known[1]
        return found


def _tried(make: Callable[[], Found]) -> Found | NotCompilable:
    """Return the result or the NotCompilable, so that failures are cached too."""
    try:
        return make()
    except NotCompilable as refusal:
        return refusal


def _signature(rows: Rows) -> tuple[pa.Schema, tuple[tuple[str, tuple[tuple[str, str], ...]], ...]]:
    return rows.table.schema, tuple((relation, tuple(columns.items())) for relation, columns in rows.names.items())


def _compiled(expression: exp.Expr, rows: Rows) -> Compiled:
    try:
        return compile_expression(expression, rows.schema, (), rows.names)  # type: ignore[arg-type]
    except BindError as error:
        raise NotCompilable(str(error)) from error


def _aggregate(call: exp.Expr, rows: Rows) -> CompiledAggregate:
    try:
        return compile_aggregate(call, rows.schema, (), rows.names)  # type: ignore[arg-type]
    except BindError as error:
        raise NotCompilable(str(error)) from error


def _flattened(expression: exp.Expr) -> Flat:
    parts: list[exp.Expr] = []

    def taken(node: exp.Expr) -> exp.Expr:
        if not is_extracted(node):
            return node
        parts.append(node)
        return exp.column(f"s{len(parts) - 1}", table=SUBQUERY, quoted=True)

    if next(iter(_extracted(expression)), None) is None:
        return Flat(expression, ())
    return Flat(expression.copy().transform(taken, copy=False), tuple(parts))


def _extracted(expression: exp.Expr) -> Iterator[exp.Expr]:
    return (node for node in expression.walk() if is_extracted(node))


def is_extracted(node: exp.Expr) -> bool:
    """Whether a node is a window function, a scalar subquery, or EXISTS, IN, ANY or ALL with a subquery."""
    if isinstance(node, exp.In):
        return bool(node.args.get("query"))
    if isinstance(node, exp.Binary):
        return isinstance(node.args.get("expression"), exp.Any | exp.All)
    return isinstance(node, exp.Exists | exp.Subquery | exp.Window)


def checked(query: exp.Expr) -> exp.Select:
    """Return the query if it is a SELECT that can be evaluated here, else raise NotCompilable."""
    if not isinstance(query, exp.Select) or any(v for k, v in query.args.items() if v and k not in PARTS):
        raise NotCompilable("a clause of the query that only Spark supports")
    if query.find(exp.Placeholder) is not None:
        raise NotCompilable("a query with parameters")
    if any(not isinstance(star.parent, exp.Count) for star in query.find_all(exp.Star)):
        raise NotCompilable("a * whose columns are not known")
    return query


def with_windows(select: exp.Select) -> exp.Select:
    """Return the query with its named windows (WINDOW w AS ...) inlined; the same query if it has none."""
    named = {window.name.lower(): window for window in select.args.get("windows") or ()}
    if not named:
        return select
    made = select.copy()
    made.set("windows", None)
    for window in made.find_all(exp.Window):
        alias = window.args.get("alias")
        if alias is None:
            continue
        definition = named.get(alias.name.lower())
        parts = ("partition_by", "order", "spec")
        if definition is None or definition.args.get("alias") or any(window.args.get(part) for part in parts):
            raise NotCompilable("a named window that extends another one")
        window.set("alias", None)
        for part in parts:
            found = definition.args.get(part)
            window.set(part, [e.copy() for e in found] if isinstance(found, list) else found and found.copy())
    return made
