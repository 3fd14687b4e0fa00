"""Counts that Spark makes along the way, waited for a moment only: a plan that was never run must not hold a flow."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Observation

# Spark tells its counts a moment after the job has ended.
WAIT_S, CHECK_S = 2.0, 0.005


def counted(observation: Observation, *names: str) -> tuple[int, ...]:
    """What an observation has seen, zeros when that is not known in time."""
    deadline = time.monotonic() + WAIT_S
    while observation._jo is not None and not observation._jo.future().isCompleted():
        if time.monotonic() > deadline:
            return (0,) * len(names)
        time.sleep(CHECK_S)
    return tuple(int(observation.get[name]) for name in names) if observation._jo is not None else (0,) * len(names)
