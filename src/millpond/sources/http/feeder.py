"""The responses of a server as a stream: each record that was not in the previous response is an event, across
restarts.

Delivery: exactly once for the content of responses; records that appear and disappear between two polls are missed.
While the app runs, requests are sent in a thread, so that a server that hangs does not delay anything else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millpond.contracts.feeder import Feeder, Polled, Position, Take
from millpond.contracts.source import HIDDEN_SOURCE, ORDER_MINOR, SourceSpec
from millpond.errors import SourceError
from millpond.sources.files.contents import Chunk, TextContents
from millpond.sources.files.feed_records import feed_schema
from millpond.sources.files.rejected import rows_of_letters
from millpond.sources.http.page_records import chunks_of
from millpond.sources.http.pages import Look, Page, Pages, ResponseState
from millpond.sources.http.seen import Known, Sieve, restored, stored
from millpond.sources.records.column_types import PROBLEM
from millpond.sources.records.formats import file_format
from millpond.sources.records.text_reader import Tail, read_header

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INTERVAL_S = 0.1
# The format is determined by other means than a name.
_NO_FILE = Path()


class Asking:
    """One poll of the server, in a thread."""

    def __init__(self, pages: Pages, known: ResponseState | None) -> None:
        self._pages, self._known = pages, known
        self._look: Look | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="http-source", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def look(self) -> Look:
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._look is not None
        return self._look

    def _run(self) -> None:
        try:
            self._look = self._pages.look(self._known)
        except BaseException as error:
            self._error = error


class HttpFeeder(Feeder):
    """The new records of each response. A position has what has changed since the previous one: which records arrived,
    and, after the last of a response, the state of that response."""

    interval_s = INTERVAL_S
    repeated = (HIDDEN_SOURCE.name, PROBLEM)

    def __init__(self, spec: SourceSpec) -> None:
        assert spec.columns is not None
        self._spec, self._pages = spec, Pages(spec)
        self.schema = feed_schema(spec.columns)
        self._known = Known()
        self._state: ResponseState | None = None
        self._majors = 0
        self._contents: TextContents | None = None
        self._headers: list[tuple[str, ...]] = []
        self._format = spec.values["format"] or "json"
        self._asking: Asking | None = None
        # The poll by which it was opened, until it is read.
        self._first: Look | None = None
        self._is_caught_up = False
        self._due = 0.0

    def begin(self, known: Sequence[Position], take: Take) -> None:
        for position in known:
            self.kept(position)
        self._first = self._pages.look(self._state)

    def poll(self, position: Position | None, *, final: bool = False) -> Iterator[Polled]:
        look = self._next_look()
        if look is None:
            return
        try:
            yield from self._parts(look)
        finally:
            look.close()

    def _next_look(self) -> Look | None:
        if not self._is_caught_up:
            look, self._first = self._first or self._pages.look(self._state), None
            self._is_caught_up = True
            self._pause()
            return look
        if self._asking is None:
            if time.monotonic() >= self._due:
                self._asking = Asking(self._pages, self._state)
            return None
        if not self._asking.is_done:
            return None
        asking, self._asking = self._asking, None
        try:
            look = asking.look()
        except SourceError:
            # The engine determines when it is polled again.
            self._due = 0.0
            raise
        self._pause()
        return look

    def _pause(self) -> None:
        interval_us = self._spec.values["poll.interval"]
        self._due = float("inf") if interval_us is None else time.monotonic() + interval_us / 1e6

    def _parts(self, look: Look) -> Iterator[Polled]:
        if not look.pages:
            if look.state != self._state:
                yield self._polled(Chunk(self._nothing(), 0), {"answer": look.state.stored()}, 0)
            return
        contents, major = self._contents_of(look.pages[0]), self._majors
        sieve = Sieve(self._known, self._spec.values["key"], look.pages[0].form)
        for page in look.pages:
            major += 1
            for chunk in self._new(contents, page, major, sieve):
                if chunk.batch.num_rows:
                    yield self._part(chunk, sieve, major)
        added, left = sieve.difference()
        last = {"answer": look.state.stored(), "added": stored(added), "left": stored(left)}
        yield self._polled(Chunk(self._nothing(), 0), last, look.bytes)

    def _new(self, contents: TextContents, page: Page, major: int, sieve: Sieve) -> Iterator[Chunk]:
        sieve.next_page(self._names(page))
        yield from chunks_of(contents, page, major, sieve.keep)

    def _names(self, page: Page) -> Sequence[str]:
        """What the fields of a CSV row are called."""
        if page.form.name != "csv":
            return ()
        header = read_header(page.path, page.form, Tail.TAKE) if page.form.header else None
        assert self._spec.columns is not None
        return self._spec.columns.names if header is None else header.names

    def _part(self, chunk: Chunk, sieve: Sieve, major: int) -> Polled:
        places = chunk.batch.column(ORDER_MINOR).to_numpy()
        came = sieve.hashes_at(places)

        def cut(rows: int) -> tuple[Polled, Polled]:
            first, rest = chunk.cut(rows)
            return self._part(first, sieve, major), self._part(rest, sieve, major)

        return replace(self._polled(chunk, {"came": stored(came), "major": major}, 0), cut=cut)

    def _polled(self, chunk: Chunk, moved: dict[str, Any], size: int) -> Polled:
        headers = [list(names) for names in self._contents.headers] if self._contents is not None else []
        position = {"format": self._format, "headers": headers, **moved}
        return Polled(chunk.batch, position, raw=chunk.text, small=chunk.small, bytes=size)

    def _nothing(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], self.schema)

    def merge(self, before: Position, after: Position) -> Position:
        came = np.concatenate([restored(p.get("came", "")) for p in (before, after)])
        return {**before, **after, "came": stored(came)}

    def kept(self, position: Position) -> None:
        self._format = position["format"]
        self._headers = [tuple(names) for names in position["headers"]]
        self._majors = position.get("major", self._majors)
        if "last" in position:
            self._known = Known(restored(position["last"]))
        self._known = self._known.with_part(restored(position.get("came", "")))
        if "answer" in position:
            self._state = ResponseState.of(position["answer"])
            if "added" in position or "left" in position:
                added, left = (restored(position.get(name, "")) for name in ("added", "left"))
                self._known = self._known.with_answer(added, left)

    def whole(self) -> Position:
        answer = None if self._state is None else self._state.stored()
        kept = {"last": stored(self._known.last), "came": stored(self._known.came), "major": self._majors}
        return {"format": self._format, "headers": [list(n) for n in self._headers], "answer": answer, **kept}

    def _contents_of(self, page: Page | None) -> TextContents:
        """How records are read; headers have the numbers that they had."""
        if page is not None:
            self._format = page.form.name
        if self._contents is None or self._contents.format != self._format:
            values = {**self._spec.values, "format": self._format, "encoding": "utf-8"}
            assert self._spec.columns is not None
            form = file_format(values, _NO_FILE, [], self._spec.shown)
            self._contents = TextContents(form, self._spec.columns, declared=self._spec.declared)
            self._contents.headers.extend(self._headers)
        return self._contents

    def records(self, rows: DataFrame, *, raw: bool) -> DataFrame:
        return self._contents_of(None).records(rows, text=raw)

    def together(self, small: Sequence[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
        yield from ((chunk.batch, chunk.text) for chunk in self._contents_of(None).parsed_together(small))

    def again(self, letters: pa.Table) -> pa.Table:
        contents = self._contents_of(None)
        if contents.format == "csv" and len(contents.headers) > 1:
            message = "The answers of this source had several headers, and that of a row is not kept."
            raise SourceError("MP512", message, hint="Insert the row into its table.")
        return rows_of_letters(contents, letters, lambda _: self._spec.shown, lambda _: 0)
