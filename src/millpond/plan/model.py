"""The plan of an app as plain data, which contains every decision of the planner, for explain, engine and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.sink import SinkSpec
from millpond.contracts.source import Mode, SourceSpec, Wanted
from millpond.contracts.table import TableSpec
from millpond.errors import Place, Problem, Severity
from millpond.plan.aggregate_model import AggregatePlan
from millpond.plan.change_model import ChangeGroup, MergeBranch, OnConflict
from millpond.plan.history_model import HistoryPlan
from millpond.plan.over_model import OverPlan
from millpond.plan.view_refresh import RefreshPlan
from millpond.schema import Column, Schema
from millpond.settings import Settings
from millpond.sql.statements import Statement, Watermark

# The name by which a step's query reads the micro-batch; every other relation in it is a table of the plan.
BATCH = "__batch__"
# Hidden column of a stream: the versions of the tables that a statement reads, by their names, as its events see them.
VERSIONS = Column("_versions", pa.map_(pa.string(), pa.int64()))
# Prefixes of hidden tables of a statement: its groups, and its events that wait for a row.
GROUPED, AWAITING = "grouped_", "waiting_"
# The separator between the name of a table, or of a statement's groups, and that of a companion.
BESIDE = "__"


class TableKind(StrEnum):
    """How a table gets its rows."""

    DECLARED = "declared"  # by statements
    LOADED = "loaded"  # AS SELECT of columns and rows of one source, compared with it
    AGGREGATE = "aggregate"  # AS SELECT ... over a stream: maintained by a flow
    VIEW = "view"  # AS SELECT over tables: refreshed when its inputs change
    LOOKUP = "lookup"  # rows of one source, looked up there by the keys of each batch; nothing is stored
    HIDDEN = "hidden"  # a source that a statement reads as a table by URI; accumulators
    SYSTEM = "system"  # dead_letters


class AccessKind(StrEnum):
    """How a table reaches Spark."""

    LOOKUP = "lookup"  # only the rows whose key is in the batch
    SNAPSHOT = "snapshot"  # the whole table, once per version


@dataclass(frozen=True)
class Access:
    """How a statement reads a table, and why; `hinted` if the user wrote a hint."""

    table: str
    how: AccessKind
    reason: str
    hinted: bool = False


@dataclass(frozen=True)
class SourcePlan:
    """A source that is read: `columns` is None while they are unknown (empty or missing, not declared)."""

    id: str
    name: str
    type: str
    mode: Mode
    spec: SourceSpec
    columns: Schema | None
    hidden: tuple[Column, ...]
    declared: bool
    place: Place


@dataclass(frozen=True)
class StreamPlan:
    """A named stream; a derived one has a query, which is inlined where it is read; `joined` are the other sources of a
    join."""

    name: str
    source: str
    columns: Schema | None
    watermark: Watermark | None
    derived: bool
    place: Place
    joined: tuple[str, ...] = ()


@dataclass(frozen=True)
class Surroundings:
    """The streams that a statement reads and their source, as one text, and the types of the declared columns it
    reads."""

    streams: str
    types: Mapping[str, str]


@dataclass(frozen=True)
class TablePlan:
    """A table: `spec` is for the store (types may be unknown in a table AS SELECT: Spark determines them at the start);
    `query` is over BATCH for a loaded one and over tables for a view; `follow` is how a view is refreshed, and
    `refresh` its description; `definition` changes with the definition, and `replaces`: CREATE OR REPLACE accepts the
    loss."""

    name: str
    kind: TableKind
    spec: TableSpec
    place: Place
    definition: str
    source: str | None = None
    query: exp.Query | None = None
    reads: tuple[Access, ...] = ()
    refresh: str = ""
    follow: RefreshPlan = field(default_factory=RefreshPlan)
    watch: bool = False
    # Of one that is loaded: what its query needs of the source.
    wanted: Wanted = field(default_factory=Wanted)
    replaces: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    # For a table over a stream: what its definition depends on besides its own text.
    surroundings: Surroundings = field(default_factory=lambda: Surroundings("", {}), repr=False)
    # Of the hidden table with the old rows of another one.
    history: HistoryPlan | None = None


@dataclass(frozen=True)
class NamedQuery:
    """CREATE VIEW over tables: a name for a query. `text` is "" if it reads something without a name."""

    name: str
    text: str = field(repr=False)
    columns: Schema | None
    tables: tuple[str, ...]
    place: Place


class StepKind(StrEnum):
    """What a flow's statement does with the batch."""

    INSERT = "insert"  # into a table: appends, or upserts by key
    UPSERT = "upsert"
    UPDATE = "update"
    DELETE = "delete"
    MERGE = "merge"
    AGGREGATE = "aggregate"  # merged into a table
    LATEST = "latest"  # a CTAS over messages with keys: the last of each key, until it is deleted
    APPEND = "append"  # a CTAS over a stream without aggregate: all rows
    SINK = "sink"
    RELAY = "relay"  # passes events to a join of two streams


@dataclass(frozen=True)
class Step:
    """One statement of a flow. `query` is over BATCH and tables, with stars expanded and every output named; `columns`
    are the target's columns that its outputs fill, by position. `schema` are the columns of the query, as far as known;
    `condition`, bound, is the ON of an UPSERT; `branches` are those of a MERGE; `waiting` is the table of events that
    wait for a joined row; `message_key` are the batch's columns for the target's key, if messages are matched with
    their results."""

    index: int
    kind: StepKind
    place: Place
    target: str
    query: exp.Query
    schema: Schema
    columns: tuple[str, ...] = ()
    reads: tuple[Access, ...] = ()
    aggregate: AggregatePlan | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    statement: Statement | None = field(default=None, repr=False)
    condition: exp.Expression | None = None
    waiting: str = ""
    message_key: tuple[str, ...] = ()
    branches: tuple[MergeBranch, ...] = ()
    conflict: OnConflict | None = None
    # Window functions over the stream, of whose rows `query` is.
    over: OverPlan | None = None


def reads_versions(query: exp.Expr) -> bool:
    """Whether a query reads the hidden column of versions."""
    return any(column.name.lower() == VERSIONS.name for column in query.find_all(exp.Column))


@dataclass(frozen=True)
class StreamSide:
    """One stream of a join of two: `query` over the source's BATCH returns its events; `time` is the column of its
    watermark, None if there is none."""

    source: str
    query: exp.Query
    time: str | None
    delay_us: int


@dataclass(frozen=True)
class StreamJoin:
    """Two streams joined by Spark; in `condition` and in the rows, columns are prefixed with l_ and r_."""

    left: StreamSide
    right: StreamSide
    kind: str
    condition: exp.Expr


@dataclass(frozen=True)
class FlowPlan:
    """All statements that one stream drives. `id` is stable as long as its source; `joined` are the other sources of a
    stream-stream join; `groups` are its statements that change a table together, event by event."""

    id: str
    name: str
    source: str
    steps: tuple[Step, ...]
    watermark: Watermark | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    joined: tuple[str, ...] = ()
    join: StreamJoin | None = None
    groups: tuple[ChangeGroup, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(a.table for s in self.steps for a in s.reads))


@dataclass(frozen=True)
class ChangesPlan:
    """A statement that emits a table's changes to a sink, in the transactions that change it; `id` identifies the n-th
    occurrence of its text. BATCH in its query are the changed rows with their `_op`."""

    id: str
    table: str
    step: Step


@dataclass(frozen=True)
class OneShot:
    """A statement without a stream: `id` identifies the n-th occurrence of its text, so that it runs once per state
    directory. `transaction` is the number of its BEGIN ... COMMIT (None outside); `late`: runs after the flows have
    caught up; `repeat`: at each start; `early`: a DROP before the CREATE of the same name, which runs before tables are
    created. `query`, bound, is for INSERT ... SELECT over tables and bare SELECT. `columns` are the target's columns
    that a query or `rows` fill; `assignments` and `condition`, bound, are those of UPDATE and DELETE without a source;
    `branches` are those of a MERGE; `explained` is the plan of the statement in an EXPLAIN."""

    id: str
    statement: Statement
    place: Place
    transaction: int | None = None
    late: bool = False
    repeat: bool = False
    query: exp.Query | None = None
    reads: tuple[Access, ...] = ()
    sink: str | None = None
    early: bool = False
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[exp.Expression, ...], ...] = ()
    assignments: tuple[tuple[str, exp.Expression], ...] = ()
    condition: exp.Expression | None = None
    branches: tuple[MergeBranch, ...] = ()
    conflict: OnConflict | None = None
    explained: Plan | None = field(default=None, repr=False)


@dataclass(frozen=True)
class SinkPlan:
    """A sink with its guarantee."""

    id: str
    type: str
    spec: SinkSpec
    guarantee: str
    place: Place


@dataclass(frozen=True)
class Plan:
    """An app, ready to run if `errors` is empty. Tables are in the order in which they can be created, flows in the
    order in which they catch up."""

    name: str
    settings: Settings
    sources: tuple[SourcePlan, ...] = ()
    streams: tuple[StreamPlan, ...] = ()
    tables: tuple[TablePlan, ...] = ()
    flows: tuple[FlowPlan, ...] = ()
    one_shots: tuple[OneShot, ...] = ()
    sinks: tuple[SinkPlan, ...] = ()
    changes: tuple[ChangesPlan, ...] = ()
    views: tuple[NamedQuery, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(p for p in self.problems if p.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(p for p in self.problems if p.severity is not Severity.ERROR)

    def source(self, id_: str) -> SourcePlan:
        return next(s for s in self.sources if s.id == id_)

    def sink(self, id_: str) -> SinkPlan:
        return next(s for s in self.sinks if s.id == id_)

    def table(self, name: str) -> TablePlan | None:
        return next((t for t in self.tables if t.name.lower() == name.lower()), None)
