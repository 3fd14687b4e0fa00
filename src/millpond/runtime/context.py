"""What the parts of a running app share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from millpond.contracts.sink import Sink
from millpond.contracts.table import Store
from millpond.errors import Problem
from millpond.plan.flows import writes
from millpond.plan.model import FlowPlan, Plan, SourcePlan, TableKind, TablePlan
from millpond.runtime.dead_letters import Letters
from millpond.runtime.figures.progress import READY, STALE
from millpond.runtime.keeping.state import StateFolder
from millpond.runtime.spark.access import Exchange
from millpond.runtime.supervision import Supervisor
from millpond.runtime.views.writers import Writers
from millpond.sql.statements import Name, Statement


@dataclass
class Context:
    """One app's plan, store and state; Spark starts when `spark()` is first called."""

    plan: Plan
    store: Store
    state: StateFolder
    exchange: Exchange
    spark: Callable[[], SparkSession]
    supervisor: Supervisor = field(default_factory=lambda: Supervisor(lambda failure: None))
    # Whether a changed file may drop rows that it no longer has a place for.
    accept: bool = False
    sinks: dict[str, Sink] = field(default_factory=dict)
    # Tables that wait until the columns of a source are known, in lower case.
    held: set[str] = field(default_factory=set)
    # Views that were never computed, in lower case.
    new_views: set[str] = field(default_factory=set)
    table_states: dict[str, str] = field(default_factory=dict)
    writers: Writers = field(default_factory=Writers)
    # The wall clock, in microseconds since the epoch: groups without event time expire by it.
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000
    stopping: threading.Event = field(default_factory=threading.Event)
    # Warnings that came up while running; appended to by any thread, read for `progress`.
    notices: list[Problem] = field(default_factory=list)

    def letters(self, flow: str, source: SourcePlan, flow_id: str = "") -> Letters:
        """Where the dead letters of a flow or load go; those of a flow can be sent again by its id."""
        return Letters(self.store, flow, source.spec.shown, self.plan.settings["dead.letters.max"], flow_id)

    def views_of(self, tables: set[str]) -> tuple[TablePlan, ...]:
        """The views that read any of these tables, directly or through other views, in the order of refreshing."""
        touched = {name.lower() for name in tables}
        found = []
        for table in self.plan.tables:
            if table.kind is TableKind.VIEW and touched & {a.table.lower() for a in table.reads}:
                found.append(table)
                touched.add(table.name.lower())
        return tuple(found)

    def missing(self, tables: Iterable[str]) -> tuple[str, ...]:
        """The tables among these, and behind the views among these, that cannot be read yet; in lower case."""
        return tuple(sorted(n for n in self.inputs_of(set(tables)) if not self._is_usable(n)))

    def _is_usable(self, name: str) -> bool:
        return name not in self.held and self.table_states.get(name, READY) in (READY, STALE)

    def own_tables(self, flow: FlowPlan) -> set[str]:
        """What a flow fills itself, and what those fill that wait for it in turn; in lower case."""
        found, size = set(writes(flow)), -1
        while len(found) > size:
            size = len(found)
            for other in self.plan.flows:
                if found & self.inputs_of(set(other.reads)):
                    found |= writes(other)
        return found

    def written_by(self, statements: Sequence[Statement]) -> tuple[str, ...]:
        """The tables that statements change, and the views that follow."""
        targets = [getattr(s, "target", None) or getattr(s, "table", None) for s in statements]
        names = {name.key for name in targets if isinstance(name, Name)}
        there = {name.lower() for name in self.store.names()}
        return tuple(sorted(there & (names | {view.name.lower() for view in self.views_of(names)})))

    def inputs_of(self, tables: set[str]) -> set[str]:
        """These tables and all that their views read, in lower case."""
        wanted = {name.lower() for name in tables}
        for table in reversed(self.plan.tables):
            if table.kind is TableKind.VIEW and table.name.lower() in wanted:
                wanted |= {a.table.lower() for a in table.reads}
        return wanted
