"""Subqueries in expressions: each row of the query around is paired with the rows that the subquery finds for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.expressions.failures import NotCompilable, SeveralRows
from millpond.relational.codes import Numbers, Values, whole
from millpond.relational.grouping import GROUPS, aggregated, is_grouped, without_calls
from millpond.relational.rows import Rows

if TYPE_CHECKING:
    from millpond.relational.answer import Answer

# The relation that the number of a row around, and what it is compared with, are known as.
AROUND = "__around"


@dataclass(frozen=True)
class Pairs:
    """The rows that a subquery finds, each with the number of the row around that it belongs to."""

    owners: Numbers
    rows: Rows


def value(answer: Answer, node: exp.Expr, rows: Rows) -> Values:
    """What EXISTS, IN, ANY, ALL or a scalar subquery is for every row."""
    if isinstance(node, exp.Exists):
        return _exists(answer, _select(answer, node.this), rows)
    if isinstance(node, exp.In):
        return _member(answer, node, rows)
    if isinstance(node, exp.Subquery):
        return _scalar(answer, node, rows)
    return _quantified(answer, node, rows)


def _exists(answer: Answer, select: exp.Select, rows: Rows) -> Values:
    if not _is_plain(select) or select.args.get("limit"):
        if _is_correlated(answer, select):
            raise NotCompilable("EXISTS with more to it")
        return pa.array(np.full(len(rows), answer.query(select).num_rows > 0))
    found = np.zeros(len(rows), bool)
    if _is_correlated(answer, select):
        found[_pairs(answer, select, rows).owners] = True
    else:
        found[:] = len(answer.rows(select, None)) > 0
    return pa.array(found)


def _scalar(answer: Answer, node: exp.Expr, rows: Rows) -> Values:
    select = _select(answer, node)
    if len(select.expressions) != 1:
        raise NotCompilable("a scalar subquery of several columns")
    if not _is_correlated(answer, select):
        found = answer.query(select)
        if found.num_rows > 1:
            raise SeveralRows
        at = np.zeros(len(rows), np.int64)
        return found.column(0).combine_chunks().take(pa.array(at, mask=at == found.num_rows))
    if is_grouped(select):
        return _scalar_aggregate(answer, select, rows)
    if not _is_plain(select) or select.args.get("limit"):
        raise NotCompilable("a correlated subquery with more to it")
    pairs = _pairs(answer, select, rows)
    values = answer.value(_output(select), pairs.rows)
    owners, counts = np.unique(pairs.owners, return_counts=True)
    if len(owners) < len(pairs.owners):
        raise SeveralRows(_shown(select, rows, int(owners[counts > 1][0])))
    places = np.full(len(rows), -1, np.int64)
    places[pairs.owners] = np.arange(len(pairs.owners))
    return whole(values).take(pa.array(places, mask=places < 0))


def _shown(select: exp.Select, rows: Rows, number: int) -> str:
    """What a subquery reads of one row around it."""
    read = dict.fromkeys((c.table.lower(), c.name.lower()) for c in select.find_all(exp.Column))
    known = {name: rows.names.get(table, {}).get(name) for table, name in read}
    values = {name: rows.table[own][number].as_py() for name, own in known.items() if own}
    return " and ".join(f"{name} = {repr(v) if isinstance(v, str) else v}" for name, v in values.items())


def _scalar_aggregate(answer: Answer, select: exp.Select, rows: Rows) -> Values:
    """An aggregate of the rows found for each row around: of no rows where there are none."""
    if any(select.args.get(part) for part in ("group", "having", "limit", "distinct")):
        raise NotCompilable("a correlated subquery with more to it")
    flat, calls = answer.memory.once("aggregates", select, lambda: _with_calls(select))
    pairs = _pairs(answer, select, rows)
    found = aggregated(calls, pairs.rows, (pairs.owners, len(rows)), answer.value, answer.memory)
    return answer.value(flat, answer.named(GROUPS, {f"a{n}": column for n, column in enumerate(found)}))


def _with_calls(select: exp.Select) -> tuple[exp.Expr, tuple[exp.Expr, ...]]:
    calls: list[exp.Expr] = []
    flat = without_calls(_output(select), calls)
    return flat, tuple(calls)


def _member(answer: Answer, node: exp.In, rows: Rows) -> Values:
    """x IN (query): NULL where x is, or where it is not found among values of which some are NULL."""
    select = _select(answer, node.args["query"])
    if _is_correlated(answer, select) or len(select.expressions) != 1:
        equal = answer.memory.once("equal", node, lambda: _as_any(node))
        return _quantified(answer, equal, rows)
    wanted = answer.value(node.this, rows)
    values = answer.query(select).column(0)
    if wanted.type != values.type or pa.types.is_floating(values.type) or pa.types.is_nested(values.type):
        raise NotCompilable("values of different types")
    if not len(values):
        return pa.array(np.zeros(len(rows), bool))
    found = pc.is_in(wanted, value_set=whole(values).drop_null(), skip_nulls=True)
    unknown = pc.or_(pc.is_null(wanted), pc.and_(pc.invert(found), pa.scalar(values.null_count > 0)))
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)


def _as_any(node: exp.In) -> exp.Expr:
    return exp.EQ(this=node.this.copy(), expression=exp.Any(this=node.args["query"].copy()))


def _quantified(answer: Answer, node: exp.Expr, rows: Rows) -> Values:
    """x > ANY (query) and its like: true if one comparison is, else NULL if one is, else false; ALL the other way."""
    quantifier = node.args["expression"]
    select = _select(answer, quantifier.this)
    if len(select.expressions) != 1 or select.args.get("limit"):
        raise NotCompilable("a comparison with several columns")
    compared = answer.value(node.this, rows)
    known = rows.with_column(AROUND, "x", compared, f"_{next(answer.numbers)}")
    if not _is_correlated(answer, select):
        pairs, output = _with_every(answer, select, known), exp.column("v", table=AROUND, quoted=True)
        comparison = answer.memory.once("every", node, lambda: _comparison(node, output))
    elif _is_plain(select):
        pairs = _pairs(answer, select, known)
        comparison = answer.memory.once("comparison", node, lambda: _comparison(node, _output(select)))
    else:
        raise NotCompilable("a correlated subquery with more to it")
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


def _with_every(answer: Answer, select: exp.Select, rows: Rows) -> Pairs:
    """Every row with each different value of a subquery that looks at nothing around it."""
    values = whole(answer.query(select).column(0))
    if pa.types.is_nested(values.type):
        raise NotCompilable(f"{values.type} is compared by Spark")
    values = values.unique()
    if len(values) * len(rows) > EVERY_MAX:
        raise NotCompilable("a comparison with very many values")
    owners = np.repeat(np.arange(len(rows)), len(values))
    each = values.take(pa.array(np.tile(np.arange(len(values)), len(rows))))
    return Pairs(owners, rows.take(owners).with_column(AROUND, "v", each, f"_{next(answer.numbers)}"))


# More comparisons than this are Spark's.
EVERY_MAX = 1_000_000


def _pairs(answer: Answer, select: exp.Select, rows: Rows) -> Pairs:
    own = f"_{next(answer.numbers)}"
    numbered = rows.with_column(AROUND, "n", pa.array(np.arange(len(rows))), own)
    found = answer.rows(select, numbered)
    return Pairs(found.table.column(own).to_numpy(), found)


def _select(answer: Answer, node: exp.Expr) -> exp.Select:
    from millpond.relational.answer import checked

    return checked(node.unnest())


def _output(select: exp.Select) -> exp.Expr:
    output: exp.Expr = select.expressions[0].unalias()
    return output


def _is_plain(select: exp.Select) -> bool:
    """Whether its rows are those of FROM and WHERE; DISTINCT and ORDER BY change nothing where they are compared."""
    return not is_grouped(select) and not select.args.get("having") and not select.args.get("offset")


def _is_correlated(answer: Answer, select: exp.Select) -> bool:
    return answer.memory.once("correlated", select, lambda: _looks_around(select))


def _looks_around(select: exp.Select) -> bool:
    own = {r.alias_or_name.lower() for r in select.find_all(exp.Table, exp.Subquery) if r.alias_or_name}
    return any(column.table.lower() not in own for column in select.find_all(exp.Column) if column.table)
