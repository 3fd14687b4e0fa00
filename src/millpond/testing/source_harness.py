"""What the contract suite of sources shares: a source to test, records to put into it, and a flow that reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millpond.contracts.source import BAD, ORDER_MAJOR, ORDER_MINOR, SourcePlugin, SourceSpec, StreamReader
from millpond.options import Given, complete, read_options
from millpond.registry import find
from millpond.schema import Column, Schema
from millpond.sql.parser import parse_type
from millpond.uris import parse_uri


@dataclass
class Reading:
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
        assert self.plugin.open_stream is not None
        reader = self.plugin.open_stream(self.spec(), self.folder / "flow" / "source")
        if self.plugin.require is not None:
            self.plugin.require(reader, self.spark)
        return reader

    def start(self, reader: StreamReader, *, fail: bool = False, originals: bool = False) -> Reading:
        """Take what is there, as one start of a flow does; `fail`: like a process that dies before its first batch is
        done for good."""
        reader.poll()
        found = Reading({})

        def take(batch: Any, batch_id: int) -> None:
            found.batches[batch_id] = in_order(reader.records(batch).toArrow())
            if originals:
                found.originals[batch_id] = reader.originals(batch, found.batches[batch_id])
            if fail:
                raise RuntimeError("the process died")
            reader.committed(batch_id)

        writer = reader.stream(self.spark).writeStream.foreachBatch(take).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.folder / "flow" / "checkpoint")).start()
        try:
            query.awaitTermination()
        except Exception:
            if not fail:
                raise
        return found


def in_order(records: pa.Table) -> pa.Table:
    return records.sort_by([(ORDER_MAJOR, "ascending"), (ORDER_MINOR, "ascending")])
