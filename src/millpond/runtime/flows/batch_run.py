"""One batch of one flow on its way through the flow's statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millpond.plan.model import FlowPlan
from millpond.runtime.dead_letters import Letters
from millpond.runtime.flows.batch import Batch
from millpond.runtime.flows.watermark import NO_WATERMARK, Reached
from millpond.runtime.flows.work import Work


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
