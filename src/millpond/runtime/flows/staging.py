"""Rows handed to a sink, as it takes them: on the driver where they are there and the sink can, else through Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millpond.contracts.sink import Mark
from millpond.runtime.flows.work import Work
from millpond.runtime.spark.access import Relation


def stage_rows(work: Work, target: str, rows: Relation, mark: Mark) -> dict[str, Any] | None:
    """What the sink wants written into the commit record, if it does."""
    sink = work.context.sinks[target]
    if sink.takes_arrow:
        return sink.stage(rows, mark)
    return sink.stage(work.in_spark(sink.prepare(rows) if isinstance(rows, pa.Table) else rows), mark)
