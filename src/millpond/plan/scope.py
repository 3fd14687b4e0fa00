"""The names that an expression can see: the relations of its FROM, and those of the queries around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from millpond.errors import Place
from millpond.plan.catalog import Relation
from millpond.schema import Column, Schema
from millpond.sql.statements import Watermark


@dataclass
class Item:
    """One relation of a FROM under its alias. `label` names it in messages and `at` says where it was written;
    `columns` is None when they are unknown; `watermark` is on the column that carries a stream's time; `merged` are
    columns that USING has joined into one; `shown` is False for the right side of SEMI and ANTI joins."""

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

    def column(self, name: str) -> Column | None:
        """The column of a name, a hidden one too."""
        found = self.columns.get(name) if self.columns is not None else None
        return found or next((c for c in self.hidden if c.name.lower() == name.lower()), None)

    @property
    def loose(self) -> bool:
        return self.columns is None

    @property
    def at(self) -> exp.Expr | Place:
        """Where it was written; only what has been put in for something else needs a place of its own."""
        return self.place or self.node


@dataclass(frozen=True)
class Match:
    """What a name stands for: a column of an item (None in a loose one) and the fields that follow it."""

    item: Item
    column: Column | None
    name: str
    fields: tuple[exp.Identifier, ...] = ()


@dataclass
class Scope:
    """The items of one SELECT; `merged` gives the columns of USING, newest join first; `outer` is the query around."""

    outer: Scope | None = None
    items: list[Item] = field(default_factory=list)
    merged: dict[str, exp.Expr] = field(default_factory=dict)

    def chain(self) -> Iterator[Scope]:
        """This scope and those around it, inner first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def item(self, alias: str) -> Item | None:
        return next((i for i in self.items if i.alias.lower() == alias.lower()), None)

    def matches(self, parts: Sequence[exp.Identifier]) -> list[Match]:
        """Everything in this scope that a dotted name can mean; an alias goes before a struct of the same name."""
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
