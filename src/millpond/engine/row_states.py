"""The rows of keys during a fold: whether each exists, its values, and whether an item has changed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import MillpondError, TableError
from millpond.relational.codes import Numbers, whole, with_values
from millpond.schema import Check, Schema
from millpond.tables.constraints import breaks

Mask: TypeAlias = npt.NDArray[np.bool_]
# Items that were rejected, by statement and row, with the error.
Refusals: TypeAlias = dict[tuple[int, int], MillpondError]


@dataclass(frozen=True)
class Turns:
    """Items in the order in which they are applied, key by key: the key's number, the statement, the row among those of
    the statement, and the item's rank among all in stream order."""

    code: Numbers
    writer: Numbers
    row: Numbers
    rank: Numbers

    @cached_property
    def starts(self) -> Numbers:
        """The first item of each key."""
        return np.flatnonzero(np.diff(self.code, prepend=-1)).astype(np.int64)

    @cached_property
    def counts(self) -> Numbers:
        """The number of items of each key."""
        return np.diff(self.starts, append=len(self.code))

    def where(self, mask: Mask) -> Turns:
        """Some of the items."""
        return Turns(self.code[mask], self.writer[mask], self.row[mask], self.rank[mask])


@dataclass(frozen=True)
class Keyed:
    """Keys by number, and the table's rows for them: the row at `places` has the key `met`."""

    keys: pa.Table
    rows: pa.Table
    met: Numbers
    places: Numbers


@dataclass
class RowStates:
    """One state for each key. Columns of a row that does not exist are NULL."""

    schema: Schema
    here: Mask
    hit: Mask
    columns: dict[str, pa.Array]

    @classmethod
    def of(cls, schema: Schema, keyed: Keyed) -> RowStates:
        """The rows as a table has them."""
        count = keyed.keys.num_rows
        source = np.full(count, -1)
        source[keyed.met] = keyed.places
        taken = pa.array(source, mask=source < 0)
        columns = {c.name: whole(keyed.rows[c.name].take(taken)).cast(c.type) for c in schema}
        return cls(schema, source >= 0, np.zeros(count, bool), columns)

    def take(self, codes: Numbers, names: tuple[str, ...]) -> list[pa.Array]:
        """Some columns of some keys."""
        return [self.columns[name].take(pa.array(codes)) for name in names]

    def copy(self) -> RowStates:
        return RowStates(self.schema, self.here.copy(), self.hit.copy(), dict(self.columns))

    def set(self, codes: Numbers, values: Mapping[str, pa.Array], *, here: bool = True) -> None:
        """Set values of rows; each key at most once."""
        if not len(codes):
            return
        for name, found in values.items():
            self.columns[name] = with_values(self.columns[name], codes, whole(found))
        self.here[codes] = here
        self.hit[codes] = True

    def delete(self, codes: Numbers) -> None:
        self.set(codes, {c.name: pa.nulls(len(codes), c.type) for c in self.schema}, here=False)

    def become(self, found: RowStates, more: Refusals, refused: Refusals) -> None:
        """Apply the result of a part of the fold."""
        self.here, self.hit, self.columns = found.here, found.hit, found.columns
        refused.update(more)


def null_refused(schema: Schema, name: str) -> MillpondError:
    """The error of NULL in a NOT NULL or key column."""
    if name in schema.key:
        return TableError("MP403", f"column '{name}': a key column is NULL")
    return TableError("MP401", f"column '{name}': a NOT NULL column is NULL")


def check_refused(check: Check) -> MillpondError:
    """The error of a row that violates a constraint."""
    return TableError("MP413", breaks(check))


def required(schema: Schema) -> tuple[str, ...]:
    """The columns that must not be NULL."""
    return tuple(c.name for c in schema if c.name in schema.key or not c.nullable)
