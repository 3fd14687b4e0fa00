"""Handing records to the memory:// sources of an app."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from millpond.contracts.table import Rows, frame_as_arrow
from millpond.errors import BindError, SourceError
from millpond.runtime.flows.flow import Flow
from millpond.suggest import did_you_mean

MEMORY = "memory"


class Receiver(Protocol):
    """A stream reader that takes records from Python."""

    @property
    def names(self) -> list[str]: ...

    def unknown_names(self, rows: Rows) -> list[str]: ...

    def send(self, rows: Rows) -> int: ...


class Feeder:
    """What `app.feed(uri)` gives."""

    def __init__(self, uri: str, receivers: Sequence[Any]) -> None:
        self._uri = uri
        self._receivers: Sequence[Receiver] = receivers

    def send(self, rows: Rows) -> int:
        """Hand over records: dicts, Arrow or a pandas DataFrame. They are on disk when this returns; returns how many
        there were. MP202 for a name that the stream has no column for, unless it has 'on.unknown.field' = 'ignore';
        nothing of the call is taken then."""
        given = frame_as_arrow(rows)
        if isinstance(given, Iterator):
            given = list(given)
        self._require_known(given)
        return max(receiver.send(given) for receiver in self._receivers)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    def _require_known(self, rows: Rows) -> None:
        """Several streams may read one URI, each with columns of its own: a name of any of them is known."""
        first, *others = (receiver.unknown_names(rows) for receiver in self._receivers)
        unknown = [name for name in first if all(name in names for names in others)]
        if unknown:
            known = list(dict.fromkeys(name for receiver in self._receivers for name in receiver.names))
            near = did_you_mean(unknown[0], known) or f"It has: {', '.join(known)}."
            hint = f"{near} To leave such names out, write WITH ('on.unknown.field' = 'ignore') after the URI."
            raise BindError("MP202", f"'{self._uri}' has no column '{unknown[0]}'.", hint=hint)


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
    return Feeder(wanted[0].source.spec.shown, [flow.reader for flow in wanted])
