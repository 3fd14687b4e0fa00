"""Bound queries: what they read, what drives them, their outputs, and the names in scope."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Place
from millpond.plan.catalog import Relation
from millpond.schema import Column, Schema
from millpond.sql.statements import Watermark


@dataclass
class Item:
    """One relation of a FROM under its alias. `label` is its name in messages and `at` its place; `columns` is None if
    they are unknown; `watermark` is on the column of a stream's time; `merged` are columns that USING has merged;
    `shown` is False for the right side of SEMI and ANTI joins; `moment` is its AS OF clause until it is bound."""

    alias: str
    label: str
    columns: Schema | None
    node: exp.Expr
    place: Place | None = None
    hidden: tuple[Column, ...] = ()
    drivers: tuple[str, ...] = ()
    relation: Relation | None = None
    watermark: Watermark | None = None
    shown: bool = True
    merged: set[str] = field(default_factory=set)
    moment: exp.Expr | None = None

    def column(self, name: str) -> Column | None:
        """The column of a name, including hidden ones."""
        found = self.columns.get(name) if self.columns is not None else None
        return found or next((c for c in self.hidden if c.name.lower() == name.lower()), None)

    @property
    def loose(self) -> bool:
        return self.columns is None

    @property
    def at(self) -> exp.Expr | Place:
        """Where it was written; only an item that replaces something else needs its own place."""
        return self.place or self.node


@dataclass(frozen=True)
class Match:
    """The resolution of a name: a column of an item (None if its columns are unknown) and the fields that follow it."""

    item: Item
    column: Column | None
    name: str
    fields: tuple[exp.Identifier, ...] = ()


@dataclass
class Scope:
    """The items of one SELECT; `merged` are the columns of USING, newest join first; `outer` is the scope of the outer
    query."""

    outer: Scope | None = None
    items: list[Item] = field(default_factory=list)
    merged: dict[str, exp.Expr] = field(default_factory=dict)

    def chain(self) -> Iterator[Scope]:
        """This scope and the outer ones, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def item(self, alias: str) -> Item | None:
        return next((i for i in self.items if i.alias.lower() == alias.lower()), None)

    def matches(self, parts: Sequence[exp.Identifier]) -> list[Match]:
        """All matches of a dotted name in this scope; an alias takes precedence over a struct of the same name."""
        first, rest = parts[0], tuple(parts[1:])
        item = self.item(first.name) if rest else None
        if item is not None:
            column = item.column(rest[0].name)
            return [Match(item, column, rest[0].name, rest[1:])] if column or item.loose else []
        return [
            Match(i, column, first.name, rest)
            for i in self.items
            if i.shown and first.name.lower() not in i.merged and (column := i.column(first.name)) is not None
        ]

    @property
    def loose_items(self) -> list[Item]:
        return [i for i in self.items if i.loose and i.shown]


class Spot(StrEnum):
    """The position of a relation in a statement, which determines whether a URI is a stream or a table."""

    FROM = "from"
    JOIN = "join"
    SUBQUERY = "subquery"


@dataclass(frozen=True)
class Output:
    """One output column of a query; `written`: the user gave the name, instead of it being generated."""

    name: str
    expr: exp.Expr
    type: pa.DataType | None
    written: bool = True
    qualifier: str = ""

    @property
    def column(self) -> Column:
        return Column(self.name, self.type)


@dataclass(frozen=True)
class Reference:
    """One reference to a relation."""

    relation: Relation
    item: Item
    spot: Spot


# The alias of the subquery that QUALIFY becomes a condition on; no user writes it.
QUALIFIED = "_qualified"


def rows_of(select: exp.Select) -> exp.Select:
    """The SELECT with the relations: itself, or the subquery in it that QUALIFY became a condition on."""
    from_ = select.args.get("from_")
    inner = from_.this if from_ is not None else None
    if isinstance(inner, exp.Subquery) and inner.alias == QUALIFIED and isinstance(inner.this, exp.Select):
        return inner.this
    return select


@dataclass(frozen=True)
class BoundSelect:
    """One SELECT of a statement. `streams` are the streams in its FROM: two of them are a stream-stream join. `inner`
    is True for all SELECTs except the statement's own query."""

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

    @property
    def rows(self) -> exp.Select:
        """The SELECT with the relations."""
        return rows_of(self.node)

    def passed_on(self) -> tuple[Item, Watermark] | None:
        """The first stream whose watermark column is an output, and the watermark with the output's name."""
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
    """A join of streams that drives a separate flow: the query over its rows, and its drivers."""

    query: exp.Query
    driver: str
    watermark: Watermark | None


@dataclass(frozen=True)
class BoundQuery:
    """A query over the batch and tables. `outputs` is None if they include a star over unknown columns; `watermark` is
    that of an input stream whose column is an output, with the output's name."""

    query: exp.Query
    outputs: tuple[Output, ...] | None
    drivers: tuple[str, ...]
    references: tuple[Reference, ...] = ()
    selects: tuple[BoundSelect, ...] = ()
    known: tuple[Output, ...] = field(default=())
    watermark: Watermark | None = None

    @property
    def schema(self) -> Schema | None:
        return None if self.outputs is None else Schema.of(o.column for o in self.outputs)

    @property
    def top(self) -> BoundSelect | None:
        """The statement's own SELECT; None for a UNION or VALUES."""
        found = self.query.unnest() if isinstance(self.query, exp.Subquery) else self.query
        return next((s for s in self.selects if s.node is found), None)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables that are read, in order."""
        names = [
            t for r in self.references for t in (r.relation.tables if r.relation.is_stream else (r.relation.name,))
        ]
        return tuple(dict.fromkeys(names))
