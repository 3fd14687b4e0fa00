"""A source or sink that goes away while a flow runs: the flow goes on from its last finished batch when it is back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import repeat

from millpond.contracts.source import SourceStatus
from millpond.errors import MillpondError
from millpond.plan.model import SourcePlan
from millpond.registry import find
from millpond.runtime.figures.progress import RETRYING
from millpond.runtime.spark.errors import translate
from millpond.runtime.spark.process import is_ending, java_gone

# What is not there, or cannot be reached, may be in a moment; anything else would fail again.
MISSING, UNREACHABLE = "MP501", ("MP506", "MP602")
# A disk that is full: somebody may make room.
FULL = "MP805"
# Between two tries where the source has no options for it.
DELAY_S = 2.0
# How long a flow that only catches up waits for what has gone away; one that goes on waits without end.
CATCH_UP_S = 300.0


class Interruption:
    """Of one flow. `begins` is called by whoever notices; `is_on`, `is_due`, `left_s` and `shown` by any thread."""

    def __init__(self, source: SourcePlan, clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._clock = source, clock
        self._plugin = find("source", source.type)
        patience = self._plugin.patience
        self._limit_s = patience(source.spec).limit_s if patience is not None else 0.0
        self._delays = self._fresh()
        self._since: float | None = None
        self._due = 0.0
        self.is_on = False
        # A poll has failed since the last one that went through.
        self._polling = False
        self.retries = 0
        self.error: MillpondError | None = None

    def _fresh(self) -> Iterator[float]:
        patience = self._plugin.patience
        return patience(self._source.spec).delays_s if patience is not None else repeat(DELAY_S)

    def told(self, error: BaseException) -> MillpondError:
        """What a failure means: the source may know it better than Spark tells it, unless Java is what has failed."""
        if is_ending():
            return java_gone()
        known = self._plugin.failure(self._source.spec, error) if self._plugin.failure is not None else None
        return known if known is not None else translate(error)

    def begins(self, error: MillpondError, *, catching_up: bool) -> bool:
        """Whether to try again later, rather than fail now."""
        now = self._clock()
        since = now if self._since is None else self._since
        if error.code == MISSING:
            limit_s = self._limit_s
        elif error.code in UNREACHABLE:
            limit_s = max(self._limit_s, CATCH_UP_S) if catching_up else float("inf")
        elif error.code == FULL:
            limit_s = 0.0 if catching_up else float("inf")
        else:
            return False
        if now - since >= limit_s:
            return False
        self._since, self._due = since, now + next(self._delays)
        self.is_on, self.error = True, error
        self.retries += 1
        return True

    def notes(self, error: MillpondError) -> bool:
        """Whether a poll that failed may be tried again: the disk is full, and the query goes on with what it has."""
        if error.code != FULL:
            return False
        self._polling = True
        self._since = self._clock() if self._since is None else self._since
        self.error = error
        self.retries += 1
        return True

    def polled(self) -> None:
        """A poll went through."""
        if self._polling and not self.is_on:
            self.is_over()
        self._polling = False

    @property
    def left_s(self) -> float:
        """How long until the next try."""
        return max(0.0, self._due - self._clock())

    def tries(self) -> None:
        """The flow is started again; what comes of it is not known yet."""
        self.is_on = False

    def is_over(self) -> None:
        """A batch went through."""
        if self._since is not None:
            self._since, self._delays, self.error = None, self._fresh(), None

    def shown(self, status: SourceStatus) -> SourceStatus:
        """A source's status with what is known here."""
        status = replace(status, retries=status.retries + self.retries)
        if self.error is None or self.error.code not in (MISSING, "MP506"):
            return status
        health = "not_found" if self.error.code == MISSING else "disconnected"
        return replace(status, state=RETRYING, health=health, detail=self.error.problems[0].message)
