"""The sinks of a flow: required before it begins, then given the rows of each statement, once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel

from millpond.errors import MillpondError
from millpond.plan.model import FlowPlan, Step
from millpond.runtime.context import Context
from millpond.runtime.flows.batch_run import BatchRun, Output
from millpond.runtime.flows.row_marks import marked_frame, marked_rows, multiplies, with_batches
from millpond.runtime.flows.work import Work
from millpond.runtime.spark.access import Relation


def require_sinks(context: Context, flow: FlowPlan, written: Iterable[str]) -> None:
    """Raises what keeps a sink of a flow from being written, or one that is told the changes of its tables."""
    told = [c.step for c in context.plan.changes if c.table.lower() in set(written)]
    for step in (*flow.steps, *told):
        sink = context.sinks.get(step.target)
        try:
            if sink is not None:
                sink.require(context.spark)
        except MillpondError as error:
            error.at(step.place)
            raise


def emit_query(run: BatchRun, step: Step) -> None:
    """The rows of a statement's query for its sink."""
    marks_rows = run.work.context.sinks[step.target].marks_rows
    ordered = run.work.ordered(step.query) if marks_rows else None
    rows = run.work.result(ordered or step.query, run.batch.relation)
    several = run.work.memory.once("multiplies", step.query, lambda: multiplies(step.query))
    emit(run, step, Output(step.target, rows, run.mark(step), ordered is not None, several, run.arrived))


def emit(run: BatchRun, step: Step, output: Output) -> None:
    """Rows for a statement's sink, which gets them when the statement is through. Where a row may be blamed for a
    failure, they are computed here: a sink that has begun to send cannot take anything back."""
    rows = output.rows
    if isinstance(rows, DataFrame) and step.options.get("on.error") == "dead-letter":
        output = replace(output, rows=rows.toArrow() if run.batch.local is not None else _computed(rows))
    run.outputs.append(output)


def _computed(rows: DataFrame) -> DataFrame:
    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
    kept.count()
    return kept


def drop_outputs(run: BatchRun, kept: int = 0) -> None:
    """Forget outputs beyond the first ones."""
    for output in run.outputs[kept:]:
        if isinstance(output.rows, DataFrame) and output.rows.is_cached:
            output.rows.unpersist(blocking=False)
    del run.outputs[kept:]


def stage_outputs(run: BatchRun) -> None:
    """Hand the outputs of a statement that is through to its sink."""
    for output in run.outputs:
        staged = stage(run.work, output)
        if staged is not None:
            run.staged.append({"sink": output.target, "staged": staged})
    drop_outputs(run)


def stage(work: Work, output: Output) -> dict[str, Any] | None:
    """What the sink wants written into the commit record, if it does."""
    sink = work.context.sinks[output.target]
    rows = _marked(output) if sink.marks_rows else output.rows
    if not sink.takes_arrow and isinstance(rows, pa.Table):
        rows = work.in_spark(sink.prepare(rows))
    return sink.stage(rows, output.mark)


def _marked(output: Output) -> Relation:
    """Rows with their marks. Large ones of which each names its event stay in Spark; others come to the driver, which
    keeps their order."""
    rows = output.rows
    if isinstance(rows, DataFrame):
        if output.ordered and not output.arrived:
            return marked_frame(rows, several=output.several)
        rows = rows.toArrow()
    marked = marked_rows(rows, ordered=output.ordered)
    if output.arrived and output.ordered:
        marked = with_batches(marked, rows, output.mark.batch, output.arrived)
    return marked
