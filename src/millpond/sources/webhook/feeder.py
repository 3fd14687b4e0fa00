"""Records that are posted to the app: durable in the inbox when they are answered, then read from there.

Delivery: exactly once of each request that was answered 200. A request that got no answer may have been taken: its
sender sends it again, with the same id if it must not count twice.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import islice

import pyarrow as pa

from millpond.contracts.feeder import Polled, Position, Take
from millpond.contracts.source import Found, Posted, Reply, SourceSpec
from millpond.errors import MillpondError
from millpond.sources.records.column_types import VALUE
from millpond.sources.records.python_records import columns_of
from millpond.sources.records.sent import RECORDS, SentRecords
from millpond.sources.webhook.inbox import Inbox, Spot
from millpond.sources.webhook.requests import UNSENT, Refused, authorize, body_of, records_of

INTERVAL_S = 0.02
# Batches that are made ahead while the app runs; what comes meanwhile waits in the inbox, and makes larger batches.
LIVE_FILES_MAX = 2
RETRY_AFTER_S = "1"


class WebhookFeeder(SentRecords):
    """A position has a place in the log of the inbox, and the next number."""

    interval_s = INTERVAL_S

    def __init__(self, spec: SourceSpec) -> None:
        super().__init__(spec)
        self._inbox: Inbox
        self._spot, self._next = Spot(), 0
        # Rows that are on their way from the inbox into a batch, and may be counted in both.
        self._moving = 0

    def begin(self, known: Sequence[Position], take: Take) -> None:
        if known:
            self._spot, self._next = Spot(*known[-1]["spot"]), known[-1]["next"]
        assert self.folder is not None
        self._inbox = Inbox(self.folder / "inbox", self._spot)

    def poll(self, position: Position | None, *, final: bool = False) -> Iterator[Polled]:
        number, self._moving = self._next, 0
        for group in self._inbox.groups(self._spot):
            behind = number + len(group.lines)
            numbers = pa.array(range(number, behind), pa.int64())
            rows = pa.RecordBatch.from_arrays([pa.array(group.lines, pa.binary()), numbers], schema=RECORDS)
            at = {"spot": [group.behind.segment, group.behind.offset], "next": behind}
            self._moving += len(group.lines)
            yield Polled(rows, at, bytes=sum(map(len, group.lines)))
            number = behind
        # What waited at the start was taken as a whole: with `--once` there is no other poll.
        self.files_max = LIVE_FILES_MAX

    def kept(self, position: Position) -> None:
        count = position["next"] - self._next
        self._inbox.taken(count)
        self._moving = max(self._moving - count, 0)
        self._spot, self._next = Spot(*position["spot"]), position["next"]
        self._inbox.forget(self._spot)

    def require_room(self, count: int) -> None:
        """503 when too many rows wait for so many more."""
        waiting = self._inbox.rows + max(self.waiting() - self._moving, 0)
        most = self._spec.values["max.rows.waiting"]
        if waiting and waiting + count > most:
            message = f"{waiting:,} rows wait to be read; 'max.rows.waiting' is {most:,}."
            raise Refused(503, message, Retry_After=RETRY_AFTER_S)

    def put(self, lines: list[bytes], id_: str | None) -> Future[bool]:
        """Store records of one request."""
        return self._inbox.put(lines, id_)

    def found(self, first: pa.Table) -> Found:
        wanted = max(self._spec.values["sample.rows"], 1)
        lines = (line for group in self._inbox.groups(self._spot) for line in group.lines)
        columns = columns_of([*first[VALUE].to_pylist(), *islice(lines, wanted)])
        return Found(columns, detail="" if columns else UNSENT)

    @property
    def spec(self) -> SourceSpec:
        """Its options, as they are now."""
        return self._spec


def take(feeders: Sequence[WebhookFeeder], posted: Posted) -> Future[Reply]:
    """Take a request for all streams that read a hook."""
    try:
        for feeder in feeders:
            authorize(feeder.spec.values, posted)
        values = feeders[0].spec.values
        lines = records_of(body_of(posted, values["max.bytes"]))
        # An empty header identifies nothing.
        id_ = (posted.headers.get(values["id.header"].lower()) or None) if values["id.header"] else None
        # All of them have room, or none takes anything: the sender will send it again.
        for feeder in feeders:
            feeder.require_room(len(lines))
        stored = [feeder.put(lines, id_) for feeder in feeders]
    except Refused as error:
        reply: Future[Reply] = Future()
        reply.set_result(error.reply)
        return reply
    return _answered(stored, len(lines))


def _answered(stored: Sequence[Future[bool]], count: int) -> Future[Reply]:
    """The answer, when the records are durable in all inboxes."""
    reply: Future[Reply] = Future()
    left = [len(stored)]
    lock = threading.Lock()

    def settle(_: Future[bool]) -> None:
        with lock:
            left[0] -= 1
            if left[0]:
                return
        reply.set_result(_reply(stored, count))

    for one in stored:
        one.add_done_callback(settle)
    return reply


def _reply(stored: Sequence[Future[bool]], count: int) -> Reply:
    failed = [error for one in stored if (error := one.exception()) is not None]
    if failed:
        reason = failed[0].problems[0].message if isinstance(failed[0], MillpondError) else str(failed[0])
        return Reply(503, f"The records cannot be stored: {reason}", {"Retry-After": RETRY_AFTER_S})
    if not any(one.result() for one in stored):
        return Reply(message="A request with this id was accepted before.")
    return Reply(message=f"{count} record{'s' if count != 1 else ''} accepted.")
