"""Keys to look for: arrays of the key columns' types, or one key as Python values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.schema import Schema
from millpond.tables import hashing
from millpond.tables.hashing import Words, equal_rows
from millpond.tables.index import Ids, Links
from millpond.tables.lazy import lazy

Parts = tuple[Any, ...]


class Keys:
    """Key values, one array per key column, of exactly the columns' types."""

    # The version that has just looked for all of them, and their slots there: a change that follows needs them again.
    looked_up: tuple[object, Links] | None = None

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    @lazy
    def one(self) -> Parts | None:
        """The key as Python values, if it is only one and of texts, bytes and whole numbers: a quarter of the work."""
        if len(self) != 1:
            return None
        parts = tuple(column[0].as_py() for column in self.columns)
        return parts if all(type(part) in (str, bytes, int) for part in parts) else None

    @lazy
    def hash_of_one(self) -> int:
        """The hash of a key that is only one."""
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
    """One key of texts, bytes and whole numbers; its arrays are made when somebody asks for them."""

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
    """Which rows have values that are among the keys; a NULL among the keys finds NULL."""
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
