"""How long to wait between two looks at a topic that is not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Retry:
    """The `topic.retry.*` options, in seconds; no strategy adds chance to its delays."""

    strategy: str
    interval_s: float
    multiplier: float
    increment_s: float
    delay_max_s: float

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Retry:
        interval = values["topic.retry.interval"] / 1_000_000
        increment = values.get("topic.retry.increment")
        return cls(
            values["topic.retry.strategy"],
            interval,
            values["topic.retry.multiplier"],
            interval if increment is None else increment / 1_000_000,
            values["topic.retry.max.delay"] / 1_000_000,
        )

    def delays(self) -> Iterator[float]:
        """The wait before each retry, without end."""
        delay = self.interval_s
        while True:
            yield min(delay, self.delay_max_s)
            if self.strategy == "linear":
                delay += self.increment_s
            elif self.strategy == "exponential":
                delay = min(delay * self.multiplier, self.delay_max_s)
