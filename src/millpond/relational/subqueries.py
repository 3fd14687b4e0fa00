"""Subqueries in expressions: each row of the outer query is paired with the rows that the subquery returns for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.expressions.failures import NotCompilable, SeveralRows
from millpond.expressions.sort_ranks import NULL_RANK, ranks
from millpond.relational.codes import Numbers, Values, whole
from millpond.relational.compiled import checked
from millpond.relational.evaluation import Evaluation
from millpond.relational.group_by import GROUPS, aggregated, is_grouped, without_calls
from millpond.relational.inputs import Rows, known_as
from millpond.relational.joins import alike
from millpond.relational.window_frames import Key

# The relation with the number of the outer row and the value that it is compared with.
AROUND = "__around"


@dataclass(frozen=True)
class Pairs:
    """The rows of a subquery, each with the number of its outer row."""

    owners: Numbers
    rows: Rows


def value(answer: Evaluation, node: exp.Expr, rows: Rows) -> Values:
    """Evaluate EXISTS, IN, ANY, ALL or a scalar subquery for every row."""
    if isinstance(node, exp.Exists):
        return _exists(answer, node.this, rows)
    if isinstance(node, exp.In):
        return _member(answer, node, rows)
    if isinstance(node, exp.Subquery):
        return _scalar(answer, node, rows)
    return _quantified(answer, node, rows)


def _exists(answer: Evaluation, query: exp.Expr, rows: Rows) -> Values:
    if not _is_correlated(answer, query):
        return pa.array(np.full(len(rows), answer.query(query).num_rows > 0))
    select = _select(query)
    limit = select.args.get("limit")
    # A limit of at least one row does not change whether there are rows.
    if not _is_plain(select) or (limit is not None and _limit(limit) < 1):
        raise NotCompilable("a correlated EXISTS with groups or an offset")
    found = np.zeros(len(rows), bool)
    found[_pairs(answer, select, rows).owners] = True
    return pa.array(found)


def _limit(limit: exp.Expr) -> int:
    count = limit.expression
    if not isinstance(count, exp.Literal) or count.is_string:
        raise NotCompilable("a LIMIT that is not a literal")
    return int(count.name)


def _scalar(answer: Evaluation, node: exp.Expr, rows: Rows) -> Values:
    if not _is_correlated(answer, node):
        found = answer.query(node)
        if found.num_columns != 1:
            raise NotCompilable("a scalar subquery with several columns")
        if found.num_rows > 1:
            raise SeveralRows
        at = np.zeros(len(rows), np.int64)
        return found.column(0).combine_chunks().take(pa.array(at, mask=at == found.num_rows))
    select = _select(node)
    if len(select.expressions) != 1:
        raise NotCompilable("a scalar subquery with several columns")
    if is_grouped(select):
        return _scalar_aggregate(answer, select, rows)
    if not _is_plain(select):
        raise NotCompilable("a form of correlated subquery that only Spark supports")
    pairs = _pairs(answer, select, rows)
    if select.args.get("limit") is not None:
        pairs = _first_of_each(answer, select, pairs)
    values = answer.value(_output(select), pairs.rows)
    owners, counts = np.unique(pairs.owners, return_counts=True)
    if len(owners) < len(pairs.owners):
        raise SeveralRows(_shown(select, rows, int(owners[counts > 1][0])))
    places = np.full(len(rows), -1, np.int64)
    places[pairs.owners] = np.arange(len(pairs.owners))
    return whole(values).take(pa.array(places, mask=places < 0))


def _first_of_each(answer: Evaluation, select: exp.Select, pairs: Pairs) -> Pairs:
    """Apply ORDER BY ... LIMIT 1: keep the first row of each outer row."""
    if _limit(select.args["limit"]) != 1 or select.args.get("distinct"):
        raise NotCompilable("a form of correlated subquery that only Spark supports")
    order = select.args.get("order")
    keys = []
    for key in order.expressions if order is not None else ():
        expression = key.this
        if isinstance(expression, exp.Column) and not expression.table:
            expression = _output(select)
            if key.this.name.lower() != select.expressions[0].alias_or_name.lower():
                raise NotCompilable("an ORDER BY name that is not the output of the subquery")
        values = answer.value(expression, pairs.rows)
        keys.append(Key(values, bool(key.args.get("desc")), bool(key.args.get("nulls_first"))))
    places = np.lexsort((*(key.places for key in reversed(keys)), pairs.owners))
    owners = pairs.owners[places]
    first = places[np.insert(owners[1:] != owners[:-1], 0, True)] if len(places) else places
    return Pairs(pairs.owners[first], pairs.rows.take(first))


def _shown(select: exp.Select, rows: Rows, number: int) -> str:
    """Return the values of one outer row that the subquery reads, for the error message."""
    read = dict.fromkeys((c.table.lower(), c.name.lower()) for c in select.find_all(exp.Column))
    known = {name: rows.names.get(table, {}).get(name) for table, name in read}
    values = {name: rows.table[own][number].as_py() for name, own in known.items() if own}
    return " and ".join(f"{name} = {repr(v) if isinstance(v, str) else v}" for name, v in values.items())


def _scalar_aggregate(answer: Evaluation, select: exp.Select, rows: Rows) -> Values:
    """Aggregate the rows of each outer row; one without rows gets the aggregate of no rows, such as COUNT(*) = 0."""
    if any(select.args.get(part) for part in ("group", "having", "limit", "distinct")):
        raise NotCompilable("a form of correlated subquery that only Spark supports")
    flat, calls = answer.cache.once("aggregates", select, lambda: _with_calls(select))
    pairs = _pairs(answer, select, rows)
    found = aggregated(calls, pairs.rows, (pairs.owners, len(rows)), answer.value, answer.cache)
    groups = known_as(GROUPS, {f"a{n}": column for n, column in enumerate(found)}, answer.numbers)
    return answer.value(flat, groups)


def _with_calls(select: exp.Select) -> tuple[exp.Expr, tuple[exp.Expr, ...]]:
    calls: list[exp.Expr] = []
    flat = without_calls(_output(select), calls)
    return flat, tuple(calls)


def _member(answer: Evaluation, node: exp.In, rows: Rows) -> Values:
    """Evaluate `x IN (query)`: NULL if x is NULL, or if x is not found and some values are NULL."""
    query = node.args["query"]
    if _is_correlated(answer, query):
        equal = answer.cache.once("equal", node, lambda: _as_any(node))
        return _quantified(answer, equal, rows)
    parts = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
    wanted = [answer.value(part, rows) for part in parts]
    found = answer.query(query)
    if len(wanted) != found.num_columns:
        raise NotCompilable("a comparison with a subquery of several columns")
    if not found.num_rows:
        return pa.array(np.zeros(len(rows), bool))
    values = found.column(0)
    if len(wanted) > 1 or wanted[0].type != values.type or pa.types.is_floating(values.type):
        return _among(wanted, found.columns, answer.limits.pairs)
    if pa.types.is_nested(values.type) or pa.types.is_null(values.type):
        return _among(wanted, found.columns, answer.limits.pairs)
    inside = pc.is_in(wanted[0], value_set=whole(values).drop_null(), skip_nulls=True)
    unknown = pc.or_(pc.is_null(wanted[0]), pc.and_(pc.invert(inside), pa.scalar(values.null_count > 0)))
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), inside)


def _among(wanted: Sequence[Values], found: Sequence[Values], pairs_max: int) -> Values:
    """Evaluate IN for values of any type: NULL if a row would be equal but for NULLs."""
    count = len(wanted[0])
    both = [alike(a, b) for a, b in zip(wanted, found, strict=True)]
    codes = np.stack([ranks(pa.concat_arrays([whole(a), whole(b)])) for a, b in both])
    ours, theirs = codes[:, :count], np.unique(codes[:, count:], axis=1)
    if count * theirs.shape[1] > pairs_max:
        raise NotCompilable("a comparison with too many values of a subquery")
    inside, unknown = np.zeros(count, bool), np.zeros(count, bool)
    for other in theirs.T:
        is_null = (ours == NULL_RANK) | (other[:, None] == NULL_RANK)
        equal = ours == other[:, None]
        inside |= (equal & ~is_null).all(axis=0)
        unknown |= (equal | is_null).all(axis=0)
    return pa.array(inside, mask=unknown & ~inside)


def _as_any(node: exp.In) -> exp.Expr:
    return exp.EQ(this=node.this.copy(), expression=exp.Any(this=node.args["query"].copy()))


def _quantified(answer: Evaluation, node: exp.Expr, rows: Rows) -> Values:
    """Evaluate `x > ANY (query)` and the like: true if one comparison is, else NULL if one is, else false. ALL is the
    opposite: false if one comparison is."""
    quantifier = node.args["expression"]
    query = quantifier.this
    compared = answer.value(node.this, rows)
    known = rows.with_column(AROUND, "x", compared, f"_{next(answer.numbers)}")
    if not _is_correlated(answer, query):
        pairs, output = _with_every(answer, query, known), exp.column("v", table=AROUND, quoted=True)
        comparison = answer.cache.once("every", node, lambda: _comparison(node, output))
    else:
        select = _select(query)
        if len(select.expressions) != 1 or select.args.get("limit") or not _is_plain(select):
            raise NotCompilable("a form of correlated subquery that only Spark supports")
        pairs = _pairs(answer, select, known)
        comparison = answer.cache.once("comparison", node, lambda: _comparison(node, _output(select)))
    return _decided(answer.value(comparison, pairs.rows), pairs.owners, len(rows), isinstance(quantifier, exp.All))


def _comparison(node: exp.Expr, output: exp.Expr) -> exp.Expr:
    return type(node)(this=exp.column("x", table=AROUND, quoted=True), expression=output.copy())


def _decided(compared: Values, owners: Numbers, count: int, is_all: bool) -> Values:
    decisive = pc.fill_null(pc.invert(compared) if is_all else compared, False).to_numpy(zero_copy_only=False)
    unknown = pc.is_null(compared).to_numpy(zero_copy_only=False)
    decided, open_ = np.zeros(count, bool), np.zeros(count, bool)
    decided[owners[np.asarray(decisive, bool)]] = True
    open_[owners[np.asarray(unknown, bool)]] = True
    return pa.array(decided ^ is_all, mask=open_ & ~decided)


def _with_every(answer: Evaluation, query: exp.Expr, rows: Rows) -> Pairs:
    """Pair every row with each distinct value of a subquery that is not correlated."""
    found = answer.query(query)
    if found.num_columns != 1:
        raise NotCompilable("a comparison with a subquery of several columns")
    values = whole(found.column(0))
    if pa.types.is_nested(values.type):
        raise NotCompilable(f"a comparison with values of type {values.type}")
    values = values.unique()
    if len(values) * len(rows) > answer.limits.pairs:
        raise NotCompilable("a comparison with too many values of a subquery")
    owners = np.repeat(np.arange(len(rows)), len(values))
    each = values.take(pa.array(np.tile(np.arange(len(values)), len(rows))))
    return Pairs(owners, rows.take(owners).with_column(AROUND, "v", each, f"_{next(answer.numbers)}"))


def _pairs(answer: Evaluation, select: exp.Select, rows: Rows) -> Pairs:
    own = f"_{next(answer.numbers)}"
    numbered = rows.with_column(AROUND, "n", pa.array(np.arange(len(rows))), own)
    found = answer.rows(select, numbered)
    return Pairs(found.table.column(own).to_numpy(), found)


def _select(node: exp.Expr) -> exp.Select:
    return checked(node.unnest())


def _output(select: exp.Select) -> exp.Expr:
    output: exp.Expr = select.expressions[0].unalias()
    return output


def _is_plain(select: exp.Select) -> bool:
    """Whether a subquery returns the rows of FROM and WHERE; DISTINCT and ORDER BY do not change a comparison."""
    return not is_grouped(select) and not select.args.get("having") and not select.args.get("offset")


def _is_correlated(answer: Evaluation, query: exp.Expr) -> bool:
    return answer.cache.once("correlated", query, lambda: _reads_outer_columns(query))


def _reads_outer_columns(query: exp.Expr) -> bool:
    relations = (exp.Table, exp.Subquery, exp.Lateral, exp.Values)
    own = {r.alias_or_name.lower() for r in query.find_all(*relations) if r.alias_or_name}
    return any(column.table.lower() not in own for column in query.find_all(exp.Column) if column.table)
