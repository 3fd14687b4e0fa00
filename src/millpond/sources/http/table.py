"""The response of a server as a table: its whole content, compared whenever it has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.feeder import Content, Polled, TableReader
from millpond.contracts.source import Progress, SourceSpec
from millpond.sources.files.contents import TextContents
from millpond.sources.http.page_records import chunks_of, contents_of
from millpond.sources.http.pages import Look, Pages, ResponseState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class HttpTable(TableReader):
    """The current content of all pages."""

    may_be_bad = True

    def __init__(self, spec: SourceSpec) -> None:
        self._spec, self._pages = spec, Pages(spec)
        interval_us = spec.values["poll.interval"]
        self.interval_s = None if interval_us is None else interval_us / 1e6
        # Known when it is read.
        self._contents: TextContents
        self._fingerprint: str | None = None
        self._state: ResponseState | None = None
        # The last poll, until it is read; the first is made when the source is opened.
        self._look: Look | None = None
        self._is_fresh = False
        self._progress = Progress()

    def begin(self, fingerprint: str | None) -> None:
        self._fingerprint = fingerprint
        self._state = ResponseState.of(json.loads(fingerprint)) if fingerprint is not None else None
        self._ask(self._state)
        self._is_fresh = True

    def _ask(self, known: ResponseState | None) -> None:
        self.close()
        look = self._pages.look(known)
        if look.pages:
            self._look = look
            self._fingerprint = json.dumps(look.state.stored())
        # Also where nothing has changed: the server may have given new validators.
        self._state = look.state

    def fingerprint(self) -> str | None:
        if not self._is_fresh:
            self._ask(self._state)
        self._is_fresh = False
        return self._fingerprint

    def read(self, mark: Any) -> Content:
        if self._look is None:
            # The last load of what was seen has failed.
            self._ask(None)
        assert self._look is not None
        look = self._look
        self._contents = contents_of(self._spec, look.pages)
        self.schema = self._contents.schema
        return Content(self._parts(look), close=self.close)

    def _parts(self, look: Look) -> Iterator[Polled]:
        done = 0
        self._progress = Progress(0, look.bytes, "bytes")
        for major, page in enumerate(look.pages):
            for chunk in chunks_of(self._contents, page, major):
                self._progress = Progress(done + chunk.end, look.bytes, "bytes")
                if chunk.batch.num_rows:
                    yield Polled(chunk.batch, raw=chunk.text, small=chunk.small)
            done += page.path.stat().st_size
        self._progress = Progress(look.bytes, look.bytes, "bytes")

    def records(self, rows: DataFrame, *, raw: bool) -> DataFrame:
        return self._contents.records(rows, text=raw)

    def together(self, small: Sequence[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
        yield from ((chunk.batch, chunk.text) for chunk in self._contents.parsed_together(small))

    def progress(self) -> Progress:
        return self._progress

    def close(self) -> None:
        if self._look is not None:
            self._look.close()
            self._look = None
