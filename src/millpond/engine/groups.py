"""Groups of GROUP BY, DISTINCT and windows: merges a batch into them, writes tables, emits to sinks, closes windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.source import IDENTITY
from millpond.contracts.table import Transaction
from millpond.engine import accumulators, companions, late_rows, state_ttl
from millpond.engine.accumulators import GROUP_ID, join_sessions, key_columns
from millpond.engine.batch_run import BatchRun, Output
from millpond.engine.emit import emit
from millpond.engine.grouping_sets import identities
from millpond.engine.partials import Grouped, grouped_rows, partials
from millpond.engine.row_sets import positions, positions_among, rows_with, unique_rows
from millpond.engine.spark.evaluate import by_arrow
from millpond.engine.watermark import at
from millpond.engine.work import Work
from millpond.plan.aggregate_model import END, START, AggregatePlan, Final
from millpond.plan.model import Step, StepKind
from millpond.schema import Schema

# Spark's types: SUM adds ten digits to a decimal, AVG four digits and four places.
SUM_DIGITS, AVG_DIGITS, DIGITS_MAX = 10, 4, 38
MERGED = "__merged__"
TRUE = exp.true()


def outputs(work: Work, plan: AggregatePlan, merged: pa.Table, schema: Schema) -> tuple[pa.Table, pa.Array]:
    """The rows of the user's table for the merged groups, and which of them satisfy HAVING."""
    rows = finals_of(work, plan, merged)
    expressions = [expression for _, expression in plan.outputs]
    *columns, keep = _values(work, [*expressions, plan.having or TRUE], rows)
    if IDENTITY in schema:
        columns.append(identities(merged, plan))
    table = pa.table(columns, names=list(schema.names)).cast(schema.arrow())
    return table, pc.fill_null(keep, False).combine_chunks()


def emitted(work: Work, plan: AggregatePlan, merged: pa.Table) -> pa.Table:
    """The rows to emit for the merged groups: those that satisfy HAVING, by ORDER BY and LIMIT."""
    rows = finals_of(work, plan, merged)
    if plan.order or plan.limit is not None or plan.has_over:
        query = work.cache.once("ordered groups", plan.rows, lambda: _ordered(plan))
        return work.rows(query, given={MERGED: rows})
    expressions = [expression for _, expression in plan.outputs]
    *columns, keep = _values(work, [*expressions, plan.having or TRUE], rows)
    table = pa.table(columns, names=[name for name, _ in plan.outputs])
    return table.filter(pc.fill_null(keep, False))


def keys(work: Work, plan: AggregatePlan, groups: pa.Table, columns: Sequence[str], schema: Schema) -> pa.Table | None:
    """The keys of groups in the target table, whose `columns` the outputs fill by position; None if its key does not
    consist of groups only."""
    if IDENTITY in schema.key:
        return pa.table({IDENTITY: identities(groups, plan)})
    key = {name.lower() for name in schema.key}
    chosen = {schema[c].name: e for c, (_, e) in zip(columns, plan.outputs, strict=True) if c.lower() in key}
    read = {column.name for e in chosen.values() for column in e.find_all(exp.Column)}
    if not key or len(chosen) < len(key) or not read <= set(plan.keys):
        return None
    found = pa.table(_values(work, list(chosen.values()), groups), names=list(chosen))
    return found.select(list(schema.key)).cast(pa.schema([schema.arrow().field(name) for name in schema.key]))


def finals_of(work: Work, plan: AggregatePlan, merged: pa.Table) -> pa.Table:
    """The groups with the user's aggregates, computed from merged accumulators and stored values."""
    types = {final.name: _type(final, merged.schema) for final in plan.finals}
    rows = accumulators.finals(merged, plan, types)
    if plan.kept is None:
        return rows
    values = companions.finals(work, plan.kept, merged[GROUP_ID])
    for name in values.column_names:
        rows = rows.append_column(name, values[name])
    return rows


def _values(work: Work, expressions: list[exp.Expression], rows: pa.Table) -> list[pa.ChunkedArray]:
    """One column per expression: by Arrow if it supports it, the others by one Spark query. If there is a subquery,
    Spark evaluates all of them, because its joins may change the order of the rows."""
    if any(e.find(exp.Query) for e in expressions):
        return _on_spark(work, expressions, rows)
    found = [by_arrow(e, rows) for e in expressions]
    others = iter(_on_spark(work, [e for e, f in zip(expressions, found, strict=True) if f is None], rows))
    return [next(others) if f is None else f for f in found]


def _on_spark(work: Work, expressions: list[exp.Expression], rows: pa.Table) -> list[pa.ChunkedArray]:
    if not expressions:
        return []
    # The expressions belong to the plan, so that their ids are the same in every batch.
    kind = " ".join(["outputs", *(str(id(e)) for e in expressions)])
    query = work.cache.once(kind, expressions[0], lambda: _of_merged(expressions))
    return list(work.rows(query, given={MERGED: rows}).columns)


def _of_merged(expressions: list[exp.Expression]) -> exp.Select:
    named = [exp.alias_(e.copy(), f"c{n}", quoted=True) for n, e in enumerate(expressions)]
    return exp.Select(expressions=named).from_(_merged_table(), copy=False)


def _ordered(plan: AggregatePlan) -> exp.Select:
    named = [exp.alias_(e.copy(), name, quoted=True) for name, e in plan.outputs]
    query = exp.Select(expressions=named).from_(_merged_table(), copy=False)
    if plan.having is not None:
        query = query.where(plan.having.copy(), copy=False)
    if plan.qualify is not None:
        return _qualified(query, plan.qualify.copy(), plan)
    if plan.order:
        query.set("order", exp.Order(expressions=[e.copy() for e in plan.order]))
    query.set("limit", plan.limit.copy() if plan.limit is not None else None)
    return query


def _qualified(groups: exp.Select, condition: exp.Expr, plan: AggregatePlan) -> exp.Select:
    """QUALIFY as a condition on a subquery, because Spark does not support the clause."""
    order = [e.copy() for e in plan.order]
    keys = [exp.alias_(e.this.copy(), f"__o{n}", quoted=True) for n, e in enumerate(order)]
    groups.set("expressions", [*groups.expressions, *keys, exp.alias_(condition, "__qualifies", quoted=True)])
    columns = [exp.column(name, quoted=True) for name, _ in plan.outputs]
    query = exp.Select(expressions=columns).from_(exp.Subquery(this=groups, alias=exp.TableAlias(this="__q")))
    query = query.where(exp.column("__qualifies", quoted=True), copy=False)
    for n, key in enumerate(order):
        key.set("this", exp.column(f"__o{n}", quoted=True))
    query.set("order", exp.Order(expressions=order) if order else None)
    query.set("limit", plan.limit.copy() if plan.limit is not None else None)
    return query


def _merged_table() -> exp.Table:
    return exp.Table(this=exp.Identifier(this=MERGED, quoted=True))


def _type(final: Final, schema: pa.Schema) -> pa.DataType:
    if final.type is not None:
        return final.type
    if final.how == "count":
        return pa.int64()
    total: pa.DataType = schema.field(final.accumulators[0]).type
    if final.how != "avg":
        return total
    if not pa.types.is_decimal(total):
        return pa.float64()
    digits = total.precision - SUM_DIGITS
    places = min(total.scale + AVG_DIGITS, DIGITS_MAX)
    return pa.decimal128(min(digits + AVG_DIGITS, DIGITS_MAX), places)


@dataclass(frozen=True)
class MergedGroups:
    """The groups that a batch changed, as stored in the companion; `is_new` marks those that did not exist before;
    `replaced` are removed groups: sessions that were merged into another one, and expired groups that start again."""

    groups: pa.Table
    is_new: pa.Array
    replaced: pa.Table


def fold(run: BatchRun, step: Step) -> MergedGroups:
    """Merge a batch into the groups of a statement; late rows are reported and left out."""
    plan = step.aggregate
    assert plan is not None
    rows = grouped_rows(run.work, plan, run.batch.relation)
    found = partials(rows, plan, touched_only=step.kind is not StepKind.AGGREGATE or run.batch.id >= 0)
    batch = _as_companion(run, plan, accumulators.with_one_group(found, plan))
    if plan.window is not None and plan.window.is_session:
        return _fold_sessions(run, step, rows, batch)
    batch = _on_time(run, step, rows, batch)
    companion = run.work.table(plan.companion)
    keys = batch.select(list(key_columns(plan)))
    held = companion.lookup(keys)
    # A group that had expired before the batch starts again from zero.
    expired = state_ttl.drop_expired(run, plan, held)
    if expired.num_rows:
        held = companion.lookup(keys)
    batch = companions.count_new(run.work, plan, rows, batch)
    where = positions(keys, held)
    merged = accumulators.merge(held.take(where), batch, plan)
    companion.upsert(merged)
    _keep(run, plan, rows, merged)
    return MergedGroups(merged, pc.is_null(where), expired)


def _as_companion(run: BatchRun, plan: AggregatePlan, found: pa.Table) -> pa.Table:
    """The batch's partial aggregates in the companion's columns; each group gets a number, which is used if it is
    new."""
    schema = run.work.table(plan.companion).schema
    if plan.kept is not None:
        numbers = companions.free_numbers(run.work, plan.companion, GROUP_ID, found.num_rows)
        found = found.append_column(GROUP_ID, numbers)
    found = state_ttl.with_commit_time(run, plan, found)
    return found.select(list(schema.names)).cast(schema.arrow())


def _on_time(run: BatchRun, step: Step, rows: Grouped, batch: pa.Table) -> pa.Table:
    plan = step.aggregate
    assert plan is not None
    if plan.window is None:
        return batch
    refused = late_rows.is_refused(batch, late_rows.closed_until(run, step, run.watermark.before))
    if pc.any(refused).as_py():
        late_rows.report(run, step, rows, batch.filter(refused))
        batch = batch.filter(pc.invert(refused))
    return batch


def _keep(run: BatchRun, plan: AggregatePlan, rows: Grouped, groups: pa.Table) -> None:
    if plan.kept is not None:
        values = companions.batch_values(rows, plan)
        companions.keep(run.work, plan, values, groups)


def _fold_sessions(run: BatchRun, step: Step, rows: Grouped, batch: pa.Table) -> MergedGroups:
    """The same for sessions: whether a row is late is known only after sessions were merged."""
    plan = step.aggregate
    assert plan is not None
    companion = run.work.table(plan.companion)
    closed_us = late_rows.closed_until(run, step, run.watermark.before)
    timed = batch.filter(pc.is_valid(batch[START]))
    groups = list(plan.groups)
    held = rows_with(companion, groups, unique_rows(timed.select(groups))) if groups else companion.to_arrow()
    joined = join_sessions(held.filter(pc.invert(late_rows.is_refused(held, closed_us))), timed, plan)
    is_late = late_rows.is_refused(joined.sessions, closed_us)
    refused = pa.concat_tables([batch.filter(pc.is_null(batch[START])), timed.filter(is_late.take(joined.into))])
    if refused.num_rows:
        late_rows.report(run, step, rows, refused)
    if joined.replaced.num_rows:
        companion.delete(keys=joined.replaced.select(list(plan.keys)))
    sessions = joined.sessions.filter(pc.invert(is_late))
    companion.upsert(sessions)
    if plan.kept is not None:
        values = run.work.table(plan.kept.companion)
        companions.move(values, joined.replaced[GROUP_ID], joined.sessions[GROUP_ID].take(joined.grown))
        numbers = joined.sessions[GROUP_ID].take(joined.into)
        local = timed.select(list(plan.keys)).append_column(GROUP_ID, numbers)
        _keep(run, plan, rows, local.filter(pc.invert(is_late.take(joined.into))))
    return MergedGroups(sessions, pa.array([True] * sessions.num_rows), joined.replaced)


def ended(tx: Transaction, plan: AggregatePlan, until_us: int) -> pa.Table:
    """The windows that ended by a time, in order."""
    windows = tx.table(plan.companion).find(f"{END} <= ?", [at(until_us)])
    return windows.sort_by([(END, "ascending"), (START, "ascending")])


def forget(work: Work, plan: AggregatePlan, windows: pa.Table, until_us: int) -> None:
    """Remove the state of windows that ended by a time."""
    work.table(plan.companion).delete(keys=windows.select(list(plan.keys)))
    companions.forget_values(work, plan, at(until_us))
    if plan.kept is not None:
        companions.forget(work.table(plan.kept.companion), windows[GROUP_ID])


def keep_table(run: BatchRun, step: Step) -> None:
    """Update a table AS SELECT ... GROUP BY or DISTINCT with a batch."""
    plan = step.aggregate
    assert plan is not None
    folded = fold(run, step)
    if plan.first_only:
        _add_first(run, step, folded)
    elif folded.groups.num_rows:
        _publish(run, step, folded)
    close(run, step)


def _add_first(run: BatchRun, step: Step, folded: MergedGroups) -> None:
    assert step.aggregate is not None
    table = run.work.table(step.target)
    _remove(run, step, folded.replaced)
    new = folded.groups.filter(folded.is_new)
    if new.num_rows:
        rows, _ = outputs(run.work, step.aggregate, new, table.schema)
        table.insert(rows)
        run.work.mark_changed(step.target)


def _publish(run: BatchRun, step: Step, folded: MergedGroups) -> None:
    """Write the changed groups to the user's table; remove groups that no longer satisfy HAVING, and sessions that were
    merged into another one."""
    plan = step.aggregate
    assert plan is not None
    table = run.work.table(step.target)
    key = list(table.schema.key)
    rows, keep = outputs(run.work, plan, folded.groups, table.schema)
    if not key:
        changed = table.replace(rows.filter(keep))
    else:
        _remove(run, step, folded.replaced)
        changed = table.upsert(rows.filter(keep))
        gone = rows.filter(pc.invert(keep))
        if gone.num_rows:
            changed += table.delete(keys=gone.select(key))
    if changed:
        run.work.mark_changed(step.target)


def rows_to_emit(run: BatchRun, step: Step) -> pa.Table | None:
    """The rows that a statement emits for a batch: each changed group, a distinct value when it is new, and a window
    for a sink when it is closed. None: nothing."""
    plan = step.aggregate
    assert plan is not None
    folded = fold(run, step)
    groups = folded.groups.filter(folded.is_new) if plan.first_only else folded.groups
    if plan.window is not None and step.kind is StepKind.SINK:
        return _closed_rows(run, step)
    _remove(run, step, folded.replaced)
    rows = emitted(run.work, plan, groups) if groups.num_rows else None
    close(run, step)
    return rows


def emit_groups(run: BatchRun, step: Step, rows: pa.Table | None) -> None:
    """Emit groups to the statement's sink."""
    if rows is not None and rows.num_rows:
        emit(run, step, Output(step.target, rows, run.mark(step)))


def emit_closed(run: BatchRun, step: Step) -> bool:
    """Close windows without a batch, after the watermark has advanced by the clock; returns whether there were any."""
    if step.kind is not StepKind.SINK or step.aggregate is None or step.aggregate.window is None:
        return close(run, step)
    rows = _closed_rows(run, step)
    emit_groups(run, step, rows)
    return rows is not None


def _closed_rows(run: BatchRun, step: Step) -> pa.Table | None:
    """The windows that the watermark has reached: they are emitted, and their state is removed."""
    plan, reached = step.aggregate, run.watermark.after
    assert plan is not None
    if reached is None:
        return None
    windows = ended(run.work.tx, plan, reached)
    if not windows.num_rows:
        return None
    rows = emitted(run.work, plan, windows)
    forget(run.work, plan, windows, reached)
    return rows


def close(run: BatchRun, step: Step) -> bool:
    """Remove the state of closed windows and of groups that have expired by 'state.ttl'. Expired groups are removed
    from the table too, and so are windows after their 'retention'. Returns whether there were any."""
    plan, reached = step.aggregate, run.watermark.after
    assert plan is not None
    if plan.expiry is not None:
        expired = state_ttl.drop_all_expired(run, plan)
        _remove(run, step, expired)
        return bool(expired.num_rows)
    if plan.window is None or reached is None:
        return False
    retention = late_rows.retention_us(run, step)
    until = late_rows.closed_until(run, step, reached) if retention is None else reached - retention
    windows = None if until is None else ended(run.work.tx, plan, until)
    if until is None or windows is None or not windows.num_rows:
        return False
    if retention is not None:
        _remove(run, step, windows)
    forget(run.work, plan, windows, until)
    return True


def _remove(run: BatchRun, step: Step, groups: pa.Table) -> None:
    """Remove dropped groups from the table that they were written to: by its key, if that consists of groups, or by all
    columns of a DISTINCT table. What was emitted to a sink stays."""
    plan = step.aggregate
    assert plan is not None
    if not groups.num_rows or step.kind is StepKind.SINK:
        return
    table = run.work.table(step.target)
    if plan.first_only and step.kind is StepKind.AGGREGATE and not table.schema.key:
        gone, _ = outputs(run.work, plan, groups, table.schema)
        changed = table.replace(_without(table.to_arrow(), gone))
    else:
        found = keys(run.work, plan, groups, step.columns, table.schema)
        changed = 0 if found is None else table.delete(keys=found)
    if changed:
        run.work.mark_changed(step.target)


def _without(rows: pa.Table, gone: pa.Table) -> pa.Table:
    found = positions_among(rows, rows.column_names, gone)
    return rows.filter(pc.invert(pc.is_in(pa.array(range(rows.num_rows), found.type), value_set=found)))
