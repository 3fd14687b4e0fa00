"""Counts that Spark makes along the way, read without waiting: a plan that was never run must not hold a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Observation


def counted(observation: Observation, *names: str) -> tuple[int, ...]:
    """What an observation has seen by now, zeros when it has seen nothing."""
    inner = observation._jo
    found = inner.getOrEmpty() if inner is not None else None
    if found is None or found.isEmpty():
        return (0,) * len(names)
    return tuple(int(found.apply(name)) for name in names)
