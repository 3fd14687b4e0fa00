"""Records that were sent are parsed on the driver, also where some of them are invalid."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from millpond.contracts.source import BAD, ORDER_MINOR, SourceSpec
from millpond.schema import Column, Schema
from millpond.sources.records.sent import RECORDS, SentRecords
from millpond.sql.parser import parse_type
from millpond.uris import parse_uri

COLUMNS = Schema.of([Column("k", parse_type("INT")), Column("m", parse_type("MAP<STRING, INT>"))])


def parsed(columns: Schema, lines: list[bytes]) -> pa.Table | None:
    sent = SentRecords(SourceSpec("s", parse_uri("memory://s"), {}, columns, Path()))
    return sent.arrow_records(pa.table([lines, list(range(len(lines)))], schema=RECORDS), raw=False)


def test_an_invalid_record_among_many_does_not_need_spark() -> None:
    lines = [b'{"k": %d}\n' % n for n in range(20_000)]
    lines[777] = b'{"k": "x"}\n'
    found = parsed(Schema.of([Column("k", parse_type("INT"))]), lines)
    assert found is not None
    assert found[ORDER_MINOR].to_pylist() == list(range(20_000))
    assert [n for n, reason in enumerate(found[BAD].to_pylist()) if reason] == [777]
    assert found["k"].to_pylist() == [None if n == 777 else n for n in range(20_000)]


def test_maps_are_parsed_without_spark() -> None:
    found = parsed(COLUMNS, [b'{"k": 1, "m": {"a": 1, "b": null}}\n', b'{"k": 2}\n', b'{"m": {"a": "x"}}\n'])
    assert found is not None
    assert found["m"].to_pylist() == [[("a", 1), ("b", None)], None, None]
    assert found[BAD].to_pylist() == [None, None, "column 'm': '{\"a\":\"x\"}' is not a MAP<STRING, INT>"]
