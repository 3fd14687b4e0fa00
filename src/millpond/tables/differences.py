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
    left, right = _numbered(numbers[:count]), _numbered(numbers[count:])
    kept = set(left) & set(right)
    ids = state.ids()
    removed = [i for i, name in enumerate(left) if name not in kept]
    added = [i for i, name in enumerate(right) if name not in kept]
    return ids[np.array(removed, dtype=np.int64)], np.array(added, dtype=np.int64)


def _row_groups(rows: Keys) -> Ids:
    numbers = group_numbers(rows) if len(rows) else None
    return np.arange(len(rows)) if numbers is None else numbers


def _numbered(groups: Ids) -> list[tuple[int, int]]:
    """Each row as (group, how many of the group came before it)."""
    seen: dict[int, int] = {}
    result = []
    for group in groups.tolist():
        result.append((group, seen.get(group, 0)))
        seen[group] = seen.get(group, 0) + 1
    return result
