"""Times of work that a machine shared with others does not spoil: the best of some runs, or the median of many."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any


def seconds(work: Callable[[], Any], repeat: int = 1) -> float:
    """The best time of a few runs."""
    best = float("inf")
    for _ in range(repeat):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


def each_s(work: Callable[[Any], Any], given: Sequence[Any]) -> float:
    """The median time of a call, each with another argument: one that had to wait for the processor does not count."""
    times = []
    for one in given:
        started = time.perf_counter()
        work(one)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def jobs_so_far(spark: Any) -> int:
    """The number of Spark jobs that a session has started."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())
