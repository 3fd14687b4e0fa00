"""Records that are sent to the app as JSON lines, and how the feeder that receives them reads them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millpond.contracts.feeder import Feeder
from millpond.contracts.source import ORDER_MINOR, SourceSpec
from millpond.schema import Schema
from millpond.sources.records.arrow_parsing import parsed, quick_parser
from millpond.sources.records.column_types import PROBLEM, SUSPECT, VALUE
from millpond.sources.records.formats import FileFormat
from millpond.sources.records.text_parsing import Texts, parse_texts
from millpond.sources.records.text_reader import Piece

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORDS = pa.schema([(VALUE, pa.binary()), (ORDER_MINOR, pa.int64())])


class SentRecords(Feeder):
    """One JSON object per record, each with its line end. Its columns may become known after it was opened."""

    schema = RECORDS
    # Senders may send anything.
    may_be_bad = True

    def __init__(self, spec: SourceSpec) -> None:
        # Without columns it stores records, which are read when the columns are known.
        self._spec, self._columns = spec, spec.columns or Schema(())

    def redefine(self, spec: SourceSpec) -> None:
        self._spec, self._columns = spec, spec.columns or self._columns

    def records(self, rows: DataFrame, *, raw: bool) -> DataFrame:
        from pyspark.sql import functions as F

        from millpond.sources.records.spark_parsing import parse_json

        # A line that was repaired by hand may contain anything; one that was sent is one object.
        suspect, problem = F.lit(raw).alias(SUSPECT), F.lit(None).cast("string").alias(PROBLEM)
        return parse_json(rows.select(VALUE, suspect, problem, ORDER_MINOR), self._columns, (ORDER_MINOR,))

    def arrow_records(self, rows: pa.Table, *, raw: bool) -> pa.Table | None:
        # A line that was repaired by hand may contain anything, so it must not be read by Arrow, which skips blanks.
        parse = None if raw else quick_parser(FileFormat("jsonl"), "lines", self._columns, ())
        whole = Piece(rows[VALUE].combine_chunks(), np.arange(rows.num_rows), rows.num_rows)
        found: list[pa.Table] = []
        for part, table in parsed([whole], parse):
            texts = Texts(part.values.to_pylist(), [None] * len(part), [raw] * len(part)) if table is None else None
            table = table if texts is None else parse_texts(texts, self._columns)
            if table is None:
                return None
            found.append(table)
        return pa.concat_tables(found, promote_options="default").append_column(ORDER_MINOR, rows[ORDER_MINOR])

    def originals(self, records: pa.Table, fed: Callable[[], pa.Table]) -> list[bytes | None]:
        rows = fed()
        lines = [line.rstrip(b"\n") for line in rows[VALUE].to_pylist()]
        found = dict(zip(rows[ORDER_MINOR].to_pylist(), lines, strict=True))
        return [found.get(number) for number in records[ORDER_MINOR].to_pylist()]

    def again(self, letters: pa.Table) -> pa.Table:
        numbers = [int(position) for position in letters["position"].to_pylist()]
        return pa.table({VALUE: letters["raw"].to_pylist(), ORDER_MINOR: numbers}, schema=RECORDS)
