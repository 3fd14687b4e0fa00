"""The inputs of a query: rows in memory, or tables from which only the needed rows are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.evaluator import Input, Limits, TableInput
from millpond.expressions.coercion import INTEGERS
from millpond.expressions.compile import NotCompilable, compile_expression
from millpond.expressions.frames import Names
from millpond.relational.codes import Numbers, Values
from millpond.schema import Schema


@dataclass(frozen=True)
class Rows:
    """`table` has columns with generated names, because relations may share names; `names` maps the written names to
    them."""

    table: pa.Table
    names: Names

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def schema(self) -> Schema:
        return Schema.from_arrow(self.table.schema)

    def take(self, positions: Numbers | pa.Array) -> Rows:
        """Return some rows; a NULL position returns a row of NULLs."""
        return Rows(self.table.take(pa.array(positions)), self.names)

    def filter(self, mask: Values) -> Rows:
        return Rows(self.table.filter(mask), self.names)

    def beside(self, other: Rows) -> Rows:
        """Return the columns of both, row by row; a relation on the right hides one of the same name on the left."""
        fields = [*self.table.schema, *other.table.schema]
        columns = [*self.table.columns, *other.table.columns]
        return Rows(pa.Table.from_arrays(columns, schema=pa.schema(fields)), {**self.names, **other.names})

    def with_column(self, relation: str, name: str, values: Values, own: str) -> Rows:
        """Add a column that queries read as `relation`.`name`."""
        known = {**self.names.get(relation, {}), name: own}
        return Rows(self.table.append_column(own, values), {**self.names, relation: known})


def known_as(relation: str, columns: Mapping[str, Values], numbers: Iterator[int]) -> Rows:
    """Return columns as the rows of one relation."""
    own = {name: f"_{next(numbers)}" for name in columns}
    table = pa.table({own[name]: values for name, values in columns.items()})
    return Rows(table, {relation.lower(): {name.lower(): own[name] for name in columns}})


class FromItem(Protocol):
    """A relation of FROM, or several that are already joined."""

    @property
    def aliases(self) -> frozenset[str]:
        """The names of its relations in the query, in lower case."""

    @property
    def is_table(self) -> bool:
        """Whether it can return only some rows."""

    @property
    def limits(self) -> Limits:
        """The sizes up to which it is joined here."""

    def whole(self) -> Rows:
        """Return all rows."""

    def fetched(self, keys: Mapping[str, Values]) -> Rows:
        """Return at least the rows whose columns are among the keys."""


@dataclass(frozen=True)
class Bracket:
    """The rows of an evaluated join."""

    rows: Rows
    limits: Limits

    @property
    def aliases(self) -> frozenset[str]:
        return frozenset(self.rows.names)

    @property
    def is_table(self) -> bool:
        return False

    def whole(self) -> Rows:
        return self.rows

    def fetched(self, keys: Mapping[str, Values]) -> Rows:
        return self.rows


@dataclass(frozen=True)
class Source:
    """A relation with its alias in a query; `wanted` are the columns that the query mentions, in lower case."""

    alias: str
    relation: Input
    wanted: frozenset[str]
    numbers: Iterator[int]
    limits: Limits = field(default_factory=Limits)

    @property
    def aliases(self) -> frozenset[str]:
        return frozenset({self.alias.lower()})

    @property
    def is_table(self) -> bool:
        return not isinstance(self.relation, pa.Table)

    def whole(self) -> Rows:
        return self._rows(whole_table(self.relation, self.limits))

    def where(self, condition: exp.Expr) -> Rows:
        """Return the rows of a table that satisfy a condition on it alone, by its key or an index if possible."""
        assert isinstance(self.relation, TableInput)
        table = self.relation.table
        plain = condition.transform(unqualified)
        # Compiled first, because the table would start Spark for a condition that only Spark can evaluate.
        compile_expression(plain, table.schema)  # type: ignore[arg-type]
        return self._rows(table.find(plain))

    def fetched(self, keys: Mapping[str, Values]) -> Rows:
        """Return the rows that can match: of a table with a fitting index only those whose columns are among the keys.
        `keys` of one column are distinct."""
        way = self._way(keys)
        if way is None:
            return self.whole()
        assert isinstance(self.relation, TableInput)
        table = self.relation.table
        wanted = pa.table({table.schema[n].name: _fitting(keys[n.lower()], table.schema[n].type) for n in way})
        # NULL is equal to no key.
        if any(column.null_count for column in wanted.columns):
            wanted = wanted.drop_null()
        if len(way) == 1 < len(keys):
            wanted = pa.table({wanted.column_names[0]: wanted.column(0).unique()})
        return self._rows(table.lookup(wanted, by=[table.schema[name].name for name in way]))

    def _way(self, keys: Mapping[str, Values]) -> tuple[str, ...] | None:
        if not isinstance(self.relation, TableInput):
            return None
        schema = self.relation.table.schema
        if self.relation.by_any:
            possible = [n for n, values in keys.items() if n in schema and _can_look_up(values.type, schema[n].type)]
            return tuple(schema[n].name for n in possible) or None
        for way in self.relation.ways:
            given = [keys.get(name.lower()) for name in way]
            if all(v is not None and _can_look_up(v.type, schema[n].type) for v, n in zip(given, way, strict=True)):
                return way
        return None

    def _rows(self, table: pa.Table) -> Rows:
        columns = {n: table.column(i) for i, n in enumerate(table.column_names) if n.lower() in self.wanted}
        if not columns:
            # A table without columns would lose its number of rows.
            columns = {table.column_names[0]: table.column(0)} if table.num_columns else _nothing(table)
        return known_as(self.alias, columns, self.numbers)


def whole_table(relation: Input, limits: Limits) -> pa.Table:
    """Return all rows of a relation; raises NotCompilable for a table that is too large for the driver."""
    if isinstance(relation, pa.Table):
        return relation
    if len(relation.table) > limits.table_rows:
        raise NotCompilable(f"table '{relation.table.name}' is large and no key or index fits")
    return relation.table.to_arrow()


def _can_look_up(given: pa.DataType, own: pa.DataType | None) -> bool:
    """Whether a lookup in the table's index finds the same rows as `=`. It does not for floats, because the index
    compares bits and 0.0 = -0.0, nor for nested values."""
    if pa.types.is_nested(given) or pa.types.is_floating(given):
        return False
    return given == own or (given in INTEGERS and own in INTEGERS)


def _fitting(values: Values, type_: pa.DataType | None) -> Values:
    """Cast integers to the type of the column; one that is out of its range becomes NULL, which matches no row."""
    if values.type == type_:
        return values
    converted = pc.cast(values, type_, safe=False)
    return pc.if_else(pc.equal(converted.cast(values.type, safe=False), values), converted, pa.scalar(None, type_))


def unqualified(node: exp.Expr) -> exp.Expr:
    return exp.column(node.this.copy()) if isinstance(node, exp.Column) and node.table else node


def _nothing(table: pa.Table) -> dict[str, Values]:
    return {"": pa.nulls(table.num_rows, pa.int8())}
