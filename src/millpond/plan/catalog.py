"""The catalog of relations by name: streams, derived streams, tables and views, declared in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from sqlglot import exp

from millpond.errors import Place
from millpond.plan.findings import Findings
from millpond.schema import Column, Schema
from millpond.sql.statements import CreateStream, CreateTable, CreateView, Watermark

Declaration = CreateStream | CreateTable | CreateView


class RelationKind(StrEnum):
    """How a query uses a relation: a stream drives it, a table is read by it."""

    STREAM = "stream"
    TABLE = "table"


@dataclass(frozen=True)
class Relation:
    """A relation of FROM. `columns` is None while they are unknown; `unseen` is the reason, empty if the declaration
    itself is invalid, which was reported. `drivers` are the sources of a stream; `query` is the query of a derived
    stream and `tables` are its tables; `watermark` is on the column of its time. `local`: visible in one statement
    only, such as a CTE or a function that returns rows. `key` is that of a table whose columns are unknown. `wrong`:
    its declaration is invalid, which was reported. `history` is the table with the old rows of a table."""

    name: str
    kind: RelationKind
    columns: Schema | None = None
    hidden: tuple[Column, ...] = ()
    drivers: tuple[str, ...] = ()
    query: exp.Query | None = None
    watermark: Watermark | None = None
    unseen: str = ""
    tables: tuple[str, ...] = ()
    local: bool = False
    key: tuple[str, ...] = ()
    wrong: bool = False
    history: str = ""

    @property
    def is_stream(self) -> bool:
        return self.kind is RelationKind.STREAM

    def renamed(self, name: str) -> Relation:
        return replace(self, name=name)


def broken(name: str, kind: RelationKind = RelationKind.TABLE) -> Relation:
    """A relation with an invalid declaration: every column binds to it, so that a mistake is reported only once."""
    return Relation(name, kind, wrong=True)


class Catalog:
    """The relations of one file. Each is defined on first use, so that statements may be in any order."""

    def __init__(
        self,
        declarations: Mapping[str, Declaration],
        given: Mapping[str, Relation],
        define: Callable[[Declaration], Relation],
        findings: Findings,
    ) -> None:
        self._declarations = declarations
        self._relations = dict(given)
        self._define = define
        self._findings = findings
        self._path: list[str] = []

    def __iter__(self) -> Iterator[str]:
        """Names as declared, for suggestions."""
        yield from (d.name.text for d in self._declarations.values())
        yield from (r.name for key, r in self._relations.items() if key not in self._declarations)

    def declaration(self, name: str) -> Declaration | None:
        return self._declarations.get(name.lower())

    def declares(self, name: str) -> bool:
        """Whether the file declares a name, even in an invalid statement."""
        relation = self._relations.get(name.lower())
        return self.declaration(name) is not None or (relation is not None and relation.wrong)

    def find(self, name: str) -> Relation | None:
        """The relation of a name, defined on first use; None if there is none."""
        key = name.lower()
        declaration = self._declarations.get(key)
        if key in self._relations or declaration is None:
            return self._relations.get(key)
        if key in self._path:
            self._report_cycle(key)
            return broken(declaration.name.text)
        self._path.append(key)
        self._relations[key] = self._define(declaration)
        self._path.pop()
        return self._relations[key]

    def _report_cycle(self, key: str) -> None:
        names = [self._declarations[k].name for k in self._path[self._path.index(key) :]]
        path = " -> ".join(n.text for n in [*names, names[0]])
        hint = "Break the cycle: a table cannot be computed from itself."
        self._findings.error("MP212", f"These depend on each other in a cycle: {path}.", _place(names[0]), hint)


def _place(name: object) -> Place | None:
    return getattr(name, "place", None)
