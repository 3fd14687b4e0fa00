"""What the contract suite of sources shares: a source to test, records to put into it, and a flow that reads it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millpond.contracts.feeder import TableReader
from millpond.contracts.source import BAD, ORDER_MAJOR, ORDER_MINOR, RAW, SourcePlugin, SourceSpec
from millpond.engine.feeds.records import Decoder, Shape
from millpond.engine.spark.transfer import arrow_frame
from millpond.engine.stream_reader import StreamReader, open_reader
from millpond.options import Given, complete, read_options
from millpond.registry import find
from millpond.schema import Column, Schema
from millpond.sql.parser import parse_type
from millpond.uris import parse_uri


@dataclass
class BatchesRead:
    """What a start of a flow took: its batches, by number, in stream order, and their bytes where asked for."""

    batches: dict[int, pa.Table]
    originals: dict[int, list[bytes | None]] = field(default_factory=dict)

    def numbers(self, column: str) -> list[int]:
        """The good records' numbers, batch after batch."""
        good = [batch.filter(pc.is_null(batch[BAD])) for _, batch in sorted(self.batches.items())]
        return [number for batch in good for number in batch[column].to_pylist()]

    def bad(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches.values() for row in batch.to_pylist() if row[BAD] is not None]


class SourceHarness:
    """One source under test. A suite sets `uri`, `columns` and `options`, or overrides what differs; `number` is the
    column in which the n-th record put in has n, from 0."""

    uri = ""
    columns: Mapping[str, str] = {"n": "BIGINT", "text": "STRING"}
    options: Mapping[str, str] = {}
    number = "n"
    # Batches of its feed, if it has one, that are done.
    done = 0

    @pytest.fixture(autouse=True)
    def _prepared(self, tmp_path: Path, spark: Any) -> None:
        self.folder, self.spark = tmp_path, spark
        self.set_up()

    def set_up(self) -> None:
        """Make the place that records are put into, empty."""

    def put(self, count: int) -> None:
        """Put the next `count` records in; may be called from another thread than the reader's."""
        raise NotImplementedError

    def put_bad(self) -> bytes:
        """Put in a record that cannot be read, and return its bytes."""
        raise NotImplementedError

    def take_away(self) -> None:
        """Make the source go away for a while."""
        raise NotImplementedError

    def bring_back(self) -> None:
        """Bring it back as it was."""
        raise NotImplementedError

    @property
    def plugin(self) -> SourcePlugin:
        found: SourcePlugin = find("source", parse_uri(self.uri).scheme)
        return found

    def spec(self, *, declared: bool = True) -> SourceSpec:
        uri = parse_uri(self.uri)
        given = [Given(name, value) for name, value in self.options.items()]
        given += [Given(self.plugin.parameters[name], value) for name, value in uri.params]
        values = complete(read_options(given, self.plugin.options, "test"), self.plugin.options, {})
        columns = Schema.of(Column(name, parse_type(type_)) for name, type_ in self.columns.items())
        return SourceSpec("contract", uri, values, columns if declared else None, self.folder)

    def open(self) -> StreamReader:
        """A reader as a (re)start of an app opens it."""
        reader = open_reader(self.spec(), self.plugin.name, self.folder / "flow" / "source")
        reader.require(lambda: self.spark)
        return reader

    def start(self, reader: StreamReader, *, fail: bool = False, originals: bool = False) -> BatchesRead:
        """Read what exists, as one start of a flow does; `fail`: like a process that dies before its first batch is
        done for good."""
        reader.poll()
        found = BatchesRead({})

        def take(batch: Any, batch_id: int) -> None:
            found.batches[batch_id] = in_order(reader.records(batch).toArrow())
            if originals:
                found.originals[batch_id] = reader.originals(batch, found.batches[batch_id])
            if fail:
                raise RuntimeError("the process died")
            reader.committed(batch_id)

        try:
            if reader.given is not None:
                self.done = hand_over(reader, self.spark, take, self.done)
            else:
                writer = reader.stream(self.spark).writeStream.foreachBatch(take).trigger(availableNow=True)
                checkpoint = str(self.folder / "flow" / "checkpoint")
                writer.option("checkpointLocation", checkpoint).start().awaitTermination()
        except Exception:
            if not fail:
                raise
        return found


def hand_over(reader: StreamReader, spark: Any, take: Callable[[Any, int], None], done: int = 0) -> int:
    """Let `take` have the batches that wait in the feed of a source after those that are done, as a flow has them when
    Spark evaluates; returns how many are done then."""
    given = reader.given
    assert given is not None
    while (file := given.file(done)) is not None:
        given.verify(done)
        take(reader.fed(spark, [file]), done)
        done += 1
        given.forget(done)
    return done


def content_of(
    reader: TableReader, spec: SourceSpec, plugin: SourcePlugin, spark: Callable[[], Any]
) -> Iterator[pa.Table]:
    """The records that a load of the whole content reads, in its batches."""
    found = reader.read(None)
    assert found.whole
    decoder = Decoder(reader, Shape.of(spec, plugin.hidden), lambda rows: arrow_frame(spark(), rows))
    try:
        yield from decoder.batches(found.parts, 1_000_000, 1 << 30)
    finally:
        found.close()


def in_order(records: pa.Table) -> pa.Table:
    return records.sort_by([(ORDER_MAJOR, "ascending"), (ORDER_MINOR, "ascending")])


pytestmark = pytest.mark.spark

# How long it takes at most until a source that was away is asked again.
BACK_S = 60.0
# Records that another thread puts in while a flow reads.
CONCURRENT = 8


class StreamContract(SourceHarness):
    """Shape, order, and each record once: over restarts, under concurrent writes, and when a batch comes again."""

    def test_records_have_the_columns_of_the_contract(self) -> None:
        self.put(3)
        (batch,) = self.start(self.open()).batches.values()
        hidden = [column.name for column in self.plugin.hidden]
        names = [*self.columns, *hidden]
        assert batch.column_names[: len(names)] == names
        assert {ORDER_MAJOR, ORDER_MINOR, BAD, RAW} <= set(batch.column_names)
        for column in (*(self.spec().columns or ()), *self.plugin.hidden):
            assert _same_type(batch.schema.field(column.name).type, column), column.name

    def test_records_come_in_the_order_of_the_source_and_once_over_restarts(self) -> None:
        self.put(50)
        first = self.start(self.open())
        self.put(50)
        second = self.start(self.open())
        assert first.numbers(self.number) == list(range(50))
        assert second.numbers(self.number) == list(range(50, 100))
        assert self.start(self.open()).numbers(self.number) == []

    def test_what_is_put_in_while_it_is_read_is_neither_lost_nor_doubled(self) -> None:
        """The transition from the records that existed at the start to later ones."""
        self.put(10)
        writer = threading.Thread(target=self._put_one_by_one)
        reader = self.open()
        writer.start()
        taken = [self.start(reader)]
        writer.join()
        taken.append(self.start(self.open()))
        numbers = [number for reading in taken for number in reading.numbers(self.number)]
        assert numbers == list(range(10 + CONCURRENT))

    def _put_one_by_one(self) -> None:
        for _ in range(CONCURRENT):
            self.put(1)

    def test_a_batch_that_comes_again_has_the_same_records(self) -> None:
        self.put(20)
        lost = self.start(self.open(), fail=True)
        self.put(5)
        again = self.start(self.open())
        (number,) = lost.batches
        assert again.batches[number].equals(lost.batches[number])
        assert again.numbers(self.number) == list(range(25))

    def test_its_status_is_reported_before_and_after_reading(self) -> None:
        reader = self.open()
        before = reader.status()
        self.put(7)
        self.start(reader)
        after = reader.status()
        assert after.rows - before.rows == 7
        assert (after.state, after.health, after.bad_records) == ("ready", "healthy", 0)


class DiscoveryContract(SourceHarness):
    """Columns that nobody declared."""

    def test_columns_are_found_in_the_records(self) -> None:
        assert self.plugin.discover is not None
        assert self.plugin.discover(self.spec(declared=False)).columns is None
        self.put(3)
        found = self.plugin.discover(self.spec(declared=False)).columns
        assert found is not None
        assert [(c.name, c.type) for c in found] == [(c.name, c.type) for c in self.spec().columns or ()]


class BadRecordContract(SourceHarness):
    """Records that cannot be read."""

    def test_a_bad_record_stands_aside_with_its_bytes_and_its_reason(self) -> None:
        self.put(2)
        raw = self.put_bad()
        self.put(2)
        found = self.start(self.open())
        assert found.numbers(self.number) == [0, 1, 2, 3]
        (bad,) = found.bad()
        assert bad[RAW] == raw
        assert bad[BAD]
        assert all(bad[name] is None for name in self.columns)

    def test_the_bytes_of_a_good_record_can_be_had_and_sent_again(self) -> None:
        self.put(3)
        reader = self.open()
        found = self.start(reader, originals=True)
        ((number, records),) = found.batches.items()
        assert None not in found.originals[number]
        places = {"partition": records["_partition"], "position": records["_offset"].cast(pa.string())}
        letters = pa.table({"raw": pa.array(found.originals[number], pa.binary()), **places})
        again = BatchesRead({0: reader.again(self.spark, letters).toArrow()})
        assert again.numbers(self.number) == found.numbers(self.number)


class AbsenceContract(SourceHarness):
    """A source that goes away for a while."""

    def test_a_source_that_is_gone_and_back_again_goes_on_where_it_was(self) -> None:
        self.put(3)
        reader = self.open()
        first = self.start(reader)
        self.take_away()
        assert not reader.poll()
        assert reader.status().health != "healthy"
        self.bring_back()
        self.put(2)
        # It is not asked again at once.
        deadline = time.monotonic() + BACK_S
        while not reader.poll():
            assert time.monotonic() < deadline, "the source is not read again"
            time.sleep(0.02)
        assert self.start(reader).numbers(self.number) == [3, 4]
        assert first.numbers(self.number) == [0, 1, 2]


class TableContract(SourceHarness):
    """The source read as a table."""

    def test_a_table_is_the_whole_content_and_its_fingerprint_changes_with_it(self) -> None:
        assert self.plugin.open_table is not None
        self.put(3)
        reader = self.plugin.open_table(self.spec())
        before = reader.fingerprint()
        assert reader.fingerprint() == before
        assert self.content(reader).numbers(self.number) == [0, 1, 2]
        self.put(2)
        assert before is None or reader.fingerprint() != before
        assert self.content(reader).numbers(self.number) == [0, 1, 2, 3, 4]

    def content(self, reader: TableReader) -> BatchesRead:
        return BatchesRead(dict(enumerate(content_of(reader, self.spec(), self.plugin, lambda: self.spark))))


class SourceContract(StreamContract, DiscoveryContract, BadRecordContract, AbsenceContract, TableContract):
    """All promises of a source."""


def _same_type(found: pa.DataType, column: Column) -> bool:
    """Whether Spark gives the type of a column; times have the zone of the session."""
    if column.type is not None and pa.types.is_timestamp(column.type):
        return bool(pa.types.is_timestamp(found))
    return bool(found == column.type)
