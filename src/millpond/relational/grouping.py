"""GROUP BY: one row per group, with the groups' values and the aggregates that the outputs ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from sqlglot import exp

from millpond.expressions.failures import NotCompilable
from millpond.expressions.grouped import Groups as RowGroups
from millpond.expressions.grouped import evaluate_groups
from millpond.relational.codes import Numbers, Values, group_codes
from millpond.relational.joins import Evaluate, as_mask
from millpond.relational.memory import Memory
from millpond.relational.rows import Rows

# The relation that groups and aggregates are known as.
GROUPS = "__groups"


@dataclass(frozen=True)
class Grouping:
    """A grouped SELECT taken apart: `keys` are what it groups by and `calls` its aggregates; `outputs`, `having` and
    `order` read both as columns g0, g1, ... and a0, a1, ... of GROUPS."""

    keys: tuple[exp.Expr, ...]
    calls: tuple[exp.Expr, ...]
    outputs: tuple[exp.Expr, ...]
    having: exp.Expr | None
    order: tuple[exp.Expr, ...]


@dataclass(frozen=True)
class Groups:
    """The groups as rows, and what is asked of them."""

    rows: Rows
    outputs: Sequence[exp.Expr]
    order: Sequence[exp.Expr]


def is_grouped(select: exp.Select) -> bool:
    """Whether a SELECT has GROUP BY or an aggregate of its own."""
    parts = [*select.expressions, select.args.get("having")]
    return select.args.get("group") is not None or any(p is not None and _calls_in(p) for p in parts)


def group(select: exp.Select, rows: Rows, value: Evaluate, memory: Memory) -> Groups:
    """The groups of a SELECT's rows that satisfy HAVING, in the order of their first rows."""
    grouping = memory.once("grouping", select, lambda: _taken_apart(select))
    keys = [value(key, rows) for key in grouping.keys]
    codes, firsts = group_codes(keys, len(rows))
    if not keys:
        codes, firsts = np.zeros(len(rows), np.int64), np.zeros(1, np.int64)
    found = aggregated(grouping.calls, rows, (codes, len(firsts)), value, memory)
    columns = {f"_g{n}": key.take(pa.array(firsts)) for n, key in enumerate(keys)}
    columns |= {f"_a{n}": column for n, column in enumerate(found)}
    names = {own.removeprefix("_"): own for own in columns}
    if not columns:
        columns = {"_one": pa.nulls(len(firsts), pa.int8())}
    result = Rows(pa.table(columns), {GROUPS: names})
    if grouping.having is not None:
        result = result.filter(pa.array(as_mask(value(grouping.having, result))))
    return Groups(result, grouping.outputs, grouping.order)


def aggregated(
    calls: Sequence[exp.Expr], rows: Rows, groups: tuple[Numbers, int], value: Evaluate, memory: Memory
) -> list[Values]:
    """Aggregates of rows by group; `groups` are the group of each row and their number."""
    codes, count = groups
    found: list[Values] = []
    for call in calls:
        mine, numbers, inner = rows, codes, call
        if isinstance(call, exp.Filter):
            mask = as_mask(value(call.expression.this, rows))
            mine, numbers, inner = rows.filter(pa.array(mask)), codes[mask], call.this
        groups_of = RowGroups(pa.array(numbers.astype(np.int32)), count)
        found.append(evaluate_groups(memory.aggregate(inner, mine), mine.table, groups_of))
    return found


def without_calls(expression: exp.Expr, calls: list[exp.Expr]) -> exp.Expr:
    """An expression that reads its aggregates as columns; they are added to `calls`."""
    return _over_groups(expression, [], calls)


def _taken_apart(select: exp.Select) -> Grouping:
    clause = select.args.get("group")
    if clause is not None and any(v for k, v in clause.args.items() if v and k != "expressions"):
        raise NotCompilable("grouping sets")
    keys = tuple(clause.expressions) if clause is not None else ()
    if any(not isinstance(key, exp.Expression) or key.find(exp.Query) for key in keys):
        raise NotCompilable("groups of another kind")
    calls: list[exp.Expr] = []
    outputs = tuple(_over_groups(e.unalias(), keys, calls) for e in select.expressions)
    having, order = select.args.get("having"), select.args.get("order")
    condition = _over_groups(having.this, keys, calls) if having is not None else None
    ordered = tuple(_over_groups(o, keys, calls) for o in order.expressions) if order is not None else ()
    return Grouping(keys, tuple(calls), outputs, condition, ordered)


def _over_groups(expression: exp.Expr, keys: Sequence[exp.Expr], calls: list[exp.Expr]) -> exp.Expr:
    def replaced(node: exp.Expr) -> exp.Expr:
        for number, key in enumerate(keys):
            if node == key:
                return exp.column(f"g{number}", table=GROUPS, quoted=True)
        if _is_call(node):
            if node not in calls:
                calls.append(node)
            return exp.column(f"a{calls.index(node)}", table=GROUPS, quoted=True)
        if isinstance(node, exp.Query):
            raise NotCompilable("a subquery beside groups")
        return node

    return expression.copy().transform(replaced, copy=False)


def _is_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Filter) and isinstance(node.this, exp.AggFunc))


def _calls_in(expression: exp.Expr) -> bool:
    """Whether an expression has an aggregate that is not a subquery's own."""
    if isinstance(expression, exp.Query):
        return False
    return _is_call(expression) or any(_calls_in(child) for child in expression.iter_expressions())
