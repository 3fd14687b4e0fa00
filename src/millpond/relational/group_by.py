"""GROUP BY: one row per group, with its keys and the aggregates that the outputs need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import pyarrow as pa
from sqlglot import exp

from millpond.expressions.aggregates import Groups as RowGroups
from millpond.expressions.failures import NotCompilable
from millpond.expressions.sort_ranks import single_zero_and_nan
from millpond.relational.codes import Numbers, Values, group_codes
from millpond.relational.compiled import QueryCache
from millpond.relational.inputs import Rows
from millpond.relational.joins import Evaluate, as_mask
from millpond.sql.function_calls import AGGREGATES, function_name

# The relation whose columns are the keys and aggregates of groups.
GROUPS = "__groups"
# Nodes that wrap an aggregate and belong to its call.
WRAPPERS = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)


@dataclass(frozen=True)
class Grouping:
    """The parts of a grouped SELECT: `keys` are the GROUP BY expressions and `calls` the aggregates; `outputs`,
    `having` and `order` read both as columns g0, g1, ... and a0, a1, ... of GROUPS. `sets` are the grouping sets, as
    positions in `keys`; the columns k0, k1, ... are 1 where a key is not in the grouping set of the row."""

    keys: tuple[exp.Expr, ...]
    sets: tuple[tuple[int, ...], ...] | None
    calls: tuple[exp.Expr, ...]
    outputs: tuple[exp.Expr, ...]
    having: exp.Expr | None
    order: tuple[exp.Expr, ...]


@dataclass(frozen=True)
class Groups:
    """The groups as rows, and the expressions to evaluate over them."""

    rows: Rows
    outputs: Sequence[exp.Expr]
    order: Sequence[exp.Expr]


def is_grouped(select: exp.Select) -> bool:
    """Whether a SELECT has GROUP BY or an aggregate of its own."""
    parts = [*select.expressions, select.args.get("having"), select.args.get("order")]
    return select.args.get("group") is not None or any(p is not None and _calls_in(p) for p in parts)


def group(select: exp.Select, rows: Rows, value: Evaluate, cache: QueryCache) -> Groups:
    """Return the groups that satisfy HAVING, in the order of their first rows."""
    grouping = grouping_of(select, cache)
    keys = [single_zero_and_nan(value(key, rows)) for key in grouping.keys]
    if grouping.sets is None:
        result = _grouped(grouping, keys, rows, value, cache)
    else:
        parts = [_grouped(grouping, keys, rows, value, cache, only=set_) for set_ in grouping.sets]
        result = Rows(pa.concat_tables([part.table for part in parts]), parts[0].names)
    return finished(grouping, result, value)


def grouping_of(select: exp.Select, cache: QueryCache) -> Grouping:
    """Return the parts of a grouped SELECT."""
    return cache.once("grouping", select, lambda: _parts(select))


def finished(grouping: Grouping, result: Rows, value: Evaluate) -> Groups:
    """Return the groups that satisfy HAVING."""
    if grouping.having is not None:
        result = result.filter(pa.array(as_mask(value(grouping.having, result))))
    return Groups(result, grouping.outputs, grouping.order)


def _grouped(
    grouping: Grouping,
    keys: Sequence[Values],
    rows: Rows,
    value: Evaluate,
    cache: QueryCache,
    only: tuple[int, ...] | None = None,
) -> Rows:
    """Group by all keys, or by those of one grouping set; the other keys are NULL then."""
    used = keys if only is None else [keys[n] for n in only]
    codes, firsts = group_codes(used, len(rows))
    # Without GROUP BY there is one group even if there are no rows: COUNT(*) is 0 then.
    if not used and only is None:
        codes, firsts = np.zeros(len(rows), np.int64), np.zeros(1, np.int64)
    found = aggregated(grouping.calls, rows, (codes, len(firsts)), value, cache)
    columns: dict[str, Values] = {}
    for number, key in enumerate(keys):
        is_used = only is None or number in only
        columns[f"_g{number}"] = key.take(pa.array(firsts)) if is_used else pa.nulls(len(firsts), key.type)
        if only is not None:
            columns[f"_k{number}"] = pa.array(np.full(len(firsts), not is_used, np.int8))
    columns |= {f"_a{n}": column for n, column in enumerate(found)}
    names = {own.removeprefix("_"): own for own in columns}
    if not columns:
        columns = {"_one": pa.nulls(len(firsts), pa.int8())}
    return Rows(pa.table(columns), {GROUPS: names})


def aggregated(
    calls: Sequence[exp.Expr], rows: Rows, groups: tuple[Numbers, int], value: Evaluate, cache: QueryCache
) -> list[Values]:
    """Evaluate aggregates by group; `groups` are the group of each row and the number of groups."""
    codes, count = groups
    found: list[Values] = []
    for call in calls:
        mine, numbers, inner = rows, codes, call
        if isinstance(call, exp.Filter):
            mask = as_mask(value(call.expression.this, rows))
            mine, numbers, inner = rows.filter(pa.array(mask)), codes[mask], call.this
        found.append(cache.aggregate(inner, mine).of_groups(mine.table, RowGroups(numbers, count)))
    return found


def without_calls(expression: exp.Expr, calls: list[exp.Expr]) -> exp.Expr:
    """Return an expression that reads its aggregates as columns; adds them to `calls`."""
    return _over_groups(expression, [], calls, sets=False)


def _parts(select: exp.Select) -> Grouping:
    clause = select.args.get("group")
    keys, sets = keys_of(clause) if clause is not None else ([], None)
    if any(not isinstance(key, exp.Expression) or key.find(exp.Query, exp.Window) for key in keys):
        raise NotCompilable("a subquery or window function in GROUP BY")
    calls: list[exp.Expr] = []
    has_sets = sets is not None
    outputs = tuple(_over_groups(e.unalias(), keys, calls, sets=has_sets) for e in select.expressions)
    having, order = select.args.get("having"), select.args.get("order")
    condition = _over_groups(having.this, keys, calls, sets=has_sets) if having is not None else None
    by = order.expressions if order is not None else ()
    ordered = tuple(_over_groups(o, keys, calls, sets=has_sets) for o in by)
    return Grouping(tuple(keys), sets, tuple(calls), outputs, condition, ordered)


def keys_of(clause: exp.Expr) -> tuple[list[exp.Expr], tuple[tuple[int, ...], ...] | None]:
    """Return the keys of GROUP BY and its grouping sets; None without any."""
    trailing = [part for name in ("rollup", "cube") for part in clause.args.get(name) or ()]
    known = {"expressions", "rollup", "cube"}
    if any(value for name, value in clause.args.items() if value and name not in known) or len(trailing) > 1:
        raise NotCompilable("a form of GROUP BY that only Spark supports")
    if not trailing and not any(isinstance(e, SETS) for e in clause.expressions):
        return list(clause.expressions), None
    parts = list(clause.expressions)
    if trailing:
        # GROUP BY a, b WITH ROLLUP is another spelling of GROUP BY ROLLUP (a, b).
        parts = [type(trailing[0])(expressions=[e.copy() for e in parts])]
    keys: list[exp.Expr] = []
    sets = [[key for part in chosen for key in part] for chosen in product(*(_sets(part, keys) for part in parts))]
    return keys, tuple(tuple(dict.fromkeys(sorted(set_))) for set_ in sets)


def _sets(part: exp.Expr, keys: list[exp.Expr]) -> list[list[int]]:
    """Return the grouping sets of one element of GROUP BY, as positions in `keys`; adds its keys to `keys`."""
    if isinstance(part, exp.GroupingSets):
        return [set_ for inner in part.expressions for set_ in _sets(inner, keys)]
    if not isinstance(part, exp.Rollup | exp.Cube):
        return [_numbers(part, keys)]
    members = [_numbers(inner, keys) for inner in part.expressions]
    if isinstance(part, exp.Rollup):
        chosen = [members[:n] for n in range(len(members), -1, -1)]
    else:
        chosen = [list(some) for n in range(len(members), -1, -1) for some in combinations(members, n)]
    return [[key for member in some for key in member] for some in chosen]


def _numbers(part: exp.Expr, keys: list[exp.Expr]) -> list[int]:
    if isinstance(part, exp.Tuple | exp.Paren):
        inner = part.expressions if isinstance(part, exp.Tuple) else [part.this]
        return [number for e in inner for number in _numbers(e, keys)]
    if part not in keys:
        keys.append(part)
    return [keys.index(part)]


def _over_groups(expression: exp.Expr, keys: Sequence[exp.Expr], calls: list[exp.Expr], *, sets: bool) -> exp.Expr:
    """Return an expression that reads keys and aggregates as columns of GROUPS; adds the aggregates to `calls`."""

    def replaced(node: exp.Expr) -> exp.Expr:
        for number, key in enumerate(keys):
            if node == key:
                return exp.column(f"g{number}", table=GROUPS, quoted=True)
        if isinstance(node, exp.Grouping | exp.GroupingId):
            return _membership(node, keys, sets)
        if _is_call(node):
            if node not in calls:
                calls.append(node)
            return exp.column(f"a{calls.index(node)}", table=GROUPS, quoted=True)
        if isinstance(node, exp.Window):
            return _window(node, keys, calls, sets)
        if isinstance(node, exp.Query):
            return _subquery(node, keys)
        return node

    return expression.copy().transform(replaced, copy=False)


def _window(window: exp.Window, keys: Sequence[exp.Expr], calls: list[exp.Expr], sets: bool) -> exp.Expr:
    """Return a window function over groups: its own call is not an aggregate of the groups, its arguments may contain
    some."""
    made = window.copy()
    function = made.this
    while isinstance(function, WRAPPERS):
        if isinstance(function, exp.Filter):
            raise NotCompilable("a window function over groups with FILTER")
        function = function.this
    for holder in (function, made):
        for name, given in list(holder.args.items()):
            parts = given if isinstance(given, list) else [given]
            if (holder is made and name == "this") or not all(isinstance(part, exp.Expr) for part in parts):
                continue
            over = [_over_groups(part, keys, calls, sets=sets) for part in parts]
            holder.set(name, over if isinstance(given, list) else over[0])
    return made


def _subquery(query: exp.Expr, keys: Sequence[exp.Expr]) -> exp.Expr:
    """Return a subquery that reads the keys of groups; rejected if one of its relations has the name of an outer
    one."""
    own = {r.alias_or_name.lower() for r in query.find_all(exp.Table, exp.Subquery) if r.alias_or_name}
    outer = {column.table.lower() for key in keys for column in key.find_all(exp.Column)}
    if own & outer:
        raise NotCompilable("a subquery over groups that reads a relation of the same name")

    def replaced(node: exp.Expr) -> exp.Expr:
        for number, key in enumerate(keys):
            if node == key:
                return exp.column(f"g{number}", table=GROUPS, quoted=True)
        return node

    return query.copy().transform(replaced, copy=False)


def _membership(node: exp.Expr, keys: Sequence[exp.Expr], sets: bool) -> exp.Expr:
    """Return GROUPING or GROUPING_ID as an expression over the columns that mark missing keys."""
    wanted = node.expressions or list(keys)
    # Spark accepts only all keys in their order for GROUPING_ID, and one key for GROUPING.
    fits = wanted == list(keys) if isinstance(node, exp.GroupingId) else len(wanted) == 1 and wanted[0] in keys
    if not sets or not fits:
        raise NotCompilable("GROUPING of an expression that is not in the grouping sets")
    flags = [exp.column(f"k{list(keys).index(key)}", table=GROUPS, quoted=True) for key in wanted]
    if isinstance(node, exp.Grouping):
        return flags[0]
    found: exp.Expr = exp.cast(exp.Literal.number(0), "BIGINT")
    for flag in flags:
        found = exp.Add(this=exp.Mul(this=found, expression=exp.Literal.number(2)), expression=flag)
    return exp.Paren(this=found)


def _is_call(node: exp.Expr) -> bool:
    """Whether a node is a call of an aggregate, with its FILTER and the like."""
    while isinstance(node, WRAPPERS):
        node = node.this
    return isinstance(node, exp.AggFunc) or function_name(node) in AGGREGATES


def _calls_in(expression: exp.Expr) -> bool:
    """Whether an expression contains an aggregate that does not belong to a subquery or a window."""
    if isinstance(expression, exp.Query):
        return False
    if isinstance(expression, exp.Window):
        function = expression.this
        while isinstance(function, WRAPPERS):
            function = function.this
        others = (v for k, v in expression.args.items() if k != "this")
        flat = (part for v in others for part in (v if isinstance(v, list) else [v]) if isinstance(part, exp.Expr))
        return any(_calls_in(part) for part in (*function.iter_expressions(), *flat))
    return _is_call(expression) or any(_calls_in(child) for child in expression.iter_expressions())
