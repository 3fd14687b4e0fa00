"""A large batch that its flow reads only once: not kept in Spark's cache, its records counted while they pass."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f
from sqlglot import exp

from millpond.contracts.source import BAD
from millpond.plan.model import BATCH, FlowPlan, StepKind

# Statements that read a batch exactly once, where their query does.
ONE_PASS = (StepKind.SINK, StepKind.INSERT, StepKind.APPEND, StepKind.UPSERT, StepKind.LATEST)
# Spark tells its counts a moment after the job has ended.
COUNT_WAIT_S, COUNT_CHECK_S = 2.0, 0.005


def reads_once(flow: FlowPlan) -> bool:
    """Whether a flow's one statement reads the batch once and whole: to keep it would cost more than it saves."""
    if len(flow.steps) != 1 or flow.watermark is not None or flow.join is not None:
        return False
    if any(not group.by_key for group in flow.groups):
        return False
    step = flow.steps[0]
    if step.kind not in ONE_PASS or step.aggregate or step.condition or step.message_key or step.waiting:
        return False
    if step.options.get("on.error") == "dead-letter" or step.options.get("on.bad.record") == "fail":
        return False
    mentions = sum(1 for table in step.query.find_all(exp.Table) if table.name == BATCH)
    return mentions == 1 and step.query.find(exp.Limit) is None


@dataclass(frozen=True)
class Passing:
    """Records, those that are watched while a statement reads them, and what was seen of these."""

    records: DataFrame
    watched: DataFrame
    seen: Observation

    @classmethod
    def of(cls, records: DataFrame) -> Passing:
        seen = Observation()
        counts = [f.count(f.lit(1)).alias("rows"), f.count(BAD).alias("bad")]
        return cls(records, records.observe(seen, *counts), seen)

    def told(self, guess: int) -> tuple[int, pa.Table]:
        """How many good records there were, and the bad ones: these are read again, if there were any at all."""
        known = self._counts()
        if known is not None and not known["bad"]:
            return int(known["rows"]), pa.table({})
        bad = self.records.where(f"`{BAD}` IS NOT NULL").toArrow()
        return (guess if known is None else int(known["rows"]) - bad.num_rows), bad

    def _counts(self) -> dict[str, int] | None:
        """What Spark has counted; None where that is not known for certain."""
        deadline = time.monotonic() + COUNT_WAIT_S
        job = self.seen._jo
        while job is not None and not job.future().isCompleted() and time.monotonic() < deadline:
            time.sleep(COUNT_CHECK_S)
        try:
            return dict(self.seen.get) if job is not None and job.future().isCompleted() else None
        except Exception:
            # The job that counted has failed, and its statement was run again in another way.
            return None
