"""Events that Spark itself drops from a join of streams, behind its watermark: told, as nothing vanishes unsaid.

Late events are refused before they are handed over, by the times that both streams have reached then. Spark may reach a
later time before it takes such an event in: it lists what was handed over one stream after the other.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from millpond.errors import Problem, Severity
from millpond.plan.model import FlowPlan
from millpond.runtime.flows.late import LATE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark remembers its last hundred batches, so nothing is missed by looking so seldom.
LOOK_S = 1.0


class Dropped:
    """Of one join. `look` is called by the poller, again and again."""

    def __init__(self, flow: FlowPlan) -> None:
        self.spark: SparkSession | None = None
        self._flow = flow
        self._seen: dict[str, int] = {}
        self._next = 0.0

    def look(self) -> list[Problem]:
        """A warning for the events that were dropped since the last look."""
        if self.spark is None or time.monotonic() < self._next:
            return []
        self._next = time.monotonic() + LOOK_S
        queries = [q for q in self.spark.streams.active if q.name == f"millpond {self._flow.id}"]
        count = sum(_rows(batch) for q in queries for batch in self._new_batches(q))
        if not count:
            return []
        message = f"The join '{self._flow.name}' dropped {count} event{'s' * (count > 1)} behind its watermark."
        hint = "They came while the other stream ran ahead: give the watermarks of both streams more time."
        return [Problem(LATE, message, self._flow.steps[0].place, hint, Severity.WARNING)]

    def _new_batches(self, query: Any) -> list[dict[str, Any]]:
        """What Spark tells of the batches since the last look, as JSON: its Python form asks the JVM field by field."""
        found: list[dict[str, Any]] = []
        recent, run = query._jsq.recentProgress(), str(query.runId)
        for progress in reversed(list(recent)):
            if progress.batchId() <= self._seen.get(run, -1):
                break
            found.append(json.loads(progress.json()))
        self._seen = {run: max([self._seen.get(run, -1), *(batch["batchId"] for batch in found)])}
        return found


def _rows(batch: dict[str, Any]) -> int:
    return sum(int(operator.get("numRowsDroppedByWatermark", 0)) for operator in batch.get("stateOperators", ()))
