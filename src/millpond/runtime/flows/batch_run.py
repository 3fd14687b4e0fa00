"""One batch of one flow on its way through the flow's statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from millpond.contracts.sink import Mark
from millpond.plan.model import FlowPlan, Step
from millpond.runtime.dead_letters import Letters
from millpond.runtime.flows.batch import Batch
from millpond.runtime.flows.watermark import NO_WATERMARK, Reached
from millpond.runtime.flows.work import Work
from millpond.runtime.spark.access import Relation


@dataclass(frozen=True)
class Output:
    """What a statement has for its sink. `ordered`: the stream order is in the last two columns; `several`: an event
    may have given more than one of the rows; `arrived`: the batches of events that have waited, by their place."""

    target: str
    rows: Relation
    mark: Mark
    ordered: bool = False
    several: bool = False
    arrived: Mapping[tuple[int, int], int] = field(default_factory=dict)


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
    # What the statement that runs has for its sink; staged once, when it is through.
    outputs: list[Output] = field(default_factory=list)
    # In which batches those of its events arrived that have waited since.
    arrived: Mapping[tuple[int, int], int] = field(default_factory=dict)
    # For a commit that is no batch of its flow: what distinguishes its outputs, see Mark.
    part: str = ""

    def mark(self, step: Step) -> Mark:
        """The mark of what a statement makes of the batch."""
        return Mark(self.flow.id, self.batch.id, step.index, self.part)
