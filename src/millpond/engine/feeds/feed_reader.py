"""A feeder read as a stream: its records are written to feed files, and its positions to a journal.

Delivery: exactly once. A batch that is repeated after a crash is read from its feed file, whatever has happened to the
source of its records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from millpond.contracts.change_stream import stream_hidden, streams_changes
from millpond.contracts.changes import NOT_POSSIBLE, POSITION_GONE
from millpond.contracts.feeder import Feeder, Polled, Position
from millpond.contracts.source import ORDER_MINOR, Found, Patience, SourcePlugin, SourceSpec, SourceStatus
from millpond.engine.feeds.batching import Batching, Written
from millpond.engine.feeds.change_feeder import ChangeFeeder
from millpond.engine.feeds.feed import SUMS, Feed, is_marked, rows_of
from millpond.engine.feeds.journal import Entry
from millpond.engine.feeds.records import Shape, fed_schema
from millpond.engine.spark.transfer import arrow_frame
from millpond.errors import Problem, SourceError

POSITION, NEXT = "position", "rows"
# Other columns than the declared ones, an invalid login or configuration: another poll would not help.
LASTING = ("MP503", "MP507", "MP508", POSITION_GONE, NOT_POSSIBLE)
UNREACHABLE = "MP506"


class FeedReader:
    """A StreamReader over a feeder. `small`: batches have at most as many rows as the driver evaluates; `owner` names
    what is created on a server for it."""

    def __init__(
        self,
        spec: SourceSpec,
        plugin: SourcePlugin,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
        *,
        small: bool = True,
        owner: str = "",
    ) -> None:
        self._spec, self._plugin, self._clock, self._small = spec, plugin, clock, small
        self.feeder: Feeder = _feeder(spec, plugin, owner)
        # Any thread may pass records to a feeder.
        self._lock = threading.RLock()
        self._feed = Feed(folder, self._summary)
        entries = self._feed.recover()
        positions = positions_of(entries)
        self._position: Position | None = positions[-1] if positions else None
        self._next: int = max((entry.get(NEXT, 0) for entry in entries), default=0)
        self._caught_up = self._was_given = False
        self._delays: Iterator[float] | None = None
        self._retry_at = 0.0
        self._status = SourceStatus()
        self.feeder.folder = folder / "own"
        self.feeder.waiting = lambda: self._feed.lag()[0]
        first = self.feeder.begin(positions, self._take)
        if first is not None:
            self._publish(first, Written(0, 0, False, False, self._next))

    @property
    def interval_s(self) -> float:
        return self.feeder.interval_s

    def require(self, spark: Callable[[], SparkSession]) -> None:
        """Nothing to do: opening the feeder has shown that the source exists."""

    def stream(self, spark: SparkSession) -> DataFrame:
        """Never called, because there is a feed."""
        raise NotImplementedError

    def fed(self, spark: SparkSession, files: Sequence[Path]) -> DataFrame:
        return self._feed.frame(spark, files, fed_schema(self.feeder))

    def poll(self, *, final: bool = False) -> bool:
        if self._clock() < self._retry_at:
            return False
        with self._lock:
            before = self._feed.batches
            try:
                self._poll(final)
            except SourceError as error:
                if not self._caught_up or error.code in LASTING:
                    raise
                self._note_absence(error)
                return False
            self._caught_up, self._delays = True, None
            self._status = replace(self._status, state="ready", health="healthy", detail="")
            given, self._was_given = self._was_given, False
            return self._feed.batches > before or given

    def _poll(self, final: bool) -> None:
        if self._feed.waiting() >= self.feeder.files_max:
            return
        most, live = self._spec.values.get("max.rows.per.batch") or 1_000_000, self.feeder.rows_live
        batching = self._batching(min(most, live) if live is not None and self._small else most)
        for part in self.feeder.poll(self._position, final=final):
            batching.add(part)
            if not part.continues and self._feed.waiting() >= self.feeder.files_max:
                break
        batching.finish()

    def _batching(self, rows_max: int) -> Batching:
        return Batching(self._feed, self.feeder, rows_max, self._next, self._publish)

    def _take(self, parts: Iterable[Polled]) -> None:
        """Store records that were passed to the feeder."""
        with self._lock:
            batching = self._batching(self._spec.values.get("max.rows.per.batch") or 1_000_000)
            for part in parts:
                batching.add(part)
            batching.finish()
            self._was_given = True

    def _publish(self, position: Position, written: Written) -> None:
        entry: Entry = {NEXT: written.next} if position is None else {POSITION: position, NEXT: written.next}
        if written.is_file:
            self._feed.publish(entry, marked=written.is_raw, rows=written.records)
        else:
            self._feed.remember(entry)
        self._next = written.next
        if position is not None:
            self._position = position
            # Last, because the feeder's stored position must not be ahead of the journal.
            self.feeder.kept(position)
        at = time.time() if written.records else self._status.updated_at
        rows, size = self._status.rows + written.records, self._status.bytes + written.bytes
        self._status = replace(self._status, rows=rows, bytes=size, updated_at=at)

    def _summary(self) -> Entry:
        whole = self.feeder.whole()
        return {POSITION: self._position if whole is None else whole, NEXT: self._next}

    def _note_absence(self, error: SourceError) -> None:
        """An unavailable source is reported and polled again; one on the network less and less often."""
        state, health = "ready", "disconnected"
        if error.code == UNREACHABLE:
            patience = self._plugin.patience
            self._delays = self._delays or _delays(patience(self._spec) if patience is not None else None)
            self._retry_at = self._clock() + next(self._delays)
            state = "retrying"
        retries = self._status.retries + 1
        detail = error.problems[0].message
        self._status = replace(self._status, state=state, health=health, detail=detail, retries=retries)

    def records(self, batch: DataFrame) -> DataFrame:
        return self._shape().spark(self.feeder.records(batch, raw=self._feed.any_marked()))

    def _shape(self) -> Shape:
        return Shape.of(self._spec, stream_hidden(self._plugin, self._spec.values, self._spec.columns))

    def on_driver(self, batch: DataFrame, files: Sequence[Path] | None) -> pa.Table | None:
        if files is None:
            return None
        rows = self._feed.read(files, fed_schema(self.feeder))
        found = None if rows is None else self.feeder.arrow_records(rows, raw=any(map(is_marked, files)))
        return None if found is None else self._shape().arrow(found)

    def all_good(self, files: Sequence[Path]) -> int | None:
        if self.feeder.may_be_bad or any(map(is_marked, files)):
            return None
        if self.feeder.bundle_max == 1:
            return rows_of(files)
        rows = self._feed.read(files, fed_schema(self.feeder))
        return None if rows is None else self.feeder.count(rows)

    def size_hint(self, batch: DataFrame) -> int:
        return self._feed.rows_next() * self.feeder.bundle_max

    def originals(self, batch: DataFrame, records: pa.Table, files: Sequence[Path] | None = None) -> list[bytes | None]:
        def fed() -> pa.Table:
            rows = None if files is None else self._feed.read(files, fed_schema(self.feeder))
            if rows is not None:
                return rows.filter(pc.is_in(rows[ORDER_MINOR], records[ORDER_MINOR].combine_chunks()))
            return batch.where(f.col(ORDER_MINOR).isin(records[ORDER_MINOR].to_pylist())).toArrow()

        return self.feeder.originals(records, fed)

    def again(self, spark: SparkSession, letters: pa.Table) -> DataFrame:
        rows = arrow_frame(spark, self.feeder.again(letters))
        return self._shape().spark(self.feeder.records(rows, raw=True))

    def committed(self, batch_id: int) -> None:
        self._feed.taken(batch_id + 1)

    def status(self) -> SourceStatus:
        lag, lag_s = self._feed.lag()
        return self.feeder.status(replace(self._status, lag=lag, lag_s=lag_s))

    @property
    def given(self) -> Feed:
        return self._feed

    def problems(self) -> list[Problem]:
        return self.feeder.problems()

    def close(self) -> None:
        """Called when the flow stops; nothing is polled after it."""
        self.feeder.stop()
        with self._lock:
            self.feeder.close()

    def found(self) -> Found:
        """The columns of the records that were passed to it."""
        first = self._feed.first(fed_schema(self.feeder), self._spec.values.get("sample.rows") or 1000)
        return self.feeder.found(first)

    def redefine(self, spec: SourceSpec) -> None:
        """Called when its columns were discovered, or its options changed, after it was opened."""
        with self._lock:
            self._spec = spec
            self.feeder.redefine(spec)


def _feeder(spec: SourceSpec, plugin: SourcePlugin, owner: str) -> Feeder:
    if streams_changes(plugin, spec.values):
        return ChangeFeeder(spec, plugin, owner)
    assert plugin.open_feeder is not None
    return plugin.open_feeder(spec)


def positions_of(entries: Sequence[Entry]) -> list[Position]:
    """The stored positions of a feeder, oldest first."""
    found = [entry.get(POSITION) if NEXT in entry else _of_earlier_version(entry) for entry in entries]
    return [position for position in found if position is not None]


def _of_earlier_version(entry: Entry) -> Position:
    """Earlier versions stored the position in a journal of the source."""
    return {name: value for name, value in entry.items() if name not in ("feed", "marked", SUMS)}


def _delays(patience: Patience | None) -> Iterator[float]:
    if patience is None:
        while True:
            yield 2.0
    yield from patience.delays_s
