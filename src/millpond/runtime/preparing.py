"""Making an app's tables: types that only Spark can tell, definitions that changed, accumulators beside aggregates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from sqlglot import exp

from millpond.contracts.source import DELETED, IDENTITY, ORDER_MAJOR, ORDER_MINOR, Mode
from millpond.contracts.table import TableSpec
from millpond.errors import Place, StateError
from millpond.faults import reach
from millpond.plan.aggregate_model import AggregatePlan
from millpond.plan.model import (
    BATCH,
    FlowPlan,
    SourcePlan,
    Step,
    StepKind,
    StreamJoin,
    StreamSide,
    TableKind,
    TablePlan,
)
from millpond.plan.windows import without_windows
from millpond.registry import find
from millpond.relational.answer import answered
from millpond.relational.memory import Memory
from millpond.runtime.aggregates.companions import companion_specs, with_or_without_expiry
from millpond.runtime.aggregates.outputs import outputs
from millpond.runtime.backfilling import computed_again, has_past
from millpond.runtime.context import Context
from millpond.runtime.dead_letters import SPEC as DEAD_LETTERS_SPEC
from millpond.runtime.figures.progress import MISSING, READY
from millpond.runtime.flows.batch import Batch
from millpond.runtime.flows.batch_run import BatchRun
from millpond.runtime.flows.joining import joined_schema, side_schema
from millpond.runtime.flows.steps import run_step
from millpond.runtime.flows.waiting import waiting_spec
from millpond.runtime.flows.work import Work
from millpond.runtime.keeping.editing import Change, TableChange, difference, statements_of
from millpond.runtime.keeping.ledger import DEFINITION, LOAD, VIEW, Definition, decide_edit, definition_of
from millpond.runtime.keeping.named import put_views
from millpond.runtime.keeping.reshaping import ensure_columns, reshaped, reshaped_groups, with_rows
from millpond.runtime.keeping.widening import known_shape, shape_in
from millpond.runtime.spark.access import Views, arrow_frame
from millpond.runtime.spark.errors import too_far, translate
from millpond.runtime.spark.evaluate import constant
from millpond.runtime.spark.relations import spark_text, tables_of
from millpond.runtime.spark.types import from_spark_schema
from millpond.schema import Column, Schema, type_name
from millpond.sql.correlation import far_column
from millpond.sql.parser import parse_expression

ORDER_COLUMNS = (Column(ORDER_MAJOR, pa.int64()), Column(ORDER_MINOR, pa.int64()))
KEY_COLUMNS = (Column(DELETED, pa.bool_()), Column(IDENTITY, pa.binary()))


class Preparation:
    """Makes the tables of a plan in the store, in the plan's order; run once at the start of an app."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._views = Views(context.spark, context.exchange, "mp_types")
        self._steps = {s.target.lower(): (f, s) for f in context.plan.flows for s in f.steps if s.target}

    def prepare(self) -> None:
        """Make what is missing; MP806 when the file was changed so that rows would be lost, and nobody accepted it."""
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

    def _make_groups_of(self, flow: FlowPlan) -> None:
        """The companions of groups that have no table of their own: they go to a sink or into another table. Those that
        are there get, or lose, the time that 'state.ttl' needs."""
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

    def _must_wait(self, table: TablePlan) -> bool:
        """Whether its columns hang on a source that is empty or not there, and that nobody declared."""
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
        """Let go of what a changed file no longer has; MP806 when that would lose rows and nobody accepted it."""
        store, found = self._context.store, difference(self._context.plan, self._context.store)
        if found.losses and not self._context.accept:
            raise StateError.of(found.losses)
        self._context.notices.extend(p for p in found.warnings if p not in self._context.notices)
        for table in found.tables:
            if table.change is Change.RESHAPED:
                self._reshape(table)
        stays = (Change.KEPT, Change.NEW, Change.RESHAPED)
        forgotten = [table.name for table in found.tables if table.change not in stays]
        decide_edit(store, forgotten, {flow.id: statements_of(flow) for flow in self._context.plan.flows})
        with store.begin() as tx:
            put_views(tx, store, self._context.plan)
            tx.commit()

    def _reshape(self, change: TableChange) -> None:
        """Give a table its other columns; what it holds, what is kept beside it and its definition in one commit."""
        store, table = self._context.store, self._context.plan.table(change.name)
        assert table is not None
        with _at(table.place):
            found = definition_of(store.get(DEFINITION + table.name.lower()))
            assert found is not None
            puts = {DEFINITION + table.name.lower(): self._definition(table).as_json()}
            if table.kind is TableKind.DECLARED:
                defaults = {name: self._default(table.spec.schema[name]) for name in change.added}
                rows = reshaped(store.table(table.name).to_arrow(), table.spec.schema, defaults)
                store.reshape([(table.spec, rows)], puts)
            else:
                self._reshape_groups(table, found, change, puts)

    def _reshape_groups(self, table: TablePlan, found: Definition, change: TableChange, puts: dict[str, Any]) -> None:
        store, (flow, step) = self._context.store, self._steps[table.name.lower()]
        plan, before, now = step.aggregate, known_shape(found), shape_in(table, self._context.plan)
        assert plan is not None
        assert before is not None
        assert now is not None
        groups, *others = self._companions(flow, plan)
        for spec in others:
            # What is kept of values that were not asked for yet is nothing.
            store.create(spec)
        if change.again:
            self._backfill(table, puts)
            return
        rows = reshaped_groups(store.table(groups.name).to_arrow(), groups.schema, before, now)
        spec = self._spec(table, (flow, step))
        with store.begin() as tx:
            touched, keep = outputs(Work(self._context, tx, self._views), plan, rows, spec.schema)
            tx.rollback()
        kept = with_rows(reshaped(store.table(table.name).to_arrow(), spec.schema), touched.filter(keep), spec.schema)
        store.reshape([(groups, rows), (spec, kept)], puts)

    def _backfill(self, table: TablePlan, puts: dict[str, Any]) -> None:
        """Put what comes of the whole past of its source into a table and into what is kept beside it, in one commit
        with its definition; views over it are computed anew."""
        flow, step = self._steps[table.name.lower()]
        assert step.aggregate is not None
        specs = [self._spec(table, (flow, step)), *self._companions(flow, step.aggregate)]
        nothing = self._batch_schema(flow).arrow().empty_table()
        rows = computed_again(self._context, flow, step, specs, nothing)
        views = {VIEW + view.name.lower(): None for view in self._context.views_of({table.name})}
        self._context.store.reshape(rows, {**puts, **views})
        reach("backfill.stored")

    def _default(self, column: Column) -> Any:
        """The value of a column in rows that were there before it."""
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
            self._context.table_states[table.name.lower()] = MISSING if table.source and not loaded else READY
        if table.kind is TableKind.VIEW and self._context.store.get(VIEW + table.name.lower()) is None:
            self._context.new_views.add(table.name.lower())
        # The definition is written last: without it a crash came in between, and everything is made that is missing.
        if self._context.store.get(DEFINITION + table.name.lower()) is not None:
            self._give_options(table)
            return
        step = self._steps.get(table.name.lower()) if table.kind is TableKind.AGGREGATE else None
        self._context.store.create(self._spec(table, step))
        if step and step[1].aggregate:
            self._make_companions(step[0], step[1].aggregate)
            if has_past(self._context, step[0], table):
                self._backfill(table, {DEFINITION + table.name.lower(): self._definition(table).as_json()})
                return
            if not step[1].aggregate.keys:
                self._first_row(step[0], step[1])
        with self._context.store.begin() as tx:
            tx.put(DEFINITION + table.name.lower(), self._definition(table).as_json())
            tx.commit()

    def _give_options(self, table: TablePlan) -> None:
        """What may change from start to start without loss: options, whose values are not in the log, and of a declared
        table its defaults and indexes."""
        there = self._context.store.table(table.name).spec
        declared = table.kind is TableKind.DECLARED
        self._context.store.create(table.spec if declared else replace(there, values=table.spec.values))

    def _spec(self, table: TablePlan, step: tuple[FlowPlan, Step] | None) -> TableSpec:
        if _is_settled(table.spec.schema):
            return table.spec
        if step is not None:
            found = self._analyzed(without_windows(step[1].query), self._batch_schema(step[0]))
        elif table.query is not None and table.source is not None:
            found = self._analyzed(table.query, _record_schema(self._context.plan.source(table.source)))
        elif table.query is not None:
            found = self._analyzed(table.query, None)
        else:
            return table.spec
        # The plan knows the names, Spark the types.
        names = table.spec.schema.names if len(table.spec.schema) == len(found) else found.names
        columns = tuple(Column(n, _storable(c.type)) for n, c in zip(names, found, strict=True))
        return replace(table.spec, schema=Schema(columns, table.spec.schema.key))

    def _companions(self, flow: FlowPlan, plan: AggregatePlan) -> tuple[TableSpec, ...]:
        batch = self._batch_schema(flow)
        return tuple(companion_specs(self._views, plan, lambda query: self._frame(query, batch)))

    def _make_companions(self, flow: FlowPlan, plan: AggregatePlan) -> None:
        for spec in self._companions(flow, plan):
            # Under another table of this name, since dropped, there may be one left.
            self._context.store.drop(spec.name)
            self._context.store.create(spec)

    def _first_row(self, flow: FlowPlan, step: Step) -> None:
        """An aggregate without GROUP BY is one row from the start: that of no input at all."""
        nothing = self._batch_schema(flow).arrow().empty_table()
        with self._context.store.begin() as tx:
            work = Work(self._context, tx, self._views)
            letters = self._context.letters(flow.name, self._context.plan.source(flow.source))
            run_step(BatchRun(flow, Batch.of(-1, nothing, pa.table({})), work, letters), step)
            tx.commit()

    def _batch_schema(self, flow: FlowPlan) -> Schema:
        if flow.join is not None:
            return joined_schema(join_sides(self._context, flow.join))
        return _record_schema(self._context.plan.source(flow.source))

    def _analyzed(self, query: exp.Query, batch: Schema | None) -> Schema:
        """What Spark says a query yields."""
        return from_spark_schema(self._frame(query, batch).schema)

    def _frame(self, query: exp.Query, batch: Schema | None) -> DataFrame:
        """A query over relations without rows."""
        relations: dict[str, pa.Table] = {}
        for name in tables_of(query):
            schema = batch if name == BATCH else self._context.store.table(name).schema
            assert schema is not None
            relations[name] = schema.arrow().empty_table()
        if far_column(query) is not None:
            found = answered(query, relations, Memory())
            if found is None:
                raise too_far(query)
            return arrow_frame(self._views.session, found)
        views = {n: self._views.frame(n, arrow_frame(self._views.session, rows)) for n, rows in relations.items()}
        return self._views.session.sql(spark_text(query, views))


@contextmanager
def _at(place: Place) -> Iterator[None]:
    """What fails inside is told in our words, with the place of the statement that is prepared."""
    try:
        yield
    except Exception as error:
        raise translate(error, place) from error


def is_held(context: Context, flow: FlowPlan) -> bool:
    """Whether it hangs on a source or table whose columns are not known yet."""
    sources = [context.plan.source(id_) for id_ in (flow.source, *flow.joined)]
    if any(source.columns is None for source in sources):
        return True
    sides = (flow.join.left, flow.join.right) if flow.join is not None else ()
    return any(table in context.held for side in sides for table in tables_of(side.query))


def join_sides(context: Context, join: StreamJoin) -> tuple[Schema, Schema]:
    """What each stream of a join hands over."""
    left, right = (side_schema(context.spark(), side, _relations(context, side)) for side in (join.left, join.right))
    return left, right


def _relations(context: Context, side: StreamSide) -> dict[str, Schema]:
    """What comes in on one side, records of a source or pairs of another join, and the tables that they are joined
    with."""
    inner = next((flow.join for flow in context.plan.flows if flow.id == side.source), None)
    if inner is not None:
        batch = joined_schema(join_sides(context, inner))
    else:
        batch = _record_schema(context.plan.source(side.source))
    tables = {n: context.store.table(n).schema for n in tables_of(side.query) if n != BATCH}
    return {BATCH: batch, **tables}


def _record_schema(source: SourcePlan) -> Schema:
    assert source.columns is not None
    keyed = find("source", source.type).table_mode is Mode.CHANGES
    return Schema((*source.columns.columns, *source.hidden, *ORDER_COLUMNS, *(KEY_COLUMNS if keyed else ())))


def _is_settled(schema: Schema) -> bool:
    """Whether the planner knows every type, so that Spark need not be asked."""
    return len(schema) > 0 and all(c.type is not None and not pa.types.is_null(c.type) for c in schema)


def _storable(type_: pa.DataType | None) -> pa.DataType | None:
    """A column of nothing but NULL is kept as text."""
    return pa.string() if type_ is not None and pa.types.is_null(type_) else type_
