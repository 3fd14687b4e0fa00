"""Joins: equalities determine the candidate pairs, the rest of the condition filters them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.expressions.coercion import comparable, wider
from millpond.expressions.failures import NotCompilable
from millpond.relational import codes
from millpond.relational.codes import Coded, Numbers, Values
from millpond.relational.inputs import FromItem, Rows
from millpond.relational.moments import VALID_TO, moment_of, valid_pairs

Evaluate = Callable[[exp.Expr, Rows], Values]


@dataclass(frozen=True)
class Condition:
    """A join condition: the equalities `ours` = `theirs`, pair by pair, and the rest."""

    ours: tuple[exp.Expr, ...]
    theirs: tuple[exp.Expr, ...]
    rest: tuple[exp.Expr, ...]


def split_condition(conditions: Sequence[exp.Expr], aliases: frozenset[str], known: set[str]) -> Condition:
    """Separate the equalities between a relation and those that are already joined."""
    ours, theirs, rest = [], [], []
    for condition in conditions:
        sides = _equal_sides(condition, aliases, known)
        if sides is None:
            rest.append(condition)
        else:
            ours.append(sides[0])
            theirs.append(sides[1])
    return Condition(tuple(ours), tuple(theirs), tuple(rest))


def _equal_sides(condition: exp.Expr, aliases: frozenset[str], known: set[str]) -> tuple[exp.Expr, exp.Expr] | None:
    if not isinstance(condition, exp.EQ) or condition.find(exp.Query):
        return None
    for ours, theirs in ((condition.this, condition.expression), (condition.expression, condition.this)):
        mine, other = relations_of(ours), relations_of(theirs)
        if mine and mine <= known and other and other <= aliases:
            return ours, theirs
    return None


def relations_of(expression: exp.Expr) -> set[str]:
    """Return the relations whose columns an expression mentions, in lower case."""
    return {column.table.lower() for column in expression.find_all(exp.Column)}


def meeting(
    rows: Rows, item: FromItem, on: Condition, value: Evaluate, *, whole: bool
) -> tuple[Numbers, Numbers, Rows]:
    """Return the pairs of positions that satisfy a condition, and the rows that the second positions refer to: all rows
    of the relation if `whole`, else at least those that can be in a pair."""
    moment = moment_of(on.rest, item.aliases) if on.ours else None
    if moment is not None:
        other, left, right = _by_moment(rows, item, on, value, whole, moment)
    elif not on.ours:
        other = item.whole()
        left, right = _every(len(rows), len(other), item.limits.pairs)
    elif len(on.ours) == 1:
        other, left, right = _by_one(rows, item, on, value, whole)
    else:
        ours = [value(expression, rows) for expression in on.ours]
        other = item.whole() if whole else item.fetched(_plain_keys(on.theirs, ours))
        both = [alike(a, value(b, other)) for a, b in zip(ours, on.theirs, strict=True)]
        left, right = codes.pairs([a for a, _ in both], [b for _, b in both])
    if len(left) > item.limits.pairs:
        raise NotCompilable(f"a join that returns more than {item.limits.pairs} rows")
    if on.rest and len(left):
        met = np.ones(len(left), bool)
        paired = rows.take(left).beside(other.take(right))
        for condition in on.rest:
            met &= as_mask(value(condition, paired))
        left, right = left[met], right[met]
    return left, right, other


def _by_moment(
    rows: Rows, item: FromItem, on: Condition, value: Evaluate, whole: bool, moment: tuple[exp.Column, exp.Expr]
) -> tuple[Rows, Numbers, Numbers]:
    """Return the pairs of equal keys in which the right row was valid at the time of the left one."""
    ours = [value(expression, rows) for expression in on.ours]
    other = item.whole() if whole else item.fetched(_plain_keys(on.theirs, ours))
    both = [alike(a, value(b, other)) for a, b in zip(ours, on.theirs, strict=True)]
    begins, time = value(moment[0], other), value(moment[1], rows)
    if begins.type != time.type:
        raise NotCompilable("a time of another type than that of the history")
    ends = value(exp.column(VALID_TO, table=moment[0].table, quoted=True), other)
    return other, *valid_pairs([a for a, _ in both], [b for _, b in both], time, begins, ends)


def _by_one(rows: Rows, item: FromItem, on: Condition, value: Evaluate, whole: bool) -> tuple[Rows, Numbers, Numbers]:
    """Return the pairs of one equality."""
    ours = value(on.ours[0], rows)
    if pa.types.is_nested(ours.type) or pa.types.is_floating(ours.type) or pa.types.is_null(ours.type):
        other = item.whole()
        first, second = alike(ours, value(on.theirs[0], other))
        return other, *codes.pairs([first], [second])
    coded = Coded.of(ours)
    other = item.whole() if whole else item.fetched(_plain_keys(on.theirs, [coded.values]))
    values, theirs = alike(coded.values, value(on.theirs[0], other))
    if pa.types.is_floating(values.type):
        return other, *codes.pairs([values.take(coded.places)], [theirs])
    return other, *codes.pairs_of_one(replace(coded, values=codes.whole(values)), theirs)


def joined(rows: Rows, item: FromItem, on: Condition, kind: str, value: Evaluate) -> Rows:
    """Join in the order of the left rows; unmatched rows of the right side come last."""
    left, right, other = meeting(rows, item, on, value, whole=kind in ("RIGHT", "FULL"))
    if kind in ("SEMI", "ANTI"):
        met = np.zeros(len(rows), bool)
        met[left] = True
        return rows.filter(pa.array(met if kind == "SEMI" else ~met))
    if kind == "LEFT":
        return unmatched(rows, other, left, right)
    if kind == "INNER":
        return _in_place(rows, left).beside(other.take(right))
    alone = _others(len(other), right)
    if kind == "FULL":
        missing = _others(len(rows), left)
        order = np.argsort(np.concatenate([left, missing]), kind="stable")
        left = np.concatenate([left, missing])[order]
        right = np.concatenate([right, np.full(len(missing), -1)])[order]
    left, right = np.concatenate([left, np.full(len(alone), -1)]), np.concatenate([right, alone])
    return rows.take(_or_null(left)).beside(other.take(_or_null(right)))


def unmatched(rows: Rows, other: Rows, left: Numbers, right: Numbers) -> Rows:
    """Return the rows of a left join: the pairs, and the unmatched left rows with NULLs, in the order of the left
    rows."""
    alone = _others(len(rows), left)
    if not len(alone):
        return _in_place(rows, left).beside(other.take(right))
    order = np.argsort(np.concatenate([left, alone]), kind="stable")
    places = np.concatenate([right, np.full(len(alone), -1, right.dtype)])[order]
    left = np.concatenate([left, alone])[order]
    return _in_place(rows, left).beside(other.take(_or_null(places)))


def _others(count: int, positions: Numbers) -> Numbers:
    """Return the positions up to a count that are not among the given ones."""
    others = np.ones(count, bool)
    others[positions] = False
    return np.flatnonzero(others)


def _or_null(places: Numbers) -> pa.Array:
    """Return positions with NULL for negative ones."""
    return pa.array(places, mask=places < 0)


def _in_place(rows: Rows, positions: Numbers) -> Rows:
    """Return rows by position, without a copy if each keeps its position, as when each has exactly one partner."""
    stays = len(positions) == len(rows) and bool((positions == np.arange(len(rows))).all())
    return rows if stays else rows.take(positions)


def as_mask(values: Values) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return where a condition is true; NULL counts as false."""
    if not pa.types.is_boolean(values.type):
        raise NotCompilable("a condition that is not a BOOLEAN")
    found = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return np.asarray(found, bool)


def _plain_keys(theirs: Sequence[exp.Expr], ours: Sequence[Values]) -> dict[str, Values]:
    """Return the values that plain columns of the relation must be equal to, by their names in lower case."""
    pairs = zip(theirs, ours, strict=True)
    return {e.name.lower(): values for e, values in pairs if isinstance(e, exp.Column) and len(e.parts) <= 2}


def alike(left: Values, right: Values) -> tuple[Values, Values]:
    """Cast both sides to the type in which Spark compares them."""
    if left.type == right.type:
        return left, right
    type_ = wider(left.type, right.type)
    if type_ is None or not comparable(left.type, right.type):
        raise NotCompilable(f"an equality of {left.type} and {right.type}")
    return codes.in_type(left, type_), codes.in_type(right, type_)


def _every(left: int, right: int, pairs_max: int) -> tuple[Numbers, Numbers]:
    if left * right > pairs_max:
        raise NotCompilable(f"a join without an equality of more than {pairs_max} pairs of rows")
    return np.repeat(np.arange(left), right), np.tile(np.arange(right), left)
