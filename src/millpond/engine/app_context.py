"""The context of a running app, shared by its flows, loads and queries: plan, store, Spark, sinks, table states."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millpond.contracts.evaluator import Limits
from millpond.contracts.sink import Sink
from millpond.contracts.table import Store
from millpond.engine.dead_letters import Letters
from millpond.engine.progress import READY, STALE
from millpond.engine.spark.transfer import Exchange
from millpond.engine.state_directory import StateFolder
from millpond.engine.supervision import Supervisor
from millpond.errors import Problem
from millpond.plan.flow_plans import writes
from millpond.plan.model import FlowPlan, Plan, SourcePlan, TableKind, TablePlan
from millpond.plan.routing import limits_of
from millpond.sql.statements import Name, Statement


class Writers:
    """Names for transactions that emit CHANGES. At most one transaction of a name is between commit and publish,
    because recovery publishes again by name after a crash. So there are as many names as concurrent transactions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: set[str] = set()

    @contextmanager
    def name(self) -> Iterator[str]:
        """A name that is reserved during the block."""
        name = self.take()
        try:
            yield name
        finally:
            self.give_back(name)

    def take(self) -> str:
        """Reserve a free name."""
        with self._lock:
            names = (f"user {number}" for number in range(len(self._taken) + 1))
            free = next(name for name in names if name not in self._taken)
            self._taken.add(free)
            return free

    def give_back(self, name: str) -> None:
        """Release a name."""
        with self._lock:
            self._taken.discard(name)


@dataclass
class Context:
    """One app's plan, store and state; Spark starts when `spark()` is first called."""

    plan: Plan
    store: Store
    state: StateFolder
    exchange: Exchange
    spark: Callable[[], SparkSession]
    supervisor: Supervisor = field(default_factory=lambda: Supervisor(lambda failure: None))
    # Whether a changed file may drop rows of tables that it no longer defines.
    accept: bool = False
    sinks: dict[str, Sink] = field(default_factory=dict)
    # Tables that cannot be created until the columns of a source are known, in lower case.
    held: set[str] = field(default_factory=set)
    # Views that were never computed, in lower case.
    new_views: set[str] = field(default_factory=set)
    table_states: dict[str, str] = field(default_factory=dict)
    writers: Writers = field(default_factory=Writers)
    # The wall clock, in microseconds since the epoch: groups without event time expire by it.
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000
    stopping: threading.Event = field(default_factory=threading.Event)
    # What sinks have to do when the app stops.
    endings: list[Callable[[], None]] = field(default_factory=list)
    # Warnings while running; any thread appends to it, `progress` reads it.
    notices: list[Problem] = field(default_factory=list)

    @property
    def owner(self) -> str:
        """The app and its state directory, as the owner of what is created on servers."""
        return f"{self.plan.name}-{self.state.id}"

    @cached_property
    def limits(self) -> Limits:
        """The sizes up to which the driver evaluates batches."""
        return limits_of(self.plan.settings)

    @cached_property
    def timed_tables(self) -> frozenset[str]:
        """The tables whose history goes by the time of a column, in lower case."""
        histories = (table.history for table in self.plan.tables if table.history is not None)
        return frozenset(history.table.lower() for history in histories if history.time)

    def letters(self, flow: str, source: SourcePlan, flow_id: str = "") -> Letters:
        """The writer of the dead letters of a flow or load; those of a flow can be replayed by its id."""
        return Letters(self.store, flow, source.spec.shown, self.plan.settings["dead.letters.max"], flow_id)

    def letters_of(self, table: TablePlan, source: SourcePlan) -> Letters:
        """The writer of the dead letters of a table that is loaded from a source."""
        return replace(self.letters(table.name, source), line=table.place.line)

    def in_spark(self, rows: pa.Table) -> DataFrame:
        """Rows of no table as a DataFrame."""
        return self.exchange.rows(self.spark(), rows)

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
        """Those of the tables, and of the tables that their views read, that are not usable yet; in lower case."""
        return tuple(sorted(n for n in self.inputs_of(set(tables)) if not self._is_usable(n)))

    def _is_usable(self, name: str) -> bool:
        return name not in self.held and self.table_states.get(name, READY) in (READY, STALE)

    def own_tables(self, flow: FlowPlan) -> set[str]:
        """The tables that a flow fills itself, and those filled by flows that depend on them; in lower case."""
        found, size = set(writes(flow)), -1
        while len(found) > size:
            size = len(found)
            for other in self.plan.flows:
                if found & self.inputs_of(set(other.reads)):
                    found |= writes(other)
        return found

    def written_by(self, statements: Sequence[Statement]) -> tuple[str, ...]:
        """The tables that statements change, and the views over them."""
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
