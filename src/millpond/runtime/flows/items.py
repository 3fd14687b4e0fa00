"""What a statement makes of the events of a batch, before it meets the rows of its table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from sqlglot import exp

from millpond.plan.change_model import Action
from millpond.plan.model import Step, StepKind
from millpond.plan.stream_order import ASCENDING, ORDER
from millpond.relational.codes import pairs
from millpond.runtime.flows.batch_run import BatchRun
from millpond.runtime.flows.fitting import fitted
from millpond.runtime.flows.rejecting import misfits, reject, without


def items_of(run: BatchRun, step: Step, action: Action) -> pa.Table:
    """The items of an action, in stream order, their columns in the types of the table. What does not fit goes to the
    dead letters, or meets no row where it says which row it is for."""
    schema = run.work.table(step.target).schema
    columns = [schema[name] for name in action.columns]
    query = run.work.ordered(action.items)
    assert query is not None, "a statement of a group has the order of its events"
    found = run.work.result(query, run.batch.relation)
    rows = fitted(run.work, found, columns, (*action.extra, *ORDER)).sort_by(ASCENDING)
    if step.kind in (StepKind.UPDATE, StepKind.DELETE):
        bad = misfits(rows, columns)
        rows = rows.filter(pa.array([n not in bad for n in range(rows.num_rows)], pa.bool_())) if bad else rows
    elif action.always:
        rows = reject(run, rows, columns, schema)
    else:
        rows = without(run, rows, misfits(rows, columns))
    types = pa.schema([(c.name, c.type) for c in columns])
    given = rows.select(types.names).cast(types)
    for name in (*action.extra, *ORDER):
        given = given.append_column(name, rows[name])
    return given.combine_chunks()


def events_of(run: BatchRun, places: exp.Query | None) -> pa.Table:
    """The events that matter to a statement: those whose places a query yields, or all."""
    events = run.batch.to_arrow()
    if places is None:
        return events
    wanted = run.work.rows(places, run.batch.relation).rename_columns(list(ORDER))
    met, _ = pairs([events[name] for name in ORDER], [wanted[name] for name in ORDER])
    return events.take(pa.array(np.unique(met)))
