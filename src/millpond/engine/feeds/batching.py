"""Writes the records of a poll to feed files of bounded size, each with the position after its last record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from millpond.contracts.feeder import Feeder, Polled, Position
from millpond.engine.feeds.feed import Feed, FeedWriter
from millpond.engine.feeds.records import Gathering, Numbering


@dataclass(frozen=True)
class Written:
    """The content of a feed file: the number of `records`, raw or parsed, their `bytes` at the source, and the next row
    number. No file is written if a position moved without records."""

    records: int
    bytes: int
    is_raw: bool
    is_file: bool
    next: int


class Publish(Protocol):
    """Publishes the feed file that was just written, if there is one, and stores the position."""

    def __call__(self, position: Position, written: Written) -> None: ...


class Batching:
    """Takes parts in order and publishes a feed file whenever it has enough rows, with the position."""

    def __init__(self, feed: Feed, feeder: Feeder, rows_max: int, first: int, publish: Publish) -> None:
        self._feed, self._feeder = feed, feeder
        self._rows_max, self._publish = max(rows_max, 1), publish
        self._writer: FeedWriter | None = None
        self._gathering, self._numbering = Gathering(feeder), Numbering(feeder, first)
        self._position: Position | None = None
        self._records = self._bytes = 0
        self._is_raw = self._continues = False

    def add(self, part: Polled) -> None:
        """Add a part; it is cut where the file is full."""
        while not self._continues and self._records + part.count > self._rows_max:
            room = self._rows_max - self._records
            if room and part.cut is not None:
                first, part = part.cut(room)
                self._write(first)
            elif not self._records:
                break
            self._flush()
        self._write(part)
        self._continues = part.continues

    def finish(self) -> None:
        """Publish the rest."""
        if self._position is not None or self._records:
            self._flush()

    def _write(self, part: Polled) -> None:
        if part.position is not None:
            merged = self._position is not None
            self._position = self._feeder.merge(self._position, part.position) if merged else part.position
        self._bytes += part.bytes
        self._records += part.count
        if part.rows.num_rows:
            self._put(self._gathering.add(part))

    def _put(self, rows: Iterable[tuple[pa.RecordBatch, bool]]) -> None:
        for batch, raw in rows:
            if self._writer is None:
                self._writer = self._feed.writer(self._feeder.repeated)
            self._writer.write(self._numbering.numbered(batch))
            self._is_raw |= raw

    def _flush(self) -> None:
        self._put(self._gathering.all())
        if self._writer is not None:
            self._writer.close()
        is_file = self._writer is not None
        written = Written(self._records, self._bytes, self._is_raw, is_file, self._numbering.next)
        self._publish(self._position, written)
        self._writer, self._position, self._is_raw = None, None, False
        self._records = self._bytes = 0
