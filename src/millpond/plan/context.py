"""The context of planning one file: settings, findings, sources, sinks, relations, and planned statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from millpond.plan.aggregate_model import AggregatePlan
from millpond.plan.bound import BoundQuery
from millpond.plan.catalog import Catalog
from millpond.plan.change_model import MergeBranch, OnConflict
from millpond.plan.findings import Findings
from millpond.plan.model import NamedQuery, Plan, StepKind, StreamJoin, StreamPlan, TablePlan
from millpond.plan.sink_catalog import Sinks
from millpond.plan.source_catalog import Sources
from millpond.settings import FLOW_OPTIONS, Settings
from millpond.sql.statements import Statement, Watermark


@dataclass(frozen=True)
class Planned:
    """One statement after binding, the input of checks, flows and one-shots. `target` is a table or the id of a sink;
    `columns` are the target's columns that the values fill; `rows`, `assignments` and `condition` are the bound parts
    of statements that are not queries, `branches` those of a MERGE; `explained` is the plan of the statement inside an
    EXPLAIN."""

    statement: Statement
    index: int
    kind: StepKind | None = None
    target: str = ""
    bound: BoundQuery | None = None
    columns: tuple[str, ...] = ()
    aggregate: AggregatePlan | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    rows: tuple[tuple[exp.Expression, ...], ...] = ()
    assignments: tuple[tuple[str, exp.Expression], ...] = ()
    condition: exp.Expression | None = None
    message_key: tuple[str, ...] = ()
    branches: tuple[MergeBranch, ...] = ()
    conflict: OnConflict | None = None
    explained: Plan | None = None

    @property
    def drivers(self) -> tuple[str, ...]:
        return self.bound.drivers if self.bound else ()


@dataclass(frozen=True)
class JoinedStream:
    """A join of streams that is itself a stream: its name for messages, its sources, and its joins, innermost first."""

    name: str
    sources: tuple[str, ...]
    joins: tuple[StreamJoin, ...]


@dataclass
class Context:
    """The mutable state of one `build_plan`, to which planning adds statement by statement."""

    settings: Settings
    findings: Findings
    sources: Sources
    sinks: Sinks
    catalog: Catalog = field(init=False)
    positions: Mapping[int, int] = field(default_factory=dict)
    streams: dict[str, StreamPlan] = field(default_factory=dict)
    tables: dict[str, TablePlan] = field(default_factory=dict)
    hidden: dict[str, TablePlan] = field(default_factory=dict)
    views: dict[str, NamedQuery] = field(default_factory=dict)
    planned: list[Planned] = field(default_factory=list)
    flow_options: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    # The watermark of each source that has one, by its id.
    watermarks: dict[str, Watermark] = field(default_factory=dict)
    # Joins of streams that statements read as a stream, by the id of the flow that each drives.
    joins: dict[str, JoinedStream] = field(default_factory=dict)

    def index(self, statement: Statement) -> int:
        """The position of a statement in the file."""
        return self.positions[id(statement)]

    def behind(self, drivers: tuple[str, ...]) -> tuple[str, ...]:
        """The sources of a statement's drivers; a join of streams is replaced by its sources."""
        found = (self.joins[d].sources if d in self.joins else (d,) for d in drivers)
        return tuple(dict.fromkeys(source for sources in found for source in sources))

    def options_for(self, drivers: tuple[str, ...], given: Mapping[str, Any]) -> dict[str, Any]:
        """A statement's options: its own take precedence over its stream's, and those over the app's."""
        values = {o.name: self.settings.get(o.name) for o in FLOW_OPTIONS}
        for driver in self.behind(drivers):
            values.update(self.flow_options.get(driver, {}))
        return {**values, **given}
