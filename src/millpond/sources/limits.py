"""Limits on loading a table: 'bulk.max.rows' and 'bulk.timeout'."""

from __future__ import annotations

import time
from collections.abc import Callable

from millpond.contracts.source import SourceSpec
from millpond.errors import SourceError
from millpond.options import DURATION, INTEGER, Option

OPTIONS = (
    Option("bulk.max.rows", INTEGER, None, "The most rows that loading a table may take."),
    Option("bulk.timeout", DURATION, None, "The longest that loading a table may take."),
)


class BulkLimits:
    """Counts one load; MP509 when it goes beyond what the options allow, and then nothing of it is published."""

    def __init__(self, spec: SourceSpec, clock: Callable[[], float] = time.monotonic) -> None:
        self._spec, self._clock = spec, clock
        self._rows_max: int | None = spec.values.get("bulk.max.rows")
        self._timeout_us: int | None = spec.values.get("bulk.timeout")
        self._began = clock()

    def check(self, rows: int) -> None:
        """Called with the rows read so far, often."""
        if self._rows_max is not None and rows > self._rows_max:
            self._stop(rows, f"'bulk.max.rows' is {self._rows_max}", "bulk.max.rows")
        if self._timeout_us is not None and self._clock() - self._began > self._timeout_us / 1e6:
            self._stop(rows, f"'bulk.timeout' of {self._timeout_us / 1e6:g} s is over", "bulk.timeout")

    def _stop(self, rows: int, why: str, option: str) -> None:
        message = f"Loading '{self._spec.shown}' was stopped after {rows} rows: {why}."
        raise SourceError("MP509", message, hint=f"Raise '{option}', or load less of it. Nothing was published.")
