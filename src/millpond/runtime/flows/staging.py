"""The sinks of a flow: seen to be there before it begins, then handed rows as they take them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from millpond.contracts.sink import Mark
from millpond.errors import MillpondError
from millpond.plan.model import FlowPlan
from millpond.runtime.context import Context
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


def stage_rows(work: Work, target: str, rows: Relation, mark: Mark) -> dict[str, Any] | None:
    """What the sink wants written into the commit record, if it does."""
    sink = work.context.sinks[target]
    if sink.takes_arrow or not isinstance(rows, pa.Table):
        return sink.stage(rows, mark)
    parts = sink.prepare(rows)
    return sink.stage(work.in_spark(parts[0]) if len(parts) == 1 else work.views.in_parts(parts), mark)
