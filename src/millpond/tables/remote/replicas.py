"""Replicas of a server: reads outside of transactions are spread over them, as long as they are not too far behind."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.table import AggregateCall
from millpond.errors import SourceError

# How many commits are remembered with their times: a replica that lacks more is too far behind.
COMMITS_KEPT = 1_000
# How long a replica that has failed is not asked.
PAUSE_S = 5.0
Found = TypeVar("Found")


class Reads(Protocol):
    """The reading methods of a table on a server."""

    def lookup(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> pa.Table: ...

    def narrowed(self, condition: exp.Expression, parameters: Sequence[Any]) -> pa.Table | None: ...

    def aggregated(
        self, calls: Sequence[AggregateCall], condition: exp.Expression | None
    ) -> list[int | None] | None: ...

    def scan(self) -> pa.Table: ...


class CommitTimes:
    """When the last versions of a table were committed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: deque[tuple[int, float]] = deque(maxlen=COMMITS_KEPT)
        self._newest = 0

    def start(self, number: int) -> None:
        """The version at the start, whose time is not known."""
        self._newest = number

    def add(self, number: int) -> None:
        """A version that is committed now."""
        self._times.append((number, self._clock()))
        self._newest = number

    def behind_s(self, number: int) -> float:
        """For how long a replica with this version has lacked the next one."""
        if number >= self._newest:
            return 0.0
        missing = next((at for version, at in list(self._times) if version == number + 1), None)
        return float("inf") if missing is None else self._clock() - missing


class Replicas:
    """The replicas of a table, asked in turn; what none of them can answer is asked of the server itself. A replica
    raises SourceError if it is away or too far behind."""

    def __init__(self, primary: Reads, replicas: Sequence[Reads]) -> None:
        self._primary, self._replicas = primary, replicas
        self._turns = itertools.count()
        self._paused_until: dict[int, float] = {}

    def lookup(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> pa.Table:
        return self._first(lambda server: server.lookup(columns, keys))

    def narrowed(self, condition: exp.Expression, parameters: Sequence[Any]) -> pa.Table | None:
        return self._first(lambda server: server.narrowed(condition, parameters))

    def aggregated(self, calls: Sequence[AggregateCall], condition: exp.Expression | None) -> list[int | None] | None:
        return self._first(lambda server: server.aggregated(calls, condition))

    def scan(self) -> pa.Table:
        return self._first(lambda server: server.scan())

    def _first(self, ask: Callable[[Reads], Found]) -> Found:
        turn, count = next(self._turns), len(self._replicas)
        for place in range(turn, turn + count):
            number = place % count
            if self._paused_until.get(number, 0.0) > time.monotonic():
                continue
            try:
                return ask(self._replicas[number])
            except SourceError as error:
                if error.code == "MP506":
                    self._paused_until[number] = time.monotonic() + PAUSE_S
        return ask(self._primary)
