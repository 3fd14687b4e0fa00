"""Joins as of a time: of the rows of a key, only the one that was valid at the time of the other side's row.

The rows of a key follow each other in time, so that a search finds it; comparing each row with all rows of its key, as
for any other condition, would be slow for a long history.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.relational.codes import NOTHING, Numbers, Values, shared, whole

# The columns of a table's old rows: the times from which a row was valid, and from which it no longer was.
VALID_FROM, VALID_TO = "__from", "__to"


def moment_of(rest: Sequence[exp.Expr], aliases: frozenset[str]) -> tuple[exp.Column, exp.Expr] | None:
    """Return the column with the beginning of validity, and the time that is asked for, if a condition has them."""
    for condition in rest:
        begin = condition.this if isinstance(condition, exp.LTE) else None
        if isinstance(begin, exp.Column) and begin.name == VALID_FROM and begin.table.lower() in aliases:
            others = {column.table.lower() for column in condition.expression.find_all(exp.Column)}
            return None if others & aliases else (begin, condition.expression)
    return None


def valid_pairs(
    left: Sequence[Values], right: Sequence[Values], times: Values, begins: Values, ends: Values
) -> tuple[Numbers, Numbers]:
    """Return the pairs of rows with equal keys of which the right one is the last that began by the left one's time.
    Whether it had ended is left to the rest of the condition."""
    ours, theirs = shared(left, right)
    asked, starts = _micros(times), _micros(begins)
    moments = np.unique(starts)
    _, codes = np.unique(np.concatenate([ours, theirs]), return_inverse=True)
    size = len(moments) + 1
    # A time between two beginnings is that of the earlier one; before all of them it is 0.
    wanted = codes[: len(ours)] * size + np.searchsorted(moments, asked, "right")
    held = codes[len(ours) :] * size + np.searchsorted(moments, starts, "right")
    # A row that ended when it began was replaced at the same time: the one that replaced it comes last.
    until = pc.fill_null(whole(ends).cast(pa.int64()), np.iinfo(np.int64).max).to_numpy(zero_copy_only=False)
    order = np.lexsort((until, held))
    places = np.searchsorted(held[order], wanted, "right") - 1
    known = (places >= 0) & (ours != NOTHING) & pc.is_valid(times).to_numpy(zero_copy_only=False)
    found = np.flatnonzero(known)
    rows = order[places[found]] if len(order) else np.zeros(0, np.int64)
    same = ours[found] == theirs[rows]
    return found[same], rows[same]


def _micros(times: Values) -> Numbers:
    found = pc.fill_null(whole(times).cast(pa.int64()), np.iinfo(np.int64).min)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)
