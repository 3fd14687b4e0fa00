"""Emits rows to sinks: gives each a mark that is the same in a replay, and stages them once per statement and batch."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel
from sqlglot import exp

from millpond.contracts.sink import BATCH, ROW
from millpond.contracts.stored_json import JsonObject
from millpond.engine.app_context import Context
from millpond.engine.batch_run import BatchRun, Output
from millpond.engine.spark.transfer import Dataset
from millpond.engine.work import Work
from millpond.errors import MillpondError
from millpond.plan.from_clause import EXPLODING, INLINING
from millpond.plan.function_names import function_name
from millpond.plan.model import FlowPlan, Step
from millpond.plan.statement_groups import ORDER
from millpond.rendering import json_lines

MULTIPLYING = (*EXPLODING, *INLINING, "stack", "json_tuple")
Place = tuple[int, int]


def multiplies(query: exp.Query) -> bool:
    """Whether one event may result in several rows."""
    if query.find(exp.Join, exp.Lateral, exp.SetOperation) is not None:
        return True
    return any(function_name(call) in MULTIPLYING for call in query.find_all(exp.Func))


def marked_rows(rows: pa.Table, *, ordered: bool) -> pa.Table:
    """Rows with their marks; `ordered`: the stream order is in the last two columns, which are removed."""
    own = rows.select(range(rows.num_columns - len(ORDER))) if ordered else rows
    # The position in the stream is the same in every replay; rows without one are identified by a hash of their
    # content.
    names = pc.binary_join_element_wise(*_order_texts(rows), ".") if ordered else pa.array(_contents(own), pa.string())
    return own.append_column(ROW, _numbered(names, own))


def with_batches(marked: pa.Table, rows: pa.Table, batch: int, arrived: Mapping[Place, int]) -> pa.Table:
    """The rows with the batch of each: for an event that has waited, the batch in which it arrived."""
    places = zip(*(rows.column(i - len(ORDER)).to_pylist() for i in range(len(ORDER))), strict=True)
    return marked.append_column(BATCH, pa.array([str(arrived.get(place, batch)) for place in places], pa.string()))


def marked_frame(rows: DataFrame, *, several: bool) -> DataFrame:
    """The same for ordered rows that stay in Spark; `several`: an event may have several rows."""
    own = rows.columns[: -len(ORDER)]
    place = [F.col(_quoted(name)) for name in ORDER]
    name: Column = F.concat_ws(".", *(column.cast("string") for column in place))
    if several:
        content = F.to_json(F.struct(*(F.col(_quoted(column)) for column in own)))
        number = F.row_number().over(Window.partitionBy(*place).orderBy(content)) - 1
        name = F.when(number == 0, name).otherwise(F.concat_ws(".", name, number.cast("string")))
    return rows.select(*(F.col(_quoted(column)) for column in own), name.alias(ROW))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _order_texts(rows: pa.Table) -> list[pa.ChunkedArray]:
    return [rows.column(rows.num_columns - len(ORDER) + i).cast(pa.string()) for i in range(len(ORDER))]


def _contents(rows: pa.Table) -> Iterator[str]:
    for text in json_lines(rows):
        yield hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _numbered(names: pa.Array | pa.ChunkedArray, rows: pa.Table) -> pa.Array:
    """Number the rows that share a name, in an order that depends only on their content, so that a replay agrees."""
    whole = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
    codes = whole.dictionary_encode().indices.to_numpy()
    repeated = np.flatnonzero(np.bincount(codes)[codes] > 1) if len(codes) else codes
    if not len(repeated):
        return whole
    found, texts, seen = whole.to_pylist(), list(json_lines(rows.take(pa.array(repeated)))), Counter[int]()
    for i in sorted(range(len(repeated)), key=texts.__getitem__):
        row = repeated[i]
        if number := seen[codes[row]]:
            found[row] += f".{number}"
        seen[codes[row]] += 1
    return pa.array(found, pa.string())


def require_sinks(context: Context, flow: FlowPlan, written: Iterable[str]) -> None:
    """Raise if a sink of a flow, or of the CHANGES of its tables, cannot be written."""
    changes = [c.step for c in context.plan.changes if c.table.lower() in set(written)]
    for step in (*flow.steps, *changes):
        sink = context.sinks.get(step.target)
        try:
            if sink is not None:
                sink.require(context.spark)
        except MillpondError as error:
            error.at(step.place)
            raise


def emit_query(run: BatchRun, step: Step) -> None:
    """Emit the rows of a statement's query to its sink."""
    marks_rows = run.work.context.sinks[step.target].marks_rows
    ordered = run.work.ordered(step.query) if marks_rows else None
    rows = run.work.result(ordered or step.query, run.batch.relation)
    several = run.work.cache.once("multiplies", step.query, lambda: multiplies(step.query))
    emit(run, step, Output(step.target, rows, run.mark(step), ordered is not None, several, run.arrived))


def emit(run: BatchRun, step: Step, output: Output) -> None:
    """Add rows for a statement's sink, which are staged when the statement has finished. With 'on.error' =
    'dead-letter' they are computed here, so that a failing row is found before the sink sends anything: sent rows
    cannot be undone."""
    rows = output.rows
    if isinstance(rows, DataFrame) and step.options.get("on.error") == "dead-letter":
        output = replace(output, rows=rows.toArrow() if run.batch.local is not None else _computed(rows))
    run.outputs.append(output)


def _computed(rows: DataFrame) -> DataFrame:
    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
    kept.count()
    return kept


def drop_outputs(run: BatchRun, kept: int = 0) -> None:
    """Drop outputs after the first `kept` ones."""
    for output in run.outputs[kept:]:
        if isinstance(output.rows, DataFrame) and output.rows.is_cached:
            output.rows.unpersist(blocking=False)
    del run.outputs[kept:]


def stage_outputs(run: BatchRun) -> None:
    """Stage the outputs of a finished statement."""
    for output in run.outputs:
        staged = stage(run.work, output)
        if staged is not None:
            run.staged.append({"sink": output.target, "staged": staged})
    drop_outputs(run)


def stage(work: Work, output: Output) -> JsonObject | None:
    """Stage an output; returns what the sink needs in the commit record, or None."""
    sink = work.context.sinks[output.target]
    rows = _marked(output) if sink.marks_rows else output.rows
    if isinstance(rows, pa.Table):
        rows = sink.prepare(rows)
        rows = rows if sink.takes_arrow(rows) else work.in_spark(rows)
    return sink.stage(rows, output.mark)


def _marked(output: Output) -> Dataset:
    """Rows with their marks. Ordered rows can be marked in Spark; others are fetched to the driver, which keeps their
    order."""
    rows = output.rows
    if isinstance(rows, DataFrame):
        if output.ordered and not output.arrived:
            return marked_frame(rows, several=output.several)
        rows = rows.toArrow()
    marked = marked_rows(rows, ordered=output.ordered)
    if output.arrived and output.ordered:
        marked = with_batches(marked, rows, output.mark.batch, output.arrived)
    return marked
