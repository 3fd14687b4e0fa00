"""One batch of one flow on its way through the flow's statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from millpond.plan.model import FlowPlan, Step
from millpond.runtime.dead_letters import Letters
from millpond.runtime.flows.batch import Batch
from millpond.runtime.flows.watermark import NO_WATERMARK, Reached
from millpond.runtime.flows.work import Work


class Taker(Protocol):
    """Takes what a statement makes of a batch, to apply it with that of others."""

    def take(self, run: BatchRun, step: Step) -> None:
        """Called at the statement's place."""


class Takers(Protocol):
    """The statements of a batch that change a table together."""

    def of(self, step: Step) -> Taker | None:
        """Who takes what a statement makes of the batch; None where it changes its table itself."""


@dataclass
class BatchRun:
    """What the statements of a batch share, and what the sinks must publish after the commit."""

    flow: FlowPlan
    batch: Batch
    work: Work
    letters: Letters
    watermark: Reached = NO_WATERMARK
    staged: list[dict[str, Any]] = field(default_factory=list)
    # The bytes of records as they came; None where nobody can tell.
    originals: Callable[[pa.Table], list[bytes | None]] | None = None
    # Statements that change a table together.
    groups: Takers | None = None
