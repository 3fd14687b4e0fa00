"""Backfill: a GROUP BY table recomputed from the beginning of its source, up to the last batch of its flow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pyarrow as pa

from millpond.app.edits import backfilled
from millpond.contracts.source import NativePast
from millpond.contracts.table import TableSpec
from millpond.engine.app_context import Context
from millpond.engine.batch import Batch, records_apart
from millpond.engine.batch_run import BatchRun
from millpond.engine.dead_letters import NAME as DEAD_LETTERS
from millpond.engine.dead_letters import SPEC as DEAD_LETTERS_SPEC
from millpond.engine.feeds.past_records import past_records
from millpond.engine.ledger import SOURCE, flow_entry
from millpond.engine.spark.evaluate import spark_fallback
from millpond.engine.spark.transfer import Views
from millpond.engine.statements import Statements
from millpond.engine.work import Work
from millpond.errors import Problem, Severity
from millpond.faults import reach
from millpond.plan.model import FlowPlan, Step, TablePlan
from millpond.registry import find
from millpond.tables.store import open_store


def has_past(context: Context, flow: FlowPlan, table: TablePlan) -> bool:
    """Whether a new table starts with the records that its flow has already read."""
    return backfilled(context.plan, table.name) is flow and flow_entry(context.store, flow.id).batch >= 0


def computed_again(
    context: Context, flow: FlowPlan, step: Step, specs: Sequence[TableSpec], nothing: pa.Table
) -> list[tuple[TableSpec, pa.Table]]:
    """The rows of the table and of its companions after all batches of the flow so far; `nothing` is a batch without
    records. Does not change the app's own tables."""
    with closing(open_store(None, fallback=spark_fallback(context.spark))) as store:
        for spec in (DEAD_LETTERS_SPEC, *specs):
            store.create(replace(spec, backend="memory", values={}))
        separate = replace(context, store=store)
        letters = separate.letters(flow.name, context.plan.source(flow.source))
        statements, views = Statements(flow, separate), Views(context.spark, context.exchange, "mp_backfill")
        for batch in _batches(context, flow, nothing):
            with store.begin() as tx:
                statements.run_steps(BatchRun(flow, batch, Work(separate, tx, views), letters), (step,))
                tx.commit()
            reach("backfill.read")
        _warn_of_rejected(context, step, len(store.table(DEAD_LETTERS)))
        reach("backfill.computed")
        return [(spec, store.table(spec.name).to_arrow()) for spec in specs]


def _batches(context: Context, flow: FlowPlan, nothing: pa.Table) -> Iterator[Batch]:
    """First an empty batch, which creates the row of an aggregate without GROUP BY; then all records that the flow has
    read. Bad records are skipped, because they are dead letters already."""
    yield Batch.of(-1, nothing, pa.table({}))
    source, entry = context.plan.source(flow.source), flow_entry(context.store, flow.id)
    folder, plugin = context.state.flow(flow.id) / SOURCE, find("source", source.type)
    if plugin.native_past is not None:
        parts = plugin.native_past(NativePast(source.spec, folder, context.spark, entry.offsets))
    else:
        parts = past_records(source.spec, plugin, folder, entry.batch + 1, context.in_spark)
    for number, records in enumerate(parts):
        yield records_apart(records, number)


def _warn_of_rejected(context: Context, step: Step, refused: int) -> None:
    if refused:
        message = f"{refused} rows were rejected while '{step.target}' was recomputed; it does not count them."
        hint = "They are not added to dead_letters, which contains those that were rejected before."
        context.notices.append(Problem("MP816", message, step.place, hint, Severity.WARNING))
