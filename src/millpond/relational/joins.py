"""Joins: an equality says which rows can meet, the rest of the condition judges those that do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.expressions.failures import NotCompilable
from millpond.relational import codes
from millpond.relational.codes import Coded, Numbers, Values
from millpond.relational.rows import Rows
from millpond.relational.sources import Source

# More pairs than this are Spark's.
PAIRS_MAX = 2_000_000
Evaluate = Callable[[exp.Expr, Rows], Values]


@dataclass(frozen=True)
class Condition:
    """A join condition taken apart: `ours` = `theirs` one by one, and what else must hold."""

    ours: tuple[exp.Expr, ...]
    theirs: tuple[exp.Expr, ...]
    rest: tuple[exp.Expr, ...]


def taken_apart(conditions: Sequence[exp.Expr], alias: str, known: set[str]) -> Condition:
    """What ties a relation to those that are known."""
    ours, theirs, rest = [], [], []
    for condition in conditions:
        sides = _equal_sides(condition, alias, known)
        if sides is None:
            rest.append(condition)
        else:
            ours.append(sides[0])
            theirs.append(sides[1])
    return Condition(tuple(ours), tuple(theirs), tuple(rest))


def _equal_sides(condition: exp.Expr, alias: str, known: set[str]) -> tuple[exp.Expr, exp.Expr] | None:
    if not isinstance(condition, exp.EQ) or condition.find(exp.Query):
        return None
    for ours, theirs in ((condition.this, condition.expression), (condition.expression, condition.this)):
        mine, other = relations_of(ours), relations_of(theirs)
        if mine and mine <= known and other == {alias}:
            return ours, theirs
    return None


def relations_of(expression: exp.Expr) -> set[str]:
    """The relations whose columns an expression mentions, in lower case."""
    return {column.table.lower() for column in expression.find_all(exp.Column)}


def meeting(rows: Rows, source: Source, on: Condition, value: Evaluate) -> tuple[Numbers, Numbers, Rows]:
    """The pairs of positions that satisfy a condition, and the rows of the source that the second ones count."""
    if not on.ours:
        other = source.whole()
        left, right = _every(len(rows), len(other))
    elif len(on.ours) == 1:
        coded = Coded.of(value(on.ours[0], rows))
        other = source.fetched(_plain_keys(on.theirs, [coded.values]))
        values, theirs = _alike(coded.values, value(on.theirs[0], other))
        left, right = codes.pairs_of_one(replace(coded, values=values), theirs)
    else:
        ours = [value(expression, rows) for expression in on.ours]
        other = source.fetched(_plain_keys(on.theirs, ours))
        both = [_alike(a, value(b, other)) for a, b in zip(ours, on.theirs, strict=True)]
        left, right = codes.pairs([a for a, _ in both], [b for _, b in both])
    if len(left) > PAIRS_MAX:
        raise NotCompilable("a join of very many rows")
    if on.rest and len(left):
        met = np.ones(len(left), bool)
        paired = rows.take(left).beside(other.take(right))
        for condition in on.rest:
            met &= as_mask(value(condition, paired))
        left, right = left[met], right[met]
    return left, right, other


def joined(rows: Rows, source: Source, on: Condition, kind: str, value: Evaluate) -> Rows:
    """An inner, left, semi or anti join, in the order of the left rows."""
    left, right, other = meeting(rows, source, on, value)
    if kind in ("SEMI", "ANTI"):
        met = np.zeros(len(rows), bool)
        met[left] = True
        return rows.filter(pa.array(met if kind == "SEMI" else ~met))
    if kind == "LEFT":
        met = np.zeros(len(rows), bool)
        met[left] = True
        alone = np.flatnonzero(~met)
        order = np.argsort(np.concatenate([left, alone]), kind="stable")
        places = np.concatenate([right, np.full(len(alone), -1, right.dtype)])[order]
        left = np.concatenate([left, alone])[order]
        return _in_place(rows, left).beside(other.take(pa.array(places, mask=places < 0)))
    return _in_place(rows, left).beside(other.take(right))


def _in_place(rows: Rows, positions: Numbers) -> Rows:
    """Rows by position, not copied where each stays where it is, as when every one finds one partner."""
    stays = len(positions) == len(rows) and bool((positions == np.arange(len(rows))).all())
    return rows if stays else rows.take(positions)


def as_mask(values: Values) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Where a condition is true; NULL is not."""
    if not pa.types.is_boolean(values.type):
        raise NotCompilable("a condition that is no BOOLEAN")
    found = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return np.asarray(found, bool)


def _plain_keys(theirs: Sequence[exp.Expr], ours: Sequence[Values]) -> dict[str, Values]:
    """What the source's own columns must equal, by their names in lower case."""
    pairs = zip(theirs, ours, strict=True)
    return {e.name.lower(): values for e, values in pairs if isinstance(e, exp.Column) and len(e.parts) <= 2}


def _alike(left: Values, right: Values) -> tuple[Values, Values]:
    """Both in one type, where their equality is plain."""
    if left.type == right.type:
        return left, right
    if pa.types.is_integer(left.type) and pa.types.is_integer(right.type):
        return left.cast(pa.int64()), right.cast(pa.int64())
    raise NotCompilable(f"{left.type} and {right.type} are compared by Spark")


def _every(left: int, right: int) -> tuple[Numbers, Numbers]:
    if left * right > PAIRS_MAX:
        raise NotCompilable("a join of every row with every other")
    return np.repeat(np.arange(left), right), np.tile(np.arange(right), left)
