"""Creates an app's tables at the start: resolves their types, applies changed definitions, adds companion tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.app.backfill import computed_again, has_past
from millpond.app.edits import Difference, EditKind, TableChange, difference, drops_to_run, statements_of
from millpond.app.table_definitions import put_views
from millpond.app.table_reshape import ensure_columns, known_shape, reshaped, reshaped_groups, shape_in, with_rows
from millpond.contracts.source import without_identity
from millpond.contracts.table import TableSpec
from millpond.engine.app_context import Context
from millpond.engine.batch import Batch
from millpond.engine.batch_run import BatchRun
from millpond.engine.companions import companion_specs, with_or_without_expiry
from millpond.engine.dead_letters import SPEC as DEAD_LETTERS_SPEC
from millpond.engine.evaluator import Evaluator
from millpond.engine.groups import outputs
from millpond.engine.joined_streams import join_sides, joined_schema
from millpond.engine.ledger import DEFINITION, LOAD, MADE, ONCE, VIEW, Definition, Reshapes, decide_edit, definition_of
from millpond.engine.over_streams import over_specs
from millpond.engine.progress import MISSING, READY
from millpond.engine.spark.evaluate import constant, tables_of
from millpond.engine.spark.spark_errors import translate
from millpond.engine.spark.transfer import Dataset, Views, schema_of
from millpond.engine.steps import run_step
from millpond.engine.waiting_events import waiting_spec
from millpond.engine.work import Work
from millpond.errors import Place, StateError, TableError
from millpond.faults import reach
from millpond.plan.aggregate_model import AggregatePlan
from millpond.plan.aggregates import without_windows
from millpond.plan.model import (
    BATCH,
    VERSIONS,
    FlowPlan,
    Step,
    StepKind,
    TableKind,
    TablePlan,
    reads_versions,
)
from millpond.plan.over_model import OverPlan
from millpond.plan.source_catalog import record_schema
from millpond.plan.statement_groups import carry_order
from millpond.registry import find
from millpond.relational.compiled import QueryCache
from millpond.schema import Column, Schema, type_name
from millpond.sql.parser import parse_expression


class Preparation:
    """Creates the tables of a plan in the store, in the plan's order; run once at the start of an app."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._views = Views(context.spark, context.exchange, "mp_types")
        self._steps = {s.target.lower(): (f, s) for f in context.plan.flows for s in f.steps if s.target}

    def prepare(self) -> None:
        """Create what is missing; MP806 if the changed file would lose rows and that was not accepted."""
        ensure_columns(self._context.store, DEAD_LETTERS_SPEC)
        self._edit()
        for table in self._context.plan.tables:
            if table.kind is TableKind.SYSTEM:
                continue
            if self._must_wait(table):
                self._context.held.add(table.name.lower())
                self._context.table_states[table.name.lower()] = MISSING
            else:
                self._context.held.discard(table.name.lower())
                with _at(table.place):
                    self._make(table)
        for flow in self._context.plan.flows:
            if not is_held(self._context, flow):
                self._make_groups_of(flow)
                for step in flow.steps:
                    if step.waiting:
                        self._context.store.create(waiting_spec(step, self._batch_schema(flow)))
                    self._make_over(flow, step)

    def _make_groups_of(self, flow: FlowPlan) -> None:
        """Create the companions of groups without a table of their own, which are written to a sink or another table.
        Existing ones gain or lose the time column of 'state.ttl'."""
        names = {n.lower() for n in self._context.store.names()}
        for step in flow.steps:
            held = any(access.table.lower() in self._context.held for access in step.reads)
            if step.aggregate is None or held:
                continue
            if step.aggregate.companion.lower() in names:
                there = self._context.store.table(step.aggregate.companion).spec
                ensure_columns(self._context.store, with_or_without_expiry(there, step.aggregate))
            elif step.kind is not StepKind.AGGREGATE:
                with _at(step.place):
                    self._make_companions(flow, step.aggregate)

    def _make_over(self, flow: FlowPlan, step: Step) -> None:
        """Create the tables of the window functions of a statement."""
        if step.over is None or any(access.table.lower() in self._context.held for access in step.reads):
            return
        names = {n.lower() for n in self._context.store.names()}
        if all(name.lower() in names for name in step.over.tables):
            return
        with _at(step.place):
            for spec in over_specs(step.over, self._over_rows(flow, step.over)):
                self._context.store.create(spec)

    def _over_rows(self, flow: FlowPlan, over: OverPlan) -> Schema:
        """The columns of the rows of window functions."""
        return self._analyzed(carry_order(over.rows) or over.rows, self._batch_schema(flow))

    def _over_schema(self, flow: FlowPlan, step: Step) -> Schema:
        """The batch as a statement with window functions reads it."""
        assert step.over is not None
        values = [Column(call.name, call.type) for window in step.over.windows for call in window.calls]
        return Schema((*self._over_rows(flow, step.over).columns, *values))

    def _must_wait(self, table: TablePlan) -> bool:
        """Whether its columns depend on a source without declared columns that is empty or missing."""
        if table.kind is TableKind.DECLARED:
            return False
        step = self._steps.get(table.name.lower())
        driving = [step[0].source, *step[0].joined] if step and not table.query else []
        sources = [table.source] if table.source else driving
        if any(self._context.plan.source(s).columns is None for s in sources):
            return True
        reads = (*table.reads, *(step[1].reads if step else ()))
        return any(access.table.lower() in self._context.held for access in reads)

    def _edit(self) -> None:
        """Drop what a changed file no longer contains; MP806 if that would lose rows and was not accepted."""
        store, found = self._context.store, difference(self._context.plan, self._context.store)
        if found.losses and not self._context.accept:
            raise StateError.of(found.losses)
        self._require_free(found)
        self._context.notices.extend(p for p in found.warnings if p not in self._context.notices)
        reshapes = [self._reshape(table) for table in found.tables if table.change is EditKind.RESHAPED]
        stays = (EditKind.KEPT, EditKind.NEW, EditKind.RESHAPED)
        forgotten = [table.name for table in found.tables if table.change not in stays]
        statements = {flow.id: statements_of(flow) for flow in self._context.plan.flows}
        run = Reshapes((), {ONCE + shot.id: {"sinks": []} for shot in drops_to_run(self._context.plan, store)})
        decide_edit(store, forgotten, statements, sum(reshapes, run))
        with store.begin() as tx:
            put_views(tx, store, self._context.plan)
            tx.commit()

    def _require_free(self, found: Difference) -> None:
        """MP409 for a new table of which there is another that `app.execute` has created, before anything is changed;
        a declared one takes over the rows of a table with the same columns."""
        store = self._context.store
        there = {name.lower() for name in store.names() if store.get(MADE + name.lower())}
        for change in found.tables:
            table = self._context.plan.table(change.name)
            if change.change is not EditKind.NEW or table is None or change.name.lower() not in there:
                continue
            now, before = table.spec.schema, store.table(table.name).schema
            same = [(c.name, c.type) for c in now] == [(c.name, c.type) for c in before] and now.key == before.key
            if table.kind is not TableKind.DECLARED or not same:
                message = f"Table '{table.name}' already exists: app.execute has created it."
                hint = f"Drop it, or write DROP TABLE IF EXISTS {table.name}; before its CREATE."
                raise TableError("MP409", message, place=table.place, hint=hint)

    def _reshape(self, change: TableChange) -> Reshapes:
        """A table with its changed columns: its rows, its companions and its definition."""
        store, table = self._context.store, self._context.plan.table(change.name)
        assert table is not None
        with _at(table.place):
            found = definition_of(store.get(DEFINITION + table.name.lower()))
            assert found is not None
            puts = {DEFINITION + table.name.lower(): self._definition(table).as_json()}
            if table.kind is not TableKind.DECLARED:
                return self._reshape_groups(table, found, change, puts)
            defaults = {name: self._default(table.spec.schema[name]) for name in change.added}
            rows = reshaped(store.table(table.name).to_arrow(), table.spec.schema, defaults)
            return Reshapes(((table.spec, rows),), puts)

    def _reshape_groups(
        self, table: TablePlan, found: Definition, change: TableChange, puts: dict[str, Any]
    ) -> Reshapes:
        store, (flow, step) = self._context.store, self._steps[table.name.lower()]
        plan, before, now = step.aggregate, known_shape(found), shape_in(table, self._context.plan)
        assert plan is not None
        assert before is not None
        assert now is not None
        groups, *others = self._companions(flow, plan)
        there = {name.lower() for name in store.names()}
        moved = []
        for spec in others:
            if spec.name.lower() in there and store.table(spec.name).spec.backend != spec.backend:
                moved.append((spec, store.table(spec.name).to_arrow()))
            else:
                # A new accumulator is empty: values before it was added were not recorded.
                store.create(spec)
        if change.again:
            return self._backfilled(table, puts)
        rows = reshaped_groups(store.table(groups.name).to_arrow(), groups.schema, before, now)
        spec = self._spec(table, (flow, step))
        with store.begin() as tx:
            touched, keep = outputs(Work(self._context, tx, self._views), plan, rows, spec.schema)
            tx.rollback()
        kept = with_rows(reshaped(store.table(table.name).to_arrow(), spec.schema), touched.filter(keep), spec.schema)
        return Reshapes(((groups, rows), (spec, kept), *moved), puts)

    def _backfilled(self, table: TablePlan, puts: dict[str, Any]) -> Reshapes:
        """The rows of a table and its companions from all past records of its source, with its definition; views over
        it are recomputed."""
        flow, step = self._steps[table.name.lower()]
        assert step.aggregate is not None
        specs = [self._spec(table, (flow, step)), *self._companions(flow, step.aggregate)]
        nothing = self._batch_schema(flow).arrow().empty_table()
        rows = computed_again(self._context, flow, step, specs, nothing)
        views = {VIEW + view.name.lower(): None for view in self._context.views_of({table.name})}
        return Reshapes(tuple(rows), {**puts, **views})

    def _default(self, column: Column) -> Any:
        """The value of an added column in existing rows."""
        if column.default is None:
            return None
        default = exp.cast(parse_expression(column.default), type_name(column.type), dialect="spark")
        return constant(self._context.spark, default)

    def _definition(self, table: TablePlan) -> Definition:
        shape = shape_in(table, self._context.plan) if table.kind is TableKind.AGGREGATE else None
        return Definition(table.definition, table.kind, None if shape is None else shape.as_json())

    def _make(self, table: TablePlan) -> None:
        loaded = self._context.store.get(LOAD + table.name.lower()) is not None
        known = self._context.table_states.get(table.name.lower(), MISSING)
        if known == MISSING:
            waits = table.source is not None and table.kind is not TableKind.LOOKUP and not loaded
            self._context.table_states[table.name.lower()] = MISSING if waits else READY
        if table.kind is TableKind.VIEW and self._context.store.get(VIEW + table.name.lower()) is None:
            self._context.new_views.add(table.name.lower())
        # The definition is written last: after a crash in between it is missing, and whatever is missing is created.
        if self._context.store.get(DEFINITION + table.name.lower()) is not None:
            self._give_options(table)
            return
        step = self._steps.get(table.name.lower()) if table.kind is TableKind.AGGREGATE else None
        self._context.store.create(self._spec(table, step))
        if step:
            self._make_over(*step)
        if step and step[1].aggregate:
            self._make_companions(step[0], step[1].aggregate)
            if has_past(self._context, step[0], table):
                puts = {DEFINITION + table.name.lower(): self._definition(table).as_json()}
                past = self._backfilled(table, puts)
                self._context.store.reshape(past.tables, past.puts)
                reach("backfill.stored")
                return
            if not step[1].aggregate.keys:
                self._first_row(step[0], step[1])
        with self._context.store.begin() as tx:
            tx.put(DEFINITION + table.name.lower(), self._definition(table).as_json())
            tx.commit()

    def _give_options(self, table: TablePlan) -> None:
        """Apply what may change from start to start without loss: options, whose values are not in the log, and the
        defaults and indexes of a declared table."""
        there = self._context.store.table(table.name).spec
        declared = table.kind is TableKind.DECLARED
        self._context.store.create(table.spec if declared else replace(there, values=table.spec.values))

    def _spec(self, table: TablePlan, step: tuple[FlowPlan, Step] | None) -> TableSpec:
        if table.spec.schema.settled:
            return table.spec
        if step is not None:
            written = step[1].over.written if step[1].over is not None else step[1].query
            found = self._analyzed(without_windows(written), self._batch_schema(step[0]))
        elif table.query is not None and table.source is not None:
            found = self._analyzed(table.query, record_schema(self._context.plan.source(table.source)))
        elif table.query is not None:
            found = self._analyzed(table.query, None)
        else:
            return table.spec
        # The plan has the names, and Spark determines the types.
        shown = without_identity(table.spec.schema)
        names = shown.names if len(shown) == len(found) else found.names
        columns = tuple(Column(n, _storable(c.type)) for n, c in zip(names, found, strict=True))
        columns += tuple(c for c in table.spec.schema if c.name not in shown)
        return replace(table.spec, schema=Schema(columns, table.spec.schema.key))

    def _companions(self, flow: FlowPlan, plan: AggregatePlan) -> tuple[TableSpec, ...]:
        step = next(step for step in flow.steps if step.aggregate is plan)
        batch = self._over_schema(flow, step) if step.over is not None else self._batch_schema(flow)
        found = companion_specs(self._views, plan, lambda query: self._no_rows(query, batch))
        table = self._context.plan.table(step.target) if step.target else None
        return tuple(found if table is None else (_stored_like(spec, table.spec) for spec in found))

    def _make_companions(self, flow: FlowPlan, plan: AggregatePlan) -> None:
        for spec in self._companions(flow, plan):
            # A dropped table of the same name may have left a companion behind.
            self._context.store.drop(spec.name)
            self._context.store.create(spec)

    def _first_row(self, flow: FlowPlan, step: Step) -> None:
        """An aggregate without GROUP BY has one row from the start: that of no input."""
        nothing = self._batch_schema(flow).arrow().empty_table()
        with self._context.store.begin() as tx:
            work = Work(self._context, tx, self._views)
            letters = self._context.letters(flow.name, self._context.plan.source(flow.source))
            run_step(BatchRun(flow, Batch.of(-1, nothing, pa.table({})), work, letters), step)
            tx.commit()

    def _batch_schema(self, flow: FlowPlan) -> Schema:
        if flow.join is not None:
            return joined_schema(join_sides(self._context, flow.join))
        return record_schema(self._context.plan.source(flow.source))

    def _analyzed(self, query: exp.Query, batch: Schema | None) -> Schema:
        """The columns of a query: Arrow gives the types that Spark would give, or refuses."""
        return schema_of(self._no_rows(query, batch))

    def _no_rows(self, query: exp.Query, batch: Schema | None) -> Dataset:
        """A query over relations without rows."""
        relations: dict[str, pa.Table] = {}
        for name in tables_of(query):
            schema = batch if name == BATCH else self._context.store.table(name).schema
            assert schema is not None
            if name == BATCH and reads_versions(query) and VERSIONS.name not in schema:
                schema = Schema((*schema.columns, VERSIONS))
            relations[name] = schema.arrow().empty_table()
        evaluator = Evaluator(self._views, QueryCache(), self._context.limits)
        found = evaluator.on_driver(query, relations)
        if found is not None:
            return found
        if evaluator.is_beyond_spark(query):
            return evaluator.whatever_the_size(query, relations)
        return evaluator.in_spark(query, relations)


@contextmanager
def _at(place: Place) -> Iterator[None]:
    """Translate errors of Spark inside, and add the place of the statement that is prepared."""
    try:
        yield
    except Exception as error:
        raise translate(error, place) from error


def _stored_like(companion: TableSpec, table: TableSpec) -> TableSpec:
    """What a table needs beside its rows is in memory; that of a table that may be larger than the memory is where
    such tables are."""
    has_nested_key = any(pa.types.is_nested(companion.schema[name].type) for name in companion.schema.key)
    if not find("backend", table.backend).capabilities.files or has_nested_key:
        return companion
    values = {name: value for name, value in table.values.items() if name in ("merge.interval", "merge.rows")}
    return replace(companion, backend=table.backend, values=values)


def is_held(context: Context, flow: FlowPlan) -> bool:
    """Whether a flow depends on a source or table whose columns are not known yet."""
    sources = [context.plan.source(id_) for id_ in (flow.source, *flow.joined)]
    if any(source.columns is None for source in sources):
        return True
    sides = (flow.join.left, flow.join.right) if flow.join is not None else ()
    return any(table in context.held for side in sides for table in tables_of(side.query))


def _storable(type_: pa.DataType | None) -> pa.DataType | None:
    """The type to store; a column of type VOID, which is always NULL, is stored as STRING."""
    return pa.string() if type_ is not None and pa.types.is_null(type_) else type_
