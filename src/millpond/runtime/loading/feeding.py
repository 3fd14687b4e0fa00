"""Handing records to the memory:// sources of an app."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from millpond.contracts.table import Rows, frame_as_arrow
from millpond.errors import BindError, SourceError
from millpond.runtime.flows.flow import Flow
from millpond.suggest import did_you_mean

MEMORY = "memory"


class Receiver(Protocol):
    """A stream reader that takes records from Python."""

    @property
    def shown(self) -> str: ...

    @property
    def names(self) -> list[str]: ...

    def unknown_names(self, rows: Rows) -> list[str]: ...

    def send(self, rows: Rows) -> int: ...


class Feeder:
    """What `app.feed(uri)` gives."""

    def __init__(self, uri: str, flows: Sequence[Flow]) -> None:
        self._uri = uri
        # All of the app: those that read the URI may be others after `apply`.
        self._flows = flows

    def send(self, rows: Rows) -> int:
        """Hand over records: dicts, Arrow or a pandas DataFrame. They are on disk when this returns; returns how many
        there were. MP202 for a name that the stream has no column for, unless it has 'on.unknown.field' = 'ignore';
        nothing of the call is taken then."""
        given = frame_as_arrow(rows)
        if isinstance(given, Iterator):
            given = list(given)
        receivers = receivers_of(self._flows, self._uri)
        _require_known(receivers, given)
        return max(receiver.send(given) for receiver in receivers)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]


def _require_known(receivers: Sequence[Receiver], rows: Rows) -> None:
    """Several streams may read one URI, each with columns of its own: a name of any of them is known."""
    first, *others = (receiver.unknown_names(rows) for receiver in receivers)
    unknown = [name for name in first if all(name in names for names in others)]
    if unknown:
        known = list(dict.fromkeys(name for receiver in receivers for name in receiver.names))
        near = did_you_mean(unknown[0], known) or f"It has: {', '.join(known)}."
        hint = f"{near} To leave such names out, write WITH ('on.unknown.field' = 'ignore') after the URI."
        raise BindError("MP202", f"'{receivers[0].shown}' has no column '{unknown[0]}'.", hint=hint)


def receivers_of(flows: Sequence[Flow], uri: str) -> list[Receiver]:
    """The reader of every flow that reads this URI; MP501 when there is none."""
    # The flow of a join is given its events by the flows of its streams.
    fed = [flow for flow in flows if flow.source.type == MEMORY and flow.plan.join is None]
    wanted = [flow for flow in fed if flow.source.spec.uri.text == uri]
    if not wanted:
        hint = did_you_mean(uri, [flow.source.spec.uri.text for flow in fed]) or "Name it in a CREATE STREAM first."
        raise SourceError("MP501", f"No statement reads '{uri}'.", hint=hint)
    for flow in wanted:
        flow.open()
    return [cast("Receiver", flow.reader) for flow in wanted]
