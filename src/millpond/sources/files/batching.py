"""Chunks of files put together into feed files of a bounded number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum

from millpond.sources.feed import Feed, FeedWriter
from millpond.sources.files.contents import Chunk, Contents
from millpond.sources.files.gathering import Gathering
from millpond.sources.files.positions import Position


class Kind(Enum):
    """What a feed file holds."""

    NONE = "none"
    PARSED = "parsed"
    TEXT = "text"


# Shows the feed file that was just written, if there is one, and remembers the positions.
Publish = Callable[[list[Position], Kind], None]


class Batching:
    """Takes chunks in order and publishes a feed file whenever it has enough rows; positions go along."""

    def __init__(self, feed: Feed, contents: Contents, rows_max: int, publish: Publish) -> None:
        self._feed, self._rows_max, self._publish = feed, max(rows_max, 1), publish
        self._writer: FeedWriter | None = None
        self._gathering = Gathering(contents)
        self._moved: dict[str, Position] = {}
        self._text = False
        self.rows = 0

    def add(self, position: Position, chunk: Chunk) -> None:
        """Add a chunk; `position` is the one behind it."""
        while self._written + chunk.batch.num_rows > self._rows_max:
            first, chunk = (
                chunk.cut(self._rows_max - self._written) if self._written < self._rows_max else (None, chunk)
            )
            if first is not None:
                self._write(replace(position, position=first.end, done=False, unended=-1), first)
            self._flush()
        self._write(position, chunk)

    def finish(self) -> None:
        """Publish what is left."""
        if self._moved:
            self._flush()

    def moved(self, position: Position) -> None:
        """Note a position that moved without records."""
        self._moved[position.path] = position

    @property
    def _written(self) -> int:
        return self._gathering.rows + (0 if self._writer is None else self._writer.rows)

    def _write(self, position: Position, chunk: Chunk) -> None:
        self._moved[position.path] = position
        if chunk.batch.num_rows:
            self.rows += chunk.batch.num_rows
            self._put(self._gathering.add(chunk))

    def _put(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            if self._writer is None:
                self._writer = self._feed.writer()
            self._writer.write(chunk.batch)
            self._text |= chunk.text

    def _flush(self) -> None:
        self._put(self._gathering.all())
        if self._writer is not None:
            self._writer.close()
        kind = Kind.NONE if self._writer is None else Kind.TEXT if self._text else Kind.PARSED
        self._publish(list(self._moved.values()), kind)
        self._writer, self._moved, self._text = None, {}, False
