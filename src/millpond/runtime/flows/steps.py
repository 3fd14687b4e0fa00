"""The statements of a flow, each on one micro-batch inside its transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.source import IDENTITY, ORDER_MAJOR, ORDER_MINOR
from millpond.plan.model import Step, StepKind
from millpond.plan.stream_order import ORDER, carry_order
from millpond.plan.upserts import matches_by_key
from millpond.runtime.aggregates.telling import emit_groups, keep_table, rows_to_tell
from millpond.runtime.changing.folding import apply_change
from millpond.runtime.changing.latest import KEEP, key_values, last_of_keys, last_that_stay, with_keep
from millpond.runtime.changing.matching import apply_rows, take_apart
from millpond.runtime.changing.merging import Merging, insert_or_change, merge_rows
from millpond.runtime.flows.batch_run import BatchRun
from millpond.runtime.flows.fitting import fitted
from millpond.runtime.flows.rejecting import misfits, reject, to_letters, true_positions, without
from millpond.runtime.flows.relaying import relay
from millpond.runtime.flows.staging import emit_query
from millpond.runtime.spark.access import Relation
from millpond.runtime.spark.evaluate import constant
from millpond.runtime.spark.lookups import Lookups
from millpond.schema import Column, Schema, type_name
from millpond.sql.parser import parse_expression


def run_step(run: BatchRun, step: Step) -> None:
    """Run one statement."""
    run.work.lookups = Lookups(run.batch, run.work.views, run.work.context.store)
    run.work.reads = step.reads
    pending = run.groups.of(step) if run.groups is not None else None
    if pending is not None:
        pending.take(run, step)
    else:
        RUNNERS[step.kind](run, step)


def _sink(run: BatchRun, step: Step) -> None:
    if step.aggregate is not None:
        emit_groups(run, step, rows_to_tell(run, step))
    else:
        emit_query(run, step)


def _insert(run: BatchRun, step: Step) -> None:
    table = run.work.table(step.target)
    replaced = step.kind is not StepKind.UPSERT
    rows = _rows_for_table(run, step, table.schema, with_defaults=replaced)
    if not rows.num_rows:
        return
    if step.conflict is not None:
        one_by_one = (rows.slice(number, 1) for number in range(rows.num_rows))
        changed = sum(insert_or_change(run.work, table, row, step.conflict) for row in one_by_one)
    else:
        changed = table.upsert(rows) if table.schema.key else table.insert(rows)
    if changed:
        run.work.mark_changed(step.target)


def _upsert(run: BatchRun, step: Step) -> None:
    schema = run.work.table(step.target).schema
    if step.condition is None or matches_by_key(step.query, step.condition, step.columns, step.target, schema):
        _insert(run, step)
    else:
        _upsert_on(run, step, step.condition)


def _upsert_on(run: BatchRun, step: Step, condition: exp.Expr) -> None:
    """Rows matched by a condition; what the table refuses goes to the dead letters."""
    table = run.work.table(step.target)
    matching = run.work.memory.once(
        "matching", step.query, lambda: take_apart(step.query, condition, step.columns, table)
    )
    rows = _matched_rows(run, replace(step, query=matching.query), table.schema, matching.extra)
    refused = list(apply_rows(table, matching, rows.drop_columns([n for n in ORDER if n in rows.column_names])))
    errors = {i: error.problems[0] for i, error in enumerate(refused) if error is not None}
    good = rows.filter(pa.array([i not in errors for i in range(rows.num_rows)], pa.bool_()))
    to_letters(run, rows, {i: (e.code, e.message) for i, e in errors.items()}, good)
    if len(errors) < rows.num_rows:
        run.work.mark_changed(step.target)


def _matched_rows(run: BatchRun, step: Step, schema: Schema, extra: tuple[str, ...]) -> pa.Table:
    """The statement's values in the target's types, in stream order, with what ON reads of each event."""
    found, ordered = _found(run, step)
    columns = [schema[name] for name in step.columns]
    names = [c.name for c in columns]
    rows = fitted(run.work, found, columns, (*extra, *(ORDER if ordered else ())))
    if ordered:
        rows = rows.sort_by([(ORDER_MAJOR, "ascending"), (ORDER_MINOR, "ascending")])
    return without(run, rows, misfits(rows, columns)).select([*names, *extra, *(ORDER if ordered else ())])


def _change(run: BatchRun, step: Step) -> None:
    if apply_change(run.work, step, run.batch.relation):
        run.work.mark_changed(step.target)


def _merge(run: BatchRun, step: Step) -> None:
    """A MERGE that does not go by key."""
    table = run.work.table(step.target)
    assert step.statement is not None
    statement = step.statement
    parts = run.work.memory.once("merging", step.query, lambda: Merging.of(statement, step.query))
    if merge_rows(run.work, table, parts, step.branches, run.batch.relation):
        run.work.mark_changed(step.target)


def _latest(run: BatchRun, step: Step) -> None:
    """The last message of each key: kept where it satisfies WHERE, else what the table holds of its key goes."""
    if step.message_key:
        _latest_traced(run, step)
        return
    table = run.work.table(step.target)
    columns = list(table.schema)
    query = run.work.memory.once("keep", step.query, lambda: carry_order(with_keep(step.query)))
    assert query is not None
    rows = fitted(run.work, run.work.result(query, run.batch.changes), columns, (KEEP, *ORDER))
    rows = rows.sort_by([(ORDER_MAJOR, "ascending"), (ORDER_MINOR, "ascending")])
    kept, gone = last_of_keys(_keyed_rows(run, rows, table.schema), table.schema.key)
    _keep_last(run, step, kept, gone)


def _latest_traced(run: BatchRun, step: Step) -> None:
    """The same for a query that is more than columns and rows of the batch: its rows are matched with their messages,
    and a key whose last message gave no row goes."""
    schema = run.work.table(step.target).schema
    query = run.work.ordered(step.query)
    assert query is not None
    names = [c.name for c in schema if c.name != IDENTITY]
    found = run.work.result(query, run.batch.relation)
    rows = fitted(run.work, found, [schema[name] for name in names], ORDER)
    messages = run.batch.message_keys(step.message_key).rename_columns([*schema.key, *ORDER])
    rows, gone = last_that_stay(rows, messages, schema.key)
    stay = rows.append_column(KEEP, pa.array([True] * rows.num_rows, pa.bool_()))
    _keep_last(run, step, _keyed_rows(run, stay, schema), gone)


def _keep_last(run: BatchRun, step: Step, kept: pa.Table, gone: pa.Table) -> None:
    table = run.work.table(step.target)
    names = list(table.schema.names)
    changed = table.upsert(kept.select(names).cast(table.schema.arrow())) if kept.num_rows else 0
    changed += table.delete(keys=key_values(gone, table.schema)) if gone.num_rows else 0
    if changed:
        run.work.mark_changed(step.target)


def _keyed_rows(run: BatchRun, rows: pa.Table, schema: Schema) -> pa.Table:
    """Without rows that have no key, or that would stay and break a rule: those go to the dead letters."""
    rejected = misfits(rows, list(schema))
    for column in schema:
        null = pc.is_null(rows[column.name])
        if column.name in schema.key:
            reason = ("MP403", f"column '{column.name}': a key column is NULL")
            rejected = dict.fromkeys(true_positions(null), reason) | rejected
        elif not column.nullable:
            reason = ("MP401", f"column '{column.name}': a NOT NULL column is NULL")
            rejected = dict.fromkeys(true_positions(pc.and_(null, rows[KEEP])), reason) | rejected
    return without(run, rows, rejected)


RUNNERS: dict[StepKind, Callable[[BatchRun, Step], None]] = {
    StepKind.SINK: _sink,
    StepKind.RELAY: relay,
    StepKind.INSERT: _insert,
    StepKind.UPSERT: _upsert,
    StepKind.APPEND: _insert,
    StepKind.LATEST: _latest,
    StepKind.AGGREGATE: keep_table,
    StepKind.UPDATE: _change,
    StepKind.DELETE: _change,
    StepKind.MERGE: _merge,
}


def _rows_for_table(run: BatchRun, step: Step, schema: Schema, *, with_defaults: bool) -> pa.Table:
    """The statement's rows in the target's types and in stream order; rows that do not fit go to the dead letters."""
    found, ordered = _found(run, step)
    names = [schema[name].name for name in step.columns]
    columns = [schema[name] for name in names]
    rows = fitted(run.work, found, columns, ORDER if ordered else ())
    if ordered:
        rows = rows.sort_by([(ORDER_MAJOR, "ascending"), (ORDER_MINOR, "ascending")])
    given = set(names)
    if with_defaults:
        rows = _fill_defaults(run, rows, [c for c in schema if c.name not in given])
        columns = list(schema)
    good = reject(run, rows, columns, schema)
    return good.select([c.name for c in columns]).cast(pa.schema([(c.name, c.type) for c in columns]))


def _found(run: BatchRun, step: Step) -> tuple[Relation, bool]:
    """The statement's rows, and whether the stream order comes with them as the last columns."""
    if step.aggregate is not None:
        rows = rows_to_tell(run, step)
        empty = pa.table({c.name: pa.nulls(0, c.type or pa.string()) for c in step.schema})
        return empty if rows is None else rows, False
    ordered = run.work.ordered(step.query)
    return run.work.result(ordered or step.query, run.batch.relation), ordered is not None


def _fill_defaults(run: BatchRun, rows: pa.Table, columns: list[Column]) -> pa.Table:
    for column in columns:
        value = pa.nulls(rows.num_rows, column.type)
        if column.default is not None and rows.num_rows:
            default = exp.cast(parse_expression(column.default), type_name(column.type), dialect="spark")
            once = pa.array([constant(run.work.views.spark, default)], column.type)
            value = once.take(pa.array(np.zeros(rows.num_rows, np.int32)))
        rows = rows.append_column(column.name, value)
    return rows
