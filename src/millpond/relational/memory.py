"""What is worked out once for a query and used for every batch: compiled expressions, subqueries taken out of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from sqlglot import exp

from millpond.errors import BindError
from millpond.expressions.aggregates import CompiledAggregate, compile_aggregate
from millpond.expressions.compile import Compiled, NotCompilable, compile_expression
from millpond.relational.rows import Rows

# The relation that the values of subqueries are known as.
SUBQUERY = "__subquery"
# Entries kept; an app has far fewer expressions than this.
ENTRIES_MAX = 10_000
Found = TypeVar("Found")


@dataclass(frozen=True)
class Flat:
    """An expression without subqueries: `parts` are those that were taken out, `expression` reads their values as
    columns s0, s1, ... of SUBQUERY."""

    expression: exp.Expr
    parts: tuple[exp.Expr, ...]


class Memory:
    """Used by one thread at a time. Nodes of a query are known by identity: whoever asks keeps the query."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[exp.Expr, Any]] = {}
        # The row around for which a scalar subquery of the query that was asked last finds several rows.
        self.several = ""

    def flat(self, expression: exp.Expr) -> Flat:
        return self._once(("flat", id(expression)), expression, lambda: _flattened(expression))

    def compiled(self, expression: exp.Expr, rows: Rows) -> Compiled:
        return self._once(
            ("compiled", id(expression), *_signature(rows)), expression, lambda: _compiled(expression, rows)
        )

    def aggregate(self, call: exp.Expr, rows: Rows) -> CompiledAggregate:
        return self._once(("aggregate", id(call), *_signature(rows)), call, lambda: _aggregate(call, rows))

    def once(self, kind: str, node: exp.Expr, make: Callable[[], Found]) -> Found:
        """Something else that follows from a node of the query alone."""
        return self._once((kind, id(node)), node, make)

    def _once(self, key: tuple[Any, ...], node: exp.Expr, make: Callable[[], Found]) -> Found:
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= ENTRIES_MAX:
                self._known.clear()
            # The node is kept with what was made of it, so that its identity stays its own.
            known = self._known[key] = (node, _tried(make))
        if isinstance(known[1], NotCompilable):
            raise known[1]
        found: Found = known[1]
        return found


def _tried(make: Callable[[], Found]) -> Found | NotCompilable:
    """A refusal is remembered too."""
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
        if not asks(node):
            return node
        parts.append(node)
        return exp.column(f"s{len(parts) - 1}", table=SUBQUERY, quoted=True)

    if next(iter(_asking(expression)), None) is None:
        return Flat(expression, ())
    return Flat(expression.copy().transform(taken, copy=False), tuple(parts))


def _asking(expression: exp.Expr) -> Iterator[exp.Expr]:
    return (node for node in expression.walk() if asks(node))


def asks(node: exp.Expr) -> bool:
    """Whether a node is a subquery with what compares it: EXISTS, IN, ANY, ALL, or a scalar one."""
    if isinstance(node, exp.In):
        return bool(node.args.get("query"))
    if isinstance(node, exp.Binary):
        return isinstance(node.args.get("expression"), exp.Any | exp.All)
    return isinstance(node, exp.Exists | exp.Subquery)
