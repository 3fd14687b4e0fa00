"""What makes one content of a table into another, touching only what differs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.tables.draft import State
from millpond.tables.hashing import equal_rows
from millpond.tables.index import Ids
from millpond.tables.keys import Keys
from millpond.tables.unique import group_numbers


def difference(state: State, wanted: pa.RecordBatch, keys: Keys | None) -> tuple[Ids, Ids]:
    """The rows to remove and the positions in `wanted` to add."""
    return _by_key(state, wanted, keys) if keys is not None else _as_multiset(state, wanted)


def _by_key(state: State, wanted: pa.RecordBatch, keys: Keys) -> tuple[Ids, Ids]:
    there = state.locate(keys)
    known = np.flatnonzero(there >= 0)
    old = state.table(there[known], range(len(state.schema)))
    taken = pa.array(known)
    same = equal_rows([c.combine_chunks() for c in old.columns], [c.take(taken) for c in wanted.columns])
    removed = np.setdiff1d(state.ids(), there[known[same]])
    return removed, np.setdiff1d(np.arange(wanted.num_rows), known[same])


def _as_multiset(state: State, wanted: pa.RecordBatch) -> tuple[Ids, Ids]:
    """Equal rows are matched one to one, in order; what is left over on either side differs."""
    table = state.all(range(len(state.schema)))
    old = Keys(tuple(c.combine_chunks() for c in table.columns))
    both = Keys(tuple(pa.concat_arrays([a, b]) for a, b in zip(old.columns, wanted.columns, strict=True)))
    numbers = _row_groups(both)
    count = len(old)
    left, right = _numbered(numbers[:count], len(both)), _numbered(numbers[count:], len(both))
    ids = state.ids()
    return ids[np.flatnonzero(~np.isin(left, right))], np.flatnonzero(~np.isin(right, left))


def _row_groups(rows: Keys) -> Ids:
    numbers = group_numbers(rows) if len(rows) else None
    return np.arange(len(rows)) if numbers is None else numbers


def _numbered(groups: Ids, scale: int) -> Ids:
    """Each row as one number made of its group and how many, less than `scale`, of the group came before it."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(groups) else order
    earlier = np.empty(len(groups), np.int64)
    earlier[order] = np.arange(len(groups)) - np.repeat(starts, np.diff(np.append(starts, len(groups))))
    return groups * scale + earlier
