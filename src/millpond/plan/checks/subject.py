"""The subject of the checks: a file after binding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from millpond.errors import Place, Problem, Severity
from millpond.plan.bound import BoundSelect
from millpond.plan.catalog import Catalog
from millpond.plan.context import Planned
from millpond.plan.findings import At, Findings
from millpond.plan.model import FlowPlan, SinkPlan, TablePlan
from millpond.plan.source_catalog import Sources
from millpond.settings import Settings
from millpond.sql.statements import CreateTable, Statement


@dataclass(frozen=True)
class Subject:
    """A bound file. `planned` has the statements that read or change something, in order; `statements` has all;
    `behind` returns the sources of a statement's drivers."""

    statements: tuple[Statement, ...]
    planned: tuple[Planned, ...]
    flows: tuple[FlowPlan, ...]
    tables: Mapping[str, TablePlan]
    sinks: Mapping[str, SinkPlan]
    sources: Sources
    catalog: Catalog
    settings: Settings
    findings: Findings
    behind: Callable[[tuple[str, ...]], tuple[str, ...]]

    def selects(self) -> Iterator[tuple[Planned, BoundSelect]]:
        """Every SELECT of every statement, including subqueries."""
        return ((p, s) for p in self.planned if p.bound is not None for s in p.bound.selects)

    def trees(self) -> Iterator[exp.Expr]:
        """Every bound tree: queries, and the values, conditions and defaults outside of queries."""
        for planned in self.planned:
            if planned.bound is not None:
                yield planned.bound.query
            elif planned.condition is not None:
                yield planned.condition
            if planned.conflict is not None:
                yield from (value for _, value in planned.conflict.assignments)
                yield from (planned.conflict.where,) if planned.conflict.where is not None else ()
            for row in planned.rows:
                yield from row
        for statement in self.statements:
            if isinstance(statement, CreateTable):
                yield from (c.default for c in statement.columns or () if c.default is not None)

    def at(self, node: exp.Expr, otherwise: Place) -> At:
        """The node if it has a place, which NULL and DEFAULT do not, else another place."""
        return node if any("start" in n.meta for n in node.walk()) else otherwise

    def problem(self, code: str, message: str, at: At, hint: str = "", severity: Severity = Severity.ERROR) -> Problem:
        return Problem(code, message, self.findings.place(at), hint, severity)

    def warning(self, code: str, message: str, at: At, hint: str = "") -> Problem:
        return self.problem(code, message, at, hint, Severity.WARNING)
