"""Indexes over row numbers: a hash index for the primary key, sorted runs of hashes for other columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Links = npt.NDArray[np.int32]

_SLOTS_MIN = 1024
_BUCKETS_PER_SLOT = 2
# The spare room when the arrays grow for one large load: a quarter.
_SPARE_SHARE = 4
# The upper bits of a product with the golden ratio spread the lower bits, which are too similar for similar keys.
_GOLDEN = 0x9E3779B97F4A7C15
_WORD = 64
_ALL = (1 << _WORD) - 1
_HALF = 32
_LOWER = (1 << _HALF) - 1


@dataclass(frozen=True)
class Slots:
    """The arrays of a key index; replaced together when they grow, so that a reader of the old ones stays consistent.

    A slot belongs to one key for the lifetime of the heap. `row` is the newest row of the key; `chain` is the next slot
    of the same bucket. Slots are only added, so a reader may find slots that are newer than its version."""

    heads: Links
    chain: Links
    hashes: Words
    row: Links

    @property
    def _shift(self) -> int:
        return _WORD + 1 - len(self.heads).bit_length()

    def buckets(self, hashes: Words) -> Ids:
        """The bucket of each hash."""
        found = hashes * np.uint64(_GOLDEN)
        found >>= np.uint64(self._shift)
        return found.view(np.int64)

    def find(self, hashes: Words) -> Links:
        """The first slot with each hash, or -1."""
        return self._walk(hashes, self.heads.take(self.buckets(hashes)))

    def find_next(self, hashes: Words, slots: Links) -> Links:
        """The slot after `slots` with the same hash, or -1: for hashes that collide."""
        return self._walk(hashes, self.chain.take(slots))

    def find_one(self, hash_: int) -> Iterator[int]:
        """The slots with a hash, one after another."""
        slot = self.heads.item((hash_ * _GOLDEN & _ALL) >> self._shift)
        while slot >= 0:
            if self.hashes.item(slot) == hash_:
                yield slot
            slot = self.chain.item(slot)

    def _walk(self, hashes: Words, slots: Links) -> Links:
        found = slots.copy()
        open_ = (slots >= 0).nonzero()[0]
        wanted = hashes
        if len(open_) < len(slots):
            slots, wanted = slots.take(open_), hashes.take(open_)
        while len(open_):
            on = (self.hashes.take(slots) != wanted).nonzero()[0]
            open_, wanted = open_.take(on), wanted.take(on)
            slots = self.chain.take(slots.take(on))
            found[open_] = slots
            there = (slots >= 0).nonzero()[0]
            if len(there) < len(open_):
                open_, wanted, slots = open_.take(there), wanted.take(there), slots.take(there)
        return found


class KeyIndex:
    """Slots with one writer and any number of readers."""

    def __init__(self, keys_expected: int = 0) -> None:
        self.slots = _empty_slots(max(_SLOTS_MIN, keys_expected))
        self.used = 0

    def add(self, hashes: Words, rows: Ids) -> None:
        """Add slots for new keys. A slot is complete before it is linked, so that readers see only complete ones."""
        first, end = self.used, self.used + len(hashes)
        slots = self.slots
        if end > len(slots.row):
            slots = _grown(slots, first, end + end // _SPARE_SHARE)
        slots.hashes[first:end] = hashes
        slots.row[first:end] = rows
        _link(slots, first, end)
        self.slots, self.used = slots, end

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (self.slots.heads, self.slots.chain, self.slots.hashes, self.slots.row))


def distinct(ids: Ids) -> Ids:
    """The numbers ascending, each once; np.unique takes ten times as long."""
    ids = np.sort(ids)
    return ids if len(ids) < 2 else ids[first_of_each(ids)]


def first_of_each(ids: Ids) -> npt.NDArray[np.bool_]:
    """Which of ascending numbers differ from the one before."""
    first = np.ones(len(ids), dtype=np.bool_)
    np.not_equal(ids[1:], ids[:-1], out=first[1:])
    return first


def in_row_order(rows: Ids) -> tuple[Ids, Ids]:
    """The rows ascending, and the original position of each. Sorting both as one number takes a third of an argsort."""
    both = np.sort((rows << _HALF) | np.arange(len(rows)))
    return both >> _HALF, both & _LOWER


def renumbered_run(run: Run, numbers: Ids) -> Run:
    """A run after a compaction; rows whose new number is -1 were removed."""
    rows = numbers[run.rows]
    there = rows >= 0
    return Run(run.hashes[there], rows[there].astype(np.int32))


def _empty_slots(capacity: int) -> Slots:
    buckets = 1 << (capacity * _BUCKETS_PER_SLOT - 1).bit_length()
    return Slots(
        heads=np.full(buckets, -1, dtype=np.int32),
        chain=np.full(capacity, -1, dtype=np.int32),
        hashes=np.zeros(capacity, dtype=np.uint64),
        row=np.full(capacity, -1, dtype=np.int32),
    )


def _grown(slots: Slots, used: int, needed: int) -> Slots:
    grown = _empty_slots(max(needed, 2 * len(slots.row)))
    grown.hashes[:used] = slots.hashes[:used]
    grown.row[:used] = slots.row[:used]
    _link(grown, 0, used)
    return grown


def _link(slots: Slots, first: int, end: int) -> None:
    """Insert slots at the head of the chains of their buckets."""
    if first == end:
        return
    if end == first + 1:
        bucket = slots.buckets(slots.hashes[first:end])[0]
        slots.chain[first] = slots.heads[bucket]
        slots.heads[bucket] = first
        return
    buckets = slots.buckets(slots.hashes[first:end])
    order = np.argsort(buckets)
    sorted_buckets = buckets[order]
    new = (order + first).astype(np.int32)
    starts = np.ones(len(new), dtype=np.bool_)
    starts[1:] = sorted_buckets[1:] != sorted_buckets[:-1]
    behind = np.empty(len(new), dtype=np.int32)
    behind[1:] = new[:-1]
    behind[starts] = slots.heads[sorted_buckets[starts]]
    slots.chain[new] = behind
    ends = np.roll(starts, -1)
    slots.heads[sorted_buckets[ends]] = new[ends]


@dataclass(frozen=True)
class Run:
    """Rows sorted by the hash of some columns; immutable."""

    hashes: Words
    rows: Links

    @property
    def nbytes(self) -> int:
        return self.hashes.nbytes + self.rows.nbytes

    def find(self, hashes: Words) -> Ids:
        """All rows with one of the hashes."""
        starts = np.searchsorted(self.hashes, hashes, side="left")
        counts = np.searchsorted(self.hashes, hashes, side="right") - starts
        total = int(counts.sum())
        if not total:
            return np.empty(0, dtype=np.int64)
        ends = np.cumsum(counts)
        positions = np.arange(total) + np.repeat(starts - (ends - counts), counts)
        rows: Ids = self.rows[positions].astype(np.int64)
        return rows


def sorted_run(hashes: Words, first_row: int) -> Run:
    """The run of consecutive rows from `first_row`."""
    order = np.argsort(hashes)
    return Run(hashes[order], (order + first_row).astype(np.int32))


def with_run(runs: tuple[Run, ...], run: Run) -> tuple[Run, ...]:
    """The runs with one more, small ones merged so that their number grows with the logarithm of the rows."""
    merged = [run]
    rest = list(runs)
    while rest and len(rest[-1].rows) <= 2 * sum(len(r.rows) for r in merged):
        merged.append(rest.pop())
    if len(merged) == 1:
        return (*rest, run)
    hashes = np.concatenate([r.hashes for r in reversed(merged)])
    rows = np.concatenate([r.rows for r in reversed(merged)])
    order = np.argsort(hashes)
    return (*rest, Run(hashes[order], rows[order]))
