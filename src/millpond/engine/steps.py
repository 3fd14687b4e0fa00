"""Runs one statement of a flow on one micro-batch, inside its transaction: one function per kind of statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.source import DELETED, IDENTITY, ORDER_MAJOR, ORDER_MINOR
from millpond.contracts.table import WriteTable
from millpond.engine.batch_run import BatchRun
from millpond.engine.emit import emit_query
from millpond.engine.groups import emit_groups, keep_table, rows_to_emit
from millpond.engine.joined_streams import relay
from millpond.engine.key_lookups import Lookups
from millpond.engine.merge import Merging, insert_or_change, merge_rows
from millpond.engine.over_streams import with_windows
from millpond.engine.rejected_rows import fitted, misfits, reject, to_letters, true_positions, without
from millpond.engine.row_sets import last_of_keys, nth_of_keys, rows_with
from millpond.engine.seen_versions import with_versions
from millpond.engine.spark.evaluate import constant
from millpond.engine.spark.transfer import Dataset
from millpond.engine.stream_updates import apply_change
from millpond.engine.table_history import count_outside
from millpond.engine.upsert_on import apply_rows, take_apart
from millpond.engine.work import Work
from millpond.plan.model import Step, StepKind
from millpond.plan.row_parts import matches_by_key
from millpond.plan.statement_groups import ORDER, carry_order
from millpond.schema import Column, Schema, type_name
from millpond.sql.parser import parse_expression


def run_step(run: BatchRun, step: Step) -> None:
    """Run one statement."""
    run = with_versions(run, step)
    run.work.lookups = Lookups(run.batch, run.work.evaluator, run.work.context.store)
    run.work.reads = step.reads
    if step.over is not None:
        # Only for a first row of no input: statements of a flow have computed them before.
        run = with_windows(run, step)
        run.work.lookups = Lookups(run.batch, run.work.evaluator, run.work.context.store)
    outside = count_outside(run.work, step.query if step.aggregate is None else step.aggregate.rows, run.batch.relation)
    run.outside[step.index] = outside
    pending = run.groups.of(step) if run.groups is not None else None
    if pending is not None:
        pending.take(run, step)
    else:
        RUNNERS[step.kind](run, step)


def _sink(run: BatchRun, step: Step) -> None:
    if step.aggregate is not None:
        emit_groups(run, step, rows_to_emit(run, step))
    else:
        emit_query(run, step)


def _insert(run: BatchRun, step: Step) -> None:
    table = run.work.table(step.target)
    replaced = step.kind is not StepKind.UPSERT
    rows = _rows_for_table(run, step, table.schema, with_defaults=replaced)
    if not rows.num_rows:
        return
    if step.conflict is not None:
        # One by one, because the next row may conflict with one that was just inserted.
        one_by_one = (rows.slice(number, 1) for number in range(rows.num_rows))
        changed = sum(insert_or_change(run.work, table, row, step.conflict) for row in one_by_one)
    else:
        changed = _store(run.work, table, rows)
    if changed:
        run.work.mark_changed(step.target)


def _store(work: Work, table: WriteTable, rows: pa.Table) -> int:
    """Write rows to a table. Its history may need all of them, even those that a later one replaces."""
    if not table.schema.key:
        return table.insert(rows)
    if not work.keeps_times(table.name):
        return table.upsert(rows)
    if set(rows.column_names) == set(table.schema.names):
        work.add_passed(table.name, rows.select(list(table.schema.names)))
        return table.upsert(rows)
    # The other columns of a row are those of the row before it.
    changed, key = 0, list(table.schema.key)
    for part in nth_of_keys(rows, key):
        changed += table.upsert(part)
        work.add_passed(table.name, rows_with(table, key, part.select(key)))
    return changed


def _upsert(run: BatchRun, step: Step) -> None:
    schema = run.work.table(step.target).schema
    if step.condition is None or matches_by_key(step.query, step.condition, step.columns, step.target, schema):
        _insert(run, step)
    else:
        _upsert_on(run, step, step.condition)


def _upsert_on(run: BatchRun, step: Step, condition: exp.Expr) -> None:
    """UPSERT ... ON: rows are matched by a condition; rows that the table rejects become dead letters."""
    table = run.work.table(step.target)
    matching = run.work.cache.once(
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
    """The statement's values in the target's types, in stream order, with the values that ON reads of each event."""
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
    """A MERGE that is not by key."""
    table = run.work.table(step.target)
    assert step.statement is not None
    statement = step.statement
    parts = run.work.cache.once("merging", step.query, lambda: Merging.of(statement, step.query))
    if merge_rows(run.work, table, parts, step.branches, run.batch.relation):
        run.work.mark_changed(step.target)


def _latest(run: BatchRun, step: Step) -> None:
    """Store the last message of each key if WHERE is true for it, else delete the row of its key."""
    if step.message_key:
        _latest_traced(run, step)
        return
    table = run.work.table(step.target)
    columns = list(table.schema)
    query = run.work.cache.once("keep", step.query, lambda: carry_order(with_keep(step.query)))
    assert query is not None
    rows = fitted(run.work, run.work.result(query, run.batch.changes), columns, (KEEP, *ORDER))
    rows = rows.sort_by([(ORDER_MAJOR, "ascending"), (ORDER_MINOR, "ascending")])
    rows = _keyed_rows(run, rows, table.schema)
    if run.work.keeps_times(table.name):
        stored = rows.filter(rows[KEEP]).select(list(table.schema.names))
        run.work.add_passed(table.name, stored.cast(table.schema.arrow()))
    kept, gone = last_messages(rows, table.schema.key)
    _keep_last(run, step, kept, gone)


def _latest_traced(run: BatchRun, step: Step) -> None:
    """The same for a query that is more than columns and rows of the batch: its rows are matched with their messages,
    and a key whose last message has no row is deleted."""
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
    if kept.num_rows and run.work.keeps_times(table.name):
        run.work.add_passed(table.name, kept.select(names).cast(table.schema.arrow()))
    changed = table.upsert(kept.select(names).cast(table.schema.arrow())) if kept.num_rows else 0
    changed += table.delete(keys=key_values(gone, table.schema)) if gone.num_rows else 0
    if changed:
        run.work.mark_changed(step.target)


def _keyed_rows(run: BatchRun, rows: pa.Table, schema: Schema) -> pa.Table:
    """The rows without those that have no key, or that would be stored and violate NOT NULL, which become dead
    letters."""
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
    """The statement's rows in the target's types and in stream order; invalid rows become dead letters."""
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


def _found(run: BatchRun, step: Step) -> tuple[Dataset, bool]:
    """The statement's rows, and whether their last columns are the stream order."""
    if step.aggregate is not None:
        rows = rows_to_emit(run, step)
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


KEEP = "__keep"


def with_keep(query: exp.Query) -> exp.Query:
    """The query with its WHERE as one more column: a message that WHERE rejects deletes the row of its key."""
    made = query.copy()
    assert isinstance(made, exp.Select)
    where = made.args.get("where")
    made.set("where", None)
    source = made.args["from_"].this
    stays: exp.Expression = exp.Not(this=exp.column(DELETED, table=source.alias_or_name, quoted=True))
    if where is not None:
        # A message without a value deletes: WHERE is not evaluated, because its columns are all NULL.
        holds = exp.Coalesce(this=exp.Paren(this=where.this), expressions=[exp.false()])
        stays = exp.Case(ifs=[exp.If(this=stays, true=holds)], default=exp.false())
    made.append("expressions", exp.alias_(stays, KEEP, quoted=True))
    return made


def last_messages(rows: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """The last row of each key, in order: those that are stored, and those whose keys are deleted."""
    rows = last_of_keys(rows, key)
    return rows.filter(rows[KEEP]), rows.filter(pc.invert(rows[KEEP]))


def last_that_stay(rows: pa.Table, messages: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """The rows of the last message of each key, in stream order, and the last messages without rows. Rows are matched
    with their message by its position in the stream, so that they need not contain its key."""
    order = [(name, "ascending") for name in ORDER]
    last = last_of_keys(messages.sort_by(order), key)
    if IDENTITY not in key:
        last = last.rename_columns([f"__{name}" if name in key else name for name in last.column_names])
    kept = rows.join(last, list(ORDER), join_type="inner").sort_by(order)
    gone = last.join(rows.select(list(ORDER)), list(ORDER), join_type="left anti")
    return kept, gone.rename_columns([n.removeprefix("__") if n[2:] in key else n for n in gone.column_names])


def key_values(rows: pa.Table, schema: Schema) -> list[Any]:
    """Keys for a table: single values, or tuples of several."""
    columns = [rows[name].to_pylist() for name in schema.key]
    return list(columns[0]) if len(columns) == 1 else list(zip(*columns, strict=True))
