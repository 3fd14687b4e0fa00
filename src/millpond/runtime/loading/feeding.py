"""Handing records to the memory:// sources of an app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from millpond.contracts.table import Rows
from millpond.errors import SourceError
from millpond.runtime.flows.flow import Flow
from millpond.suggest import did_you_mean

MEMORY = "memory"


class Receiver(Protocol):
    """A stream reader that takes records from Python."""

    def send(self, rows: Rows) -> int: ...


class Feeder:
    """What `app.feed(uri)` gives."""

    def __init__(self, receivers: Sequence[Any]) -> None:
        self._receivers: Sequence[Receiver] = receivers

    def send(self, rows: Rows) -> int:
        """Hand over records: dicts, or Arrow. They are safe when this returns; returns how many there were."""
        return max(receiver.send(rows) for receiver in self._receivers)


def feeder(flows: Sequence[Flow], uri: str) -> Feeder:
    """The feeder of every flow that reads this URI; MP501 when there is none."""
    # The flow of a join is given its events by the flows of its streams.
    fed = [flow for flow in flows if flow.source.type == MEMORY and flow.plan.join is None]
    wanted = [flow for flow in fed if flow.source.spec.uri.text == uri]
    if not wanted:
        hint = did_you_mean(uri, [flow.source.spec.uri.text for flow in fed]) or "Name it in a CREATE STREAM first."
        raise SourceError("MP501", f"No statement reads '{uri}'.", hint=hint)
    for flow in wanted:
        flow.open()
    return Feeder([flow.reader for flow in wanted])
