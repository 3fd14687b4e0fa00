"""A GROUP BY table computed again from the beginning of its source, up to the last batch that its flow has done."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pyarrow as pa

from millpond.contracts.source import Past
from millpond.contracts.table import TableSpec
from millpond.errors import Problem, Severity
from millpond.faults import reach
from millpond.plan.model import FlowPlan, Step, TablePlan
from millpond.registry import find
from millpond.runtime.context import Context
from millpond.runtime.dead_letters import NAME as DEAD_LETTERS
from millpond.runtime.dead_letters import SPEC as DEAD_LETTERS_SPEC
from millpond.runtime.flows.agreement import SOURCE
from millpond.runtime.flows.batch import Batch, records_apart
from millpond.runtime.flows.batch_run import BatchRun
from millpond.runtime.flows.statements import Statements
from millpond.runtime.flows.work import Work
from millpond.runtime.keeping.editing import backfilled
from millpond.runtime.keeping.ledger import flow_entry
from millpond.runtime.spark.access import Views
from millpond.runtime.spark.evaluate import spark_fallback
from millpond.tables.store import open_store

# The folder for what a source writes meanwhile, among what is removed at each start.
FOLDER = "backfill"


def has_past(context: Context, flow: FlowPlan, table: TablePlan) -> bool:
    """Whether a new table begins with what its flow has read before."""
    return backfilled(context.plan, table.name) is flow and flow_entry(context.store, flow.id).batch >= 0


def computed_again(
    context: Context, flow: FlowPlan, step: Step, specs: Sequence[TableSpec], nothing: pa.Table
) -> list[tuple[TableSpec, pa.Table]]:
    """The rows of the table and of the tables beside it after all batches that the flow has done; `nothing` is a batch
    without records. Changes nothing in the app's own tables."""
    with closing(open_store(None, fallback=spark_fallback(context.spark))) as store:
        for spec in (DEAD_LETTERS_SPEC, *specs):
            store.create(replace(spec, backend="memory", values={}))
        aside = replace(context, store=store)
        letters = aside.letters(flow.name, context.plan.source(flow.source))
        statements, views = Statements(flow, aside), Views(context.spark, context.exchange, "mp_backfill")
        for batch in _batches(context, flow, nothing):
            with store.begin() as tx:
                statements.run_steps(BatchRun(flow, batch, Work(aside, tx, views), letters), (step,))
                tx.commit()
            reach("backfill.read")
        _tell_refused(context, step, len(store.table(DEAD_LETTERS)))
        reach("backfill.computed")
        return [(spec, store.table(spec.name).to_arrow()) for spec in specs]


def _batches(context: Context, flow: FlowPlan, nothing: pa.Table) -> Iterator[Batch]:
    """No records at first, which makes the row of an aggregate without groups; then all that the flow has read. Bad
    records are dead letters already."""
    yield Batch.of(-1, nothing, pa.table({}))
    source, own = context.plan.source(flow.source), context.state.exchange / FOLDER
    shutil.rmtree(own, ignore_errors=True)
    done = flow_entry(context.store, flow.id).batch + 1
    past = Past(source.spec, context.state.flow(flow.id) / SOURCE, own, done, context.spark)
    try:
        for number, records in enumerate(find("source", source.type).past(past)):
            yield records_apart(records, number)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _tell_refused(context: Context, step: Step, refused: int) -> None:
    if refused:
        message = f"{refused} rows were refused while '{step.target}' was computed again; it does not count them."
        hint = "They are not put into dead_letters, where those that were refused before are."
        context.notices.append(Problem("MP816", message, step.place, hint, Severity.WARNING))
