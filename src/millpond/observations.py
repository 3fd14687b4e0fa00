"""What Spark counted while a job ran: read when it is known, which is a moment after the job has ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Observation

WAIT_S, CHECK_S = 2.0, 0.005


def observed(observation: Observation) -> dict[str, int] | None:
    """The counts by name; None where they are not known in time, or where the job that counted has failed."""
    job, deadline = observation._jo, time.monotonic() + WAIT_S
    if job is None:
        return None
    while not job.future().isCompleted():
        if time.monotonic() > deadline:
            return None
        time.sleep(CHECK_S)
    try:
        return {name: int(count) for name, count in observation.get.items()}
    except Exception:
        # Spark raises what made the job fail, which the caller that ran the job reports.
        return None


def counted(observation: Observation, *names: str) -> tuple[int, ...]:
    """Some of the counts; zeros where they are not known."""
    found = observed(observation)
    return tuple(0 if found is None else found[name] for name in names)
