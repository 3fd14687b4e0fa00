"""The contract suite of sources: subclass SourceContract, say how records are put in, and pytest runs every promise.

A source that has no bad records (a generator), never goes away, or cannot be read as a table leaves out that part:
`class TestMine(StreamContract, BadRecordContract)`. The fixture `spark` is a Spark session.
"""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from millpond.contracts.source import BAD, ORDER_MAJOR, ORDER_MINOR, RAW
from millpond.schema import Column
from millpond.testing.source_harness import Reading, SourceHarness

pytestmark = pytest.mark.spark

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
        """The hand-over from what was there at the start to what came since."""
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

    def test_its_status_is_told_before_and_after_reading(self) -> None:
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
        again = Reading({0: reader.again(self.spark, letters).toArrow()})
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
        assert self.start(reader).numbers(self.number) == [3, 4]
        assert first.numbers(self.number) == [0, 1, 2]


class TableContract(SourceHarness):
    """The source read as a table."""

    def test_a_table_is_the_whole_content_and_its_fingerprint_changes_with_it(self) -> None:
        assert self.plugin.open_table is not None
        self.put(3)
        reader = self.plugin.open_table(self.spec(), self.folder / "load")
        before = reader.fingerprint()
        assert reader.fingerprint() == before
        assert Reading({0: reader.read(lambda: self.spark)}).numbers(self.number) == [0, 1, 2]
        self.put(2)
        assert reader.fingerprint() != before
        assert Reading({0: reader.read(lambda: self.spark)}).numbers(self.number) == [0, 1, 2, 3, 4]
        assert reader.progress().rows == 5


class SourceContract(StreamContract, DiscoveryContract, BadRecordContract, AbsenceContract, TableContract):
    """All promises of a source."""


def _same_type(found: pa.DataType, column: Column) -> bool:
    """Whether Spark gives the type of a column; times have the zone of the session."""
    if column.type is not None and pa.types.is_timestamp(column.type):
        return bool(pa.types.is_timestamp(found))
    return bool(found == column.type)
