"""The run of one batch through a flow's statements: what they share, and their outputs for sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from millpond.contracts.evaluator import Engine
from millpond.contracts.sink import Mark
from millpond.engine.batch import Batch
from millpond.engine.dead_letters import Letters
from millpond.engine.spark.transfer import Dataset
from millpond.engine.watermark import NO_WATERMARK, Reached
from millpond.engine.work import Work
from millpond.plan.model import FlowPlan, Step


@dataclass(frozen=True)
class Output:
    """The rows of a statement for its sink. `ordered`: the stream order is in the last two columns; `several`: an event
    may have several rows; `arrived`: the batches in which waiting events arrived, by their position."""

    target: str
    rows: Dataset
    mark: Mark
    ordered: bool = False
    several: bool = False
    arrived: Mapping[tuple[int, int], int] = field(default_factory=dict)


@dataclass(frozen=True)
class Timed:
    """A finished statement, by its index: its engine and its duration."""

    index: int
    engine: Engine
    seconds: float


class ChangeCollector(Protocol):
    """Collects the changes of a statement, to apply them together with those of others."""

    def take(self, run: BatchRun, step: Step) -> None:
        """Called at the statement's position in the flow."""


class ChangeCollectors(Protocol):
    """The groups of statements of a batch that change a table together."""

    def of(self, step: Step) -> ChangeCollector | None:
        """The collector of a statement's changes; None if it changes its table directly."""


@dataclass
class BatchRun:
    """The state that the statements of a batch share, and what the sinks publish after the commit."""

    flow: FlowPlan
    batch: Batch
    work: Work
    letters: Letters
    watermark: Reached = NO_WATERMARK
    staged: list[dict[str, Any]] = field(default_factory=list)
    # Returns the original bytes of records; None if they are not available.
    originals: Callable[[pa.Table], list[bytes | None]] | None = None
    # Groups of statements that change a table together.
    groups: ChangeCollectors | None = None
    # Outputs of the current statement; staged once, when it has finished.
    outputs: list[Output] = field(default_factory=list)
    # The batches in which its waiting events arrived.
    arrived: Mapping[tuple[int, int], int] = field(default_factory=dict)
    # Distinguishes the outputs of a commit that is not a batch of the flow, see Mark.
    part: str = ""
    # The records of the batch, if `batch` has the rows of window functions over them.
    records: Batch | None = None
    # The finished statements.
    timed: list[Timed] = field(default_factory=list)
    # For each statement, by its index, the events whose time is before the history of a table.
    outside: dict[int, int] = field(default_factory=dict)

    def mark(self, step: Step) -> Mark:
        """The mark of a statement's output for this batch."""
        return Mark(self.flow.id, self.batch.id, step.index, self.part)
