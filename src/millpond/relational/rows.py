"""Rows of one or several relations side by side, each column known by the name of its relation and its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from millpond.expressions.names import Names
from millpond.relational.codes import Numbers, Values
from millpond.schema import Schema


@dataclass(frozen=True)
class Rows:
    """`table` has columns under names of our own; `names` says which of them a written name means."""

    table: pa.Table
    names: Names

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def schema(self) -> Schema:
        return Schema.from_arrow(self.table.schema)

    def take(self, positions: Numbers | pa.Array) -> Rows:
        """Some rows; a position that is NULL gives a row of NULLs."""
        return Rows(self.table.take(pa.array(positions)), self.names)

    def filter(self, mask: Values) -> Rows:
        return Rows(self.table.filter(mask), self.names)

    def beside(self, other: Rows) -> Rows:
        """The columns of both, row by row; a relation of the same name on the right hides the one on the left."""
        fields = [*self.table.schema, *other.table.schema]
        columns = [*self.table.columns, *other.table.columns]
        return Rows(pa.Table.from_arrays(columns, schema=pa.schema(fields)), {**self.names, **other.names})

    def with_column(self, relation: str, name: str, values: Values, own: str) -> Rows:
        """One more column, known as `relation`.`name`."""
        known = {**self.names.get(relation, {}), name: own}
        return Rows(self.table.append_column(own, values), {**self.names, relation: known})


def known_as(relation: str, columns: Mapping[str, Values], numbers: Iterator[int]) -> Rows:
    """The columns of one relation."""
    own = {name: f"_{next(numbers)}" for name in columns}
    table = pa.table({own[name]: values for name, values in columns.items()})
    return Rows(table, {relation.lower(): {name.lower(): own[name] for name in columns}})
