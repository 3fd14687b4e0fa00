"""A table's content made equal to rows that come in parts: only what differs is changed, by key or as a multiset."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.tables.draft import Draft
from millpond.tables.hashing import equal_rows, hash_columns
from millpond.tables.index import Ids
from millpond.tables.lookup_keys import Keys

# Rows that are hashed at a time.
SLICE_ROWS = 65_536
_NO_ROWS = np.empty(0, dtype=np.int64)


class Replacement:
    """Replaces the content of one draft by rows that arrive in parts. It holds a few bytes per old row, never the
    rows."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._before = np.sort(draft.ids())
        self._seen = np.zeros(len(self._before), dtype=np.bool_)
        self._multiset: Multiset | None = None

    def add(self, rows: pa.RecordBatch, keys: Keys | None) -> int:
        """Add rows of the new content, with distinct keys; one of a later call replaces an earlier one of the same key.
        Returns how many of them are new or changed."""
        if not rows.num_rows:
            return 0
        if not len(self._before) and keys is None:
            self._draft.change(_NO_ROWS, rows)
            return int(rows.num_rows)
        return self._add_alike(rows) if keys is None else self._add_by_key(rows, keys)

    def _add_by_key(self, rows: pa.RecordBatch, keys: Keys) -> int:
        there = self._draft.locate(keys)
        known = np.flatnonzero(there >= 0)
        same = self._equal(there[known], rows, known)
        mine = there[known]
        self._see(mine)
        new = np.setdiff1d(np.arange(rows.num_rows), known[same], assume_unique=True)
        if len(new):
            self._draft.change(mine[~same], rows.take(pa.array(new)), Keys(keys.at(new)))
        return len(new)

    def _add_alike(self, rows: pa.RecordBatch) -> int:
        if self._multiset is None:
            self._multiset = Multiset(self._draft, self._before)
        asked, there = self._multiset.take(hash_columns(rows.columns))
        same = self._equal(there, rows, asked)
        self._see(there[same])
        new = np.setdiff1d(np.arange(rows.num_rows), asked[same], assume_unique=True)
        if len(new):
            self._draft.change(_NO_ROWS, rows.take(pa.array(new)))
        return len(new)

    def _see(self, ids: Ids) -> None:
        """Old rows, among others, belong to the content."""
        places = np.searchsorted(self._before, ids)
        inside = places < len(self._before)
        places, ids = places[inside], ids[inside]
        self._seen[places[self._before[places] == ids]] = True

    def _equal(self, ids: Ids, rows: pa.RecordBatch, positions: Ids) -> np.ndarray:
        """Which of some rows of the draft are the same as those at these positions."""
        if not len(ids):
            return np.empty(0, dtype=np.bool_)
        old = self._draft.table(ids, range(len(self._draft.schema)))
        taken = pa.array(positions)
        return equal_rows([c.combine_chunks() for c in old.columns], [c.take(taken) for c in rows.columns])

    def finish(self) -> int:
        """Remove the old rows that are not among the added ones; returns their number."""
        gone = self._before[~self._seen]
        if len(gone):
            self._draft.remove(gone)
        return len(gone)


class Multiset:
    """The rows of a draft by their hashes; each is given away once."""

    def __init__(self, draft: Draft, ids: Ids) -> None:
        every = range(len(draft.schema))
        slices = (draft.table(ids[n : n + SLICE_ROWS], every) for n in range(0, len(ids), SLICE_ROWS))
        parts = [hash_columns([c.combine_chunks() for c in rows.columns]) for rows in slices]
        hashes = np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._ids = hashes[order], ids[order]
        # How many rows of each run of equal hashes were given away, at the beginning of the run.
        self._given = np.zeros(len(order), dtype=np.int64)

    def take(self, hashes: np.ndarray) -> tuple[Ids, Ids]:
        """For rows of these hashes, as far as there are any of the same: their positions, and the rows of the draft.
        Rows of the same hash may differ: then they are gone and new, which is no less right."""
        first = np.searchsorted(self._hashes, hashes, side="left")
        behind = np.searchsorted(self._hashes, hashes, side="right")
        known = np.flatnonzero(first < behind)
        first, behind = first[known], behind[known]
        place = first + self._given[first] + _ranks(first)
        there = place < behind
        np.add.at(self._given, first[there], 1)
        return known[there], self._ids[place[there]]


def _ranks(groups: Ids) -> Ids:
    """How many of the same group come before each."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(groups) else order
    earlier = np.empty(len(groups), np.int64)
    earlier[order] = np.arange(len(groups)) - np.repeat(starts, np.diff(np.append(starts, len(groups))))
    return earlier
