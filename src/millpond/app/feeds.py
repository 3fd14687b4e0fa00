"""The feeds of an app: sends records from Python to its memory:// sources, and from HTTP to its hooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from millpond.contracts import feeder
from millpond.contracts.source import Hook
from millpond.contracts.table import Rows, frame_as_arrow
from millpond.engine.feeds.feed_reader import FeedReader
from millpond.engine.flow import Flow
from millpond.errors import BindError, SourceError, did_you_mean
from millpond.registry import find

MEMORY = "memory"


class Receiver(Protocol):
    """A stream reader that receives records from Python."""

    @property
    def shown(self) -> str: ...

    @property
    def names(self) -> list[str]: ...

    def unknown_names(self, rows: Rows) -> list[str]: ...

    def send(self, rows: Rows) -> int: ...


class RecordFeed:
    """The result of `app.feed(uri)`: sends records to every stream of that URI."""

    def __init__(self, uri: str, flows: Sequence[Flow]) -> None:
        self._uri = uri
        # All flows of the app, because after `apply` others may read the URI.
        self._flows = flows

    def send(self, rows: Rows) -> int:
        """Send records: dicts, Arrow or a pandas DataFrame. They are durable when this returns; returns their number.
        MP202 for a name that is no column of the stream, unless it has 'on.unknown.field' = 'ignore'; then no record of
        the call is accepted."""
        given = frame_as_arrow(rows)
        if isinstance(given, Iterator):
            given = list(given)
        receivers = receivers_of(self._flows, self._uri)
        _require_known(receivers, given)
        return max(receiver.send(given) for receiver in receivers)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]


def _require_known(receivers: Sequence[Receiver], rows: Rows) -> None:
    """Several streams may read one URI, each with its own columns: a name is known if it is a column of any of them."""
    first, *others = (receiver.unknown_names(rows) for receiver in receivers)
    unknown = [name for name in first if all(name in names for names in others)]
    if unknown:
        known = list(dict.fromkeys(name for receiver in receivers for name in receiver.names))
        near = did_you_mean(unknown[0], known) or f"Its columns are: {', '.join(known)}."
        hint = f"{near} To ignore unknown names, write WITH ('on.unknown.field' = 'ignore') after the URI."
        raise BindError("MP202", f"'{receivers[0].shown}' has no column '{unknown[0]}'.", hint=hint)


def receivers_of(flows: Sequence[Flow], uri: str) -> list[Receiver]:
    """The reader of every flow that reads this URI; MP501 when there is none."""
    # The flow of a stream join gets its events from the flows of its streams.
    fed = [flow for flow in flows if flow.source.type == MEMORY and flow.plan.join is None]
    wanted = [flow for flow in fed if flow.source.spec.uri.text == uri]
    if not wanted:
        hint = did_you_mean(uri, [flow.source.spec.uri.text for flow in fed]) or "Declare it with CREATE STREAM."
        raise SourceError("MP501", f"No statement reads '{uri}'.", hint=hint)
    for flow in wanted:
        flow.open()
    return [cast("Receiver", cast("FeedReader", flow.reader).feeder) for flow in wanted]


def hooked(flows: Sequence[Flow], name: str) -> tuple[Hook, list[feeder.Feeder]] | None:
    """The hook of this name, and the feeder of every flow that reads it, none while they are not open; None when there
    is no such hook."""
    found: Hook | None = None
    feeders: list[feeder.Feeder] = []
    for flow in flows:
        hook = find("source", flow.source.type).hook
        if hook is None or flow.plan.join is not None:
            continue
        own: Hook = hook(flow.source.spec)
        if own.name == name:
            found = found or own
            # Only the app opens flows: two readers must not write one feed.
            reader = flow.reader or flow.kept_reader
            if not isinstance(reader, FeedReader):
                return own, []
            feeders.append(reader.feeder)
    return (found, feeders) if found is not None else None
