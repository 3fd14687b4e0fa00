"""A relation of FROM on its way into a query: rows that are there, or a table that can be asked for some rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.table import ReadTable
from millpond.expressions.compile import NotCompilable, compile_expression
from millpond.relational.codes import Values
from millpond.relational.rows import Rows, known_as

# A larger table is never read whole here: Spark shares the work.
WHOLE_MAX = 1_000_000


@dataclass(frozen=True)
class Lookable:
    """A table, and the columns by which it can be asked for rows: its key and its indexes. `whole`: it is to be read as
    a whole."""

    table: ReadTable
    indexes: tuple[tuple[str, ...], ...] = ()
    whole: bool = False

    @property
    def ways(self) -> tuple[tuple[str, ...], ...]:
        if self.whole:
            return ()
        return (self.table.schema.key, *self.indexes) if self.table.schema.key else self.indexes


Relation: TypeAlias = pa.Table | Lookable
Relations: TypeAlias = Mapping[str, Relation]


@dataclass(frozen=True)
class Source:
    """A relation under the name it has in a query; `wanted` are the columns that the query mentions, in lower case."""

    alias: str
    relation: Relation
    wanted: frozenset[str]
    numbers: Iterator[int]

    def whole(self) -> Rows:
        """All its rows."""
        if isinstance(self.relation, pa.Table):
            return self._rows(self.relation)
        table = self.relation.table
        if len(table) > WHOLE_MAX:
            raise NotCompilable(f"'{table.name}' is large and cannot be looked up here")
        return self._rows(table.to_arrow())

    def where(self, condition: exp.Expr) -> Rows:
        """The rows of a table that satisfy a condition over it alone, by its key or an index where these help."""
        assert isinstance(self.relation, Lookable)
        table = self.relation.table
        plain = condition.transform(_unqualified)
        # Compiled before the table is asked: a condition that only Spark can judge must not start it in the table.
        compile_expression(plain, table.schema)  # type: ignore[arg-type]
        return self._rows(table.find(plain))

    def fetched(self, keys: Mapping[str, Values]) -> Rows:
        """The rows that can match: of a table only those whose columns are among the keys, where it has an index. A key
        of one column has every value once."""
        way = self._way(keys)
        if way is None:
            return self.whole()
        assert isinstance(self.relation, Lookable)
        table = self.relation.table
        wanted = pa.table({table.schema[name].name: keys[name.lower()] for name in way})
        # A key that is NULL finds nothing, here as there.
        if any(column.null_count for column in wanted.columns):
            wanted = wanted.drop_null()
        if len(way) == 1 < len(keys):
            wanted = pa.table({wanted.column_names[0]: wanted.column(0).unique()})
        return self._rows(table.lookup(wanted, by=[table.schema[name].name for name in way]))

    def _way(self, keys: Mapping[str, Values]) -> tuple[str, ...] | None:
        if not isinstance(self.relation, Lookable):
            return None
        schema = self.relation.table.schema
        for way in self.relation.ways:
            types = [keys[name.lower()].type if name.lower() in keys else None for name in way]
            # Arrow does not tell structs and arrays apart.
            if types == [schema[name].type for name in way] and not any(map(pa.types.is_nested, types)):
                return way
        return None

    def _rows(self, table: pa.Table) -> Rows:
        columns = {n: table.column(i) for i, n in enumerate(table.column_names) if n.lower() in self.wanted}
        if not columns:
            # Rows are counted by their columns.
            columns = {table.column_names[0]: table.column(0)} if table.num_columns else _nothing(table)
        return known_as(self.alias, columns, self.numbers)


def _unqualified(node: exp.Expr) -> exp.Expr:
    return exp.column(node.this.copy()) if isinstance(node, exp.Column) and node.table else node


def _nothing(table: pa.Table) -> dict[str, Values]:
    return {"": pa.nulls(table.num_rows, pa.int8())}
