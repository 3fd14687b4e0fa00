"""Keys of a lookup: arrays of the key columns' types, or one key as Python values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import ConstraintError
from millpond.schema import Schema
from millpond.tables import hashing
from millpond.tables.chunks import lazy
from millpond.tables.hashing import Words, equal_rows
from millpond.tables.index import Ids

Parts = tuple[Any, ...]


class Keys:
    """Key values, one array per key column, of exactly the columns' types."""

    # The version that has looked up all of them, and their slots or rows in it, which a following change needs again.
    looked_up: tuple[object, npt.NDArray[Any]] | None = None

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    @lazy
    def one(self) -> Parts | None:
        """The key as Python values, if there is only one, of texts, bytes and whole numbers: that takes a quarter of
        the time."""
        if len(self) != 1:
            return None
        parts = tuple(column[0].as_py() for column in self.columns)
        return parts if all(type(part) in (str, bytes, int) for part in parts) else None

    @lazy
    def hash_of_one(self) -> int:
        """The hash of a single key."""
        assert self.one is not None
        return hashing.hash_key(self.one)

    @lazy
    def hashes(self) -> Words:
        if self.one is not None:
            return np.array([self.hash_of_one], dtype=np.uint64)
        return hashing.hash_columns(self.columns)

    def at(self, positions: Ids) -> Sequence[pa.Array]:
        """Some of the keys; positions ascend, each at most once."""
        return self.columns if len(positions) == len(self) else self.taken(positions)

    def taken(self, positions: Ids) -> list[pa.Array]:
        """Some of the keys, in any order."""
        places = pa.array(positions)
        return [column.take(places) for column in self.columns]


class OneKey(Keys):
    """One key of texts, bytes and whole numbers; its arrays are created on demand."""

    def __init__(self, parts: Parts, types: Sequence[pa.DataType]) -> None:
        self.one = parts
        self._types = types

    def __len__(self) -> int:
        return 1

    @lazy
    def columns(self) -> Sequence[pa.Array]:
        return tuple(pa.array([part], type_) for part, type_ in zip(self.one or (), self._types, strict=True))


def key_columns(schema: Schema, batch: pa.RecordBatch | pa.Table) -> Keys:
    """The keys of rows that have all columns of the schema."""
    return Keys(tuple(contiguous(batch.select([schema.position(name) for name in schema.key]))))


def contiguous(rows: pa.RecordBatch | pa.Table) -> list[pa.Array]:
    """The columns, each as one array."""
    return [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in rows.columns]


def among(rows: Keys, keys: Keys) -> npt.NDArray[np.bool_]:
    """Which rows have values that are among the keys; a NULL among the keys matches NULL."""
    order = np.argsort(keys.hashes)
    hashes = keys.hashes[order]
    found = np.zeros(len(rows), dtype=np.bool_)
    if not len(hashes):
        return found
    places = np.searchsorted(hashes, rows.hashes, side="left")
    open_ = np.flatnonzero(places < len(hashes))
    while len(open_):
        open_ = open_[hashes[places[open_]] == rows.hashes[open_]]
        same = equal_rows(rows.at(open_), keys.taken(order[places[open_]]))
        found[open_[same]] = True
        open_ = open_[~same]
        places[open_] += 1
        open_ = open_[places[open_] < len(hashes)]
    return found


def check_unique(table: str, schema: Schema, keys: Keys) -> None:
    """MP402 when two of the rows have the same key."""
    groups = group_numbers(keys)
    if groups is None:
        return
    first = np.unique(groups, return_index=True)[1]
    second = np.setdiff1d(np.arange(len(keys)), first)
    if len(second):
        message = f"Two of the rows for '{table}' have the key {shown_key(schema, keys, int(second[0]))}."
        raise ConstraintError(
            "MP402", message, hint="Keep one of them, or use UPSERT, where the last one wins. Nothing was changed."
        )


def last_of_each(keys: Keys) -> Ids | None:
    """The positions of the last row of every key, ascending; None when all keys differ."""
    groups = group_numbers(keys)
    if groups is None:
        return None
    reversed_first = np.unique(groups[::-1], return_index=True)[1]
    last = np.sort(len(groups) - 1 - reversed_first)
    return None if len(last) == len(groups) else last


def group_numbers(keys: Keys) -> Ids | None:
    """The same number for rows of the same key; None when all hashes, and so all keys, differ."""
    if len(keys) < 2:
        return None
    hashes = np.sort(keys.hashes)
    if not (hashes[1:] == hashes[:-1]).any():
        return None
    order = np.argsort(keys.hashes)
    same_hash = keys.hashes[order][1:] == keys.hashes[order][:-1]
    left, right = pa.array(order[:-1][same_hash]), pa.array(order[1:][same_hash])
    if not equal_rows([c.take(left) for c in keys.columns], [c.take(right) for c in keys.columns]).all():
        return _exact_groups(keys)
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.concatenate([[0], np.cumsum(~same_hash)])
    return numbers


def _exact_groups(keys: Keys) -> Ids:
    """Group by comparing with every key of the same hash, for colliding hashes."""
    by_hash: dict[int, list[int]] = {}
    numbers = np.empty(len(keys), dtype=np.int64)
    for row, value in enumerate(keys.hashes.tolist()):
        firsts = by_hash.setdefault(value, [])
        one = [c.slice(row, 1) for c in keys.columns]
        same = next((f for f in firsts if equal_rows(one, [c.slice(f, 1) for c in keys.columns])[0]), None)
        if same is None:
            firsts.append(row)
        numbers[row] = row if same is None else same
    return numbers


def check_nulls(table: str, names: Sequence[str], columns: Sequence[pa.Array], code: str) -> None:
    """MP401 or MP403 if a NOT NULL or key column contains NULL."""
    for name, column in zip(names, columns, strict=True):
        if column.null_count:
            what = "Key column" if code == "MP403" else "Column"
            row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False))) + 1
            message = f"{what} '{name}' of '{table}' must not be NULL, but is in row {row} of {len(column)}."
            raise ConstraintError(code, message, hint="Set a value. Nothing was changed.")


def shown_key(schema: Schema, keys: Keys, position: int) -> str:
    """A key as it is shown in messages."""
    parts = [column[position].as_py() for column in keys.columns]
    return ", ".join(f"{name} = {value!r}" for name, value in zip(schema.key, parts, strict=True))
