"""Availability of sources and sinks: retries one that is missing at the start, or unreachable while a flow runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import repeat
from typing import TypeVar

from millpond.contracts.source import SourceStatus
from millpond.engine.progress import FAILED, MISSING, READY, RETRYING, WAITING
from millpond.engine.spark.process import is_ending, java_gone
from millpond.engine.spark.spark_errors import translate
from millpond.errors import MillpondError, SourceError
from millpond.plan.model import SourcePlan
from millpond.registry import find

# Errors that may disappear by themselves; an invalid login or configuration does not.
WORTH_RETRYING = ("MP501", "MP506")

Opened = TypeVar("Opened")


def health_of(code: str) -> str:
    """How a source is that failed with this code."""
    return "disconnected" if code == "MP506" else "not_found"


class SourceOpening:
    """One source of one flow or table. States: missing -> retrying -> ready | failed; `status` is for any thread."""

    def __init__(self, source: SourcePlan, clock: Callable[[], float] = time.monotonic) -> None:
        self.state = MISSING
        self._clock = clock
        patience = find("source", source.type).patience
        self._patience = patience(source.spec) if patience is not None else None
        self._until: float | None = None
        self._due = 0.0
        self._retries = 0
        # Why it is not open; read by any thread.
        self.error: SourceError | None = None

    @property
    def is_pending(self) -> bool:
        """Whether the source is still being retried."""
        return self.state == RETRYING

    def attempt(self, open_: Callable[[], Opened]) -> Opened | None:
        """Open the source if a retry is due; None while it is still retried. Raises the last error after the time
        limit."""
        now = self._clock()
        if self.state == RETRYING and now < self._due:
            return None
        try:
            opened = open_()
        except SourceError as error:
            if not self._is_patient(error, now):
                self.state, self.error = FAILED, error
                raise
            self.state, self.error = RETRYING, error
            self._retries += 1
            return None
        except Exception:
            self.state = FAILED
            raise
        self.state, self.error = READY, None
        return opened

    def _is_patient(self, error: SourceError, now: float) -> bool:
        """Whether to retry later; sets the time of the next retry, at the latest the end of the time limit."""
        if self._patience is None or error.code not in WORTH_RETRYING:
            return False
        if self._until is None:
            self._until = now + self._patience.limit_s
        if now >= self._until:
            return False
        self._due = min(now + next(self._patience.delays_s), self._until)
        return True

    def status(self) -> SourceStatus:
        """The status of the source while it is not open; before the first attempt it is waiting."""
        if self.state == MISSING:
            return SourceStatus(WAITING)
        health = health_of(self.error.code if self.error is not None else "")
        detail = self.error.problems[0].message if self.error is not None else ""
        return SourceStatus(self.state, health, retries=self._retries, detail=detail)

    @property
    def retries(self) -> int:
        """The number of failed attempts."""
        return self._retries


# Errors of a missing or unreachable source or sink, which are retried; others would fail again.
UNAVAILABLE, UNREACHABLE = "MP501", ("MP506", "MP602")
# A full disk, which is retried, because space may be freed.
FULL = "MP805"
# The storage that a cluster shares is away.
STORAGE_AWAY = "MP817"
# The interval of retries if the source has no options for it.
DELAY_S = 2.0
# How long a flow that catches up waits for an unreachable source; a running one waits without limit.
CATCH_UP_S = 300.0


class Interruption:
    """An interruption of one flow. `begins` is called by the thread that detects it; `is_on`, `is_due`, `left_s` and
    `shown` by any thread."""

    def __init__(
        self,
        source: SourcePlan,
        clock: Callable[[], float] = time.monotonic,
        storage_failure: Callable[[], MillpondError | None] = lambda: None,
    ) -> None:
        self._source, self._clock, self._storage_failure = source, clock, storage_failure
        self._plugin = find("source", source.type)
        patience = self._plugin.patience
        self._limit_s = patience(source.spec).limit_s if patience is not None else 0.0
        self._delays = self._fresh()
        self._since: float | None = None
        self._due = 0.0
        self.is_on = False
        # Whether the last poll failed.
        self._polling = False
        self.retries = 0
        self.error: MillpondError | None = None

    def _fresh(self) -> Iterator[float]:
        patience = self._plugin.patience
        return patience(self._source.spec).delays_s if patience is not None else repeat(DELAY_S)

    def meaning(self, error: BaseException) -> MillpondError:
        """The coded error of a failure: as the source translates it, else as for any error of Spark; or that Java has
        ended, or that the storage is away, which fails in many ways."""
        if is_ending():
            return java_gone()
        away = self._storage_failure()
        if away is not None:
            return away
        known = self._plugin.failure(self._source.spec, error) if self._plugin.failure is not None else None
        return known if known is not None else translate(error)

    def begins(self, error: MillpondError, *, catching_up: bool) -> bool:
        """Whether to try again later, rather than fail now."""
        now = self._clock()
        since = now if self._since is None else self._since
        if error.code == UNAVAILABLE:
            limit_s = self._limit_s
        elif error.code in UNREACHABLE or error.code == STORAGE_AWAY:
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
        """Whether a failed poll is retried: the disk is full or the storage is away, and the query continues with the
        records that it has."""
        error = self._storage_failure() or error
        if error.code not in (FULL, STORAGE_AWAY):
            return False
        self._polling = True
        self._since = self._clock() if self._since is None else self._since
        self.error = error
        self.retries += 1
        return True

    def polled(self) -> None:
        """Called after a successful poll."""
        if self._polling and not self.is_on:
            self.is_over()
        self._polling = False

    @property
    def left_s(self) -> float:
        """The time until the next retry."""
        return max(0.0, self._due - self._clock())

    def tries(self) -> None:
        """Called when the flow is started again; the interruption ends only after a batch."""
        self.is_on = False

    def is_over(self) -> None:
        """Called after a batch: the interruption has ended."""
        if self._since is not None:
            self._since, self._delays, self.error = None, self._fresh(), None

    def shown(self, status: SourceStatus) -> SourceStatus:
        """A source's status, completed by the interruption."""
        status = replace(status, retries=status.retries + self.retries)
        if self.error is None or self.error.code not in (UNAVAILABLE, "MP506"):
            return status
        health = "not_found" if self.error.code == UNAVAILABLE else "disconnected"
        return replace(status, state=RETRYING, health=health, detail=self.error.problems[0].message)
