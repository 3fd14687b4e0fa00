"""Keys of incoming rows: which are equal, which are NULL, and how they are shown in a message."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millpond.errors import ConstraintError
from millpond.schema import Schema
from millpond.tables.hashing import equal_rows
from millpond.tables.index import Ids
from millpond.tables.keys import Keys


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
            "MP402", message, hint="Keep one of them, or UPSERT, where the last wins. Nothing was changed."
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
    """By comparing with every key of the same hash: for hashes that collide."""
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
    """MP401 or MP403 when a column that must not be NULL is."""
    for name, column in zip(names, columns, strict=True):
        if column.null_count:
            what = "Key column" if code == "MP403" else "Column"
            row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False))) + 1
            message = f"{what} '{name}' of '{table}' must not be NULL, but is in row {row} of {len(column)}."
            raise ConstraintError(code, message, hint="Give it a value. Nothing was changed.")


def shown_key(schema: Schema, keys: Keys, position: int) -> str:
    """A key as it is shown in messages."""
    parts = [column[position].as_py() for column in keys.columns]
    return ", ".join(f"{name} = {value!r}" for name, value in zip(schema.key, parts, strict=True))
