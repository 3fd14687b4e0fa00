"""Small chunks put together before they are parsed: of many small files each would cost a call of the parser."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from millpond.sources.files.contents import Chunk, Contents

# What is held until it is parsed; the first that is reached counts.
HELD_ROWS = 65_536
HELD_BYTES = 8 << 20


class Gathering:
    """Takes chunks and gives them back in the same order, the small ones parsed together."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self.rows = 0

    def add(self, chunk: Chunk) -> Iterator[Chunk]:
        """Take a chunk that has rows; gives those that are ready."""
        if not chunk.small:
            yield from self.all()
            yield chunk
            return
        self._held.append(chunk.batch)
        self.rows += chunk.batch.num_rows
        self._bytes += chunk.batch.nbytes
        if self.rows >= HELD_ROWS or self._bytes >= HELD_BYTES:
            yield from self.all()

    def all(self) -> Iterator[Chunk]:
        """Those that are held."""
        held, self._held, self.rows, self._bytes = self._held, [], 0, 0
        yield from self._contents.parsed_together(held)
