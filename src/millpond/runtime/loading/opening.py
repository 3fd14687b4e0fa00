"""Opening a source that may not be there yet: looked for again as its options say, holding up nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from millpond.contracts.source import SourceStatus
from millpond.errors import SourceError
from millpond.plan.model import SourcePlan
from millpond.registry import find
from millpond.runtime.figures.progress import FAILED, MISSING, READY, RETRYING, WAITING

# What may be otherwise in a moment; a wrong login or configuration will not.
WORTH_RETRYING = ("MP501", "MP506")

Opened = TypeVar("Opened")


class Opening:
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
        """Whether the source is still looked for."""
        return self.state == RETRYING

    def attempt(self, open_: Callable[[], Opened]) -> Opened | None:
        """Look for the source, if it is time; None while it may still come. Raises what was wrong the last time."""
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
        """Whether to look again later, and then when: at the latest when the time is over."""
        if self._patience is None or error.code not in WORTH_RETRYING:
            return False
        if self._until is None:
            self._until = now + self._patience.limit_s
        if now >= self._until:
            return False
        self._due = min(now + next(self._patience.delays_s), self._until)
        return True

    def status(self) -> SourceStatus:
        """How the source stands while it is not open; before the first look nothing is known to be wrong with it."""
        if self.state == MISSING:
            return SourceStatus(WAITING)
        code = self.error.code if self.error is not None else ""
        health = "disconnected" if code == "MP506" else "not_found"
        detail = self.error.problems[0].message if self.error is not None else ""
        return SourceStatus(self.state, health, retries=self._retries, detail=detail)

    @property
    def retries(self) -> int:
        """How often it was looked for in vain."""
        return self._retries
