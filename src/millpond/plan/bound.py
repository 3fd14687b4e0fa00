"""Queries after binding: what they read, what drives them, what they yield."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

import pyarrow as pa
from sqlglot import exp

from millpond.plan.catalog import Relation
from millpond.plan.scope import Item, Scope
from millpond.schema import Column, Schema
from millpond.sql.statements import Watermark


class Spot(StrEnum):
    """Where in a statement a relation stands: it decides what a URI is."""

    FROM = "from"
    JOIN = "join"
    SUBQUERY = "subquery"


@dataclass(frozen=True)
class Output:
    """One column that a query yields; `written` tells a name that the user gave from one made up for an expression."""

    name: str
    expr: exp.Expr
    type: pa.DataType | None
    written: bool = True
    qualifier: str = ""

    @property
    def column(self) -> Column:
        return Column(self.name, self.type)


@dataclass(frozen=True)
class Reading:
    """One mention of a relation."""

    relation: Relation
    item: Item
    spot: Spot


@dataclass(frozen=True)
class BoundSelect:
    """One SELECT of a statement. `streams` are the items of its FROM that a stream drives: two of them are a
    stream-stream join. `inner` is set for everything but the statement's own query."""

    node: exp.Select
    scope: Scope
    spot: Spot
    outputs: tuple[Output, ...] | None
    groups: tuple[exp.Expr, ...]
    grouped: bool
    streams: tuple[Item, ...]
    inner: bool

    @property
    def drivers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(d for i in self.streams for d in i.drivers))

    def passed_on(self) -> tuple[Item, Watermark] | None:
        """The first stream whose watermark's column is among the outputs, and the watermark under its name there."""
        for item in self.streams:
            for output in self.outputs or ():
                column = output.expr
                if item.watermark is None or not isinstance(column, exp.Column) or column.table != item.alias:
                    continue
                if column.name.lower() == item.watermark.column.key:
                    return item, replace(item.watermark, column=replace(item.watermark.column, text=output.name))
        return None


@dataclass(frozen=True)
class Joined:
    """A join of streams that drives a flow of its own: the query over its rows, and what drives that."""

    query: exp.Query
    driver: str
    watermark: Watermark | None


@dataclass(frozen=True)
class BoundQuery:
    """A query over the batch and tables. `outputs` is None when a star over unknown columns is among them; `watermark`
    is that of a stream below whose column comes through, under the name that it has among the outputs."""

    query: exp.Query
    outputs: tuple[Output, ...] | None
    drivers: tuple[str, ...]
    readings: tuple[Reading, ...] = ()
    selects: tuple[BoundSelect, ...] = ()
    known: tuple[Output, ...] = field(default=())
    watermark: Watermark | None = None

    @property
    def schema(self) -> Schema | None:
        return None if self.outputs is None else Schema.of(o.column for o in self.outputs)

    @property
    def top(self) -> BoundSelect | None:
        """The statement's own SELECT; None when it is a UNION or VALUES."""
        found = self.query.unnest() if isinstance(self.query, exp.Subquery) else self.query
        return next((s for s in self.selects if s.node is found), None)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables that are read, in order."""
        names = [t for r in self.readings for t in (r.relation.tables if r.relation.is_stream else (r.relation.name,))]
        return tuple(dict.fromkeys(names))
