"""Messages parsed on the driver are the records that Spark makes of them."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.contracts.source import ORDER_MAJOR, ORDER_MINOR, SourceSpec
from millpond.options import Given, complete, read_options
from millpond.schema import Column, Schema
from millpond.sources.kafka import arrow_messages, source
from millpond.sources.kafka.arrow_messages import gather
from millpond.sources.kafka.messages import records_of
from millpond.sql.parser import parse_type
from millpond.uris import parse_uri

pytestmark = pytest.mark.spark

KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
COLUMNS = {"id": "BIGINT", "name": "STRING", "price": "DECIMAL(12,2)", "ts": "TIMESTAMP"}
GOOD = '{{"id": {n}, "name": "n{n}", "price": {n}.50, "ts": "2026-03-01T10:00:{n:02d}Z"}}'
ODD = (
    b"\xff\x00rubbish",
    b"",
    b"{}",
    None,
    b"[1, 2]",
    b'{"id": 1} {"id": 2}',
    b'{"id": "7", "price": "1.005"}',
    b'{"ID": 8, "Name": "other letters"}',
    b'{"id": 1e3}',
    b'{"id": 99999999999999999999}',
    b'{"name": 1.50}',
    b'{"id": 5, "ts": "yesterday"}',
    b'{"name": "no id", "more": {"a": [1]}}',
    b'{\n"id": 6,\n"name": "}{"\n}',
    '{"id": 9, "name": "straße"}'.encode(),
)
KEYS = (None, b"3", b"k", b"", b"\xff", b'{"id": 4, "name": "x"}', b'"quoted"')
HEADERS: tuple[Any, ...] = (None, [], [("a", b"1")], [("a", b"1"), ("b", None), ("a", b"2")])


def spec_of(topic: str, **options: str) -> SourceSpec:
    given = [Given(name.replace("_", "."), value) for name, value in options.items()]
    values = complete(read_options(given, source.OPTIONS, "test"), source.OPTIONS, {})
    columns = Schema.of(Column(name, parse_type(type_)) for name, type_ in COLUMNS.items())
    return SourceSpec("s", parse_uri(f"kafka://localhost:9092/{topic}"), values, columns, Path())


def messages(count: int, topics: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Good and odd ones, in stretches, so that Arrow takes some parts and refuses others."""
    dice = random.Random(count)
    made = []
    for topic in topics:
        for partition in (1, 0, 10):
            for offset in range(count):
                odd = offset % 200 < len(ODD) * 2 and offset % 2 == 0
                value = ODD[offset % 200 // 2] if odd else GOOD.format(n=offset % 60).encode()
                at = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(milliseconds=offset)
                key, headers = dice.choice(KEYS), dice.choice(HEADERS)
                made.append((key, value, topic, partition, offset * 2, at, 0, headers))
    return made


def in_order(records: pa.Table) -> list[dict[str, Any]]:
    return records.sort_by([(ORDER_MAJOR, "ascending"), (ORDER_MINOR, "ascending")]).to_pylist()


@pytest.mark.parametrize(
    ("topic", "options"),
    [
        ("b,a", {}),
        ("a", {"key": "name"}),
        ("[ab]", {"key": "id,name"}),
    ],
)
def test_the_driver_makes_the_same_records_as_spark(spark: Any, topic: str, options: dict[str, str]) -> None:
    spec = spec_of(topic, **options)
    rows = messages(500, ("a",) if topic == "a" else ("a", "b"))
    batch = spark.createDataFrame(rows, KAFKA).repartition(3, "topic", "partition").sortWithinPartitions("offset")
    gathered = gather(batch, spec, len(rows))
    assert gathered is not None
    wanted = records_of(batch, spec).toArrow()
    assert gathered.records.select(wanted.column_names).schema.types == wanted.schema.types
    assert in_order(gathered.records.select(wanted.column_names)) == in_order(wanted)
    tally = gathered.tally
    assert (tally.rows, tally.bytes) == (len(rows), sum(len(row[1] or b"") for row in rows))
    assert (tally.skipped, tally.bad) == (
        sum(row[1] is None for row in rows),
        len(wanted) - wanted["_mp_bad"].null_count,
    )


def test_what_the_driver_must_not_hold_stays_in_spark(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = spark.createDataFrame(messages(300, ("a",)), KAFKA)
    assert gather(batch, spec_of("a", format="csv"), 900) is None
    monkeypatch.setattr(arrow_messages, "REFUSED_MAX", 10)
    assert gather(batch, spec_of("a"), 900) is None
    monkeypatch.setattr(arrow_messages, "SAMPLED_ABOVE", 100)
    monkeypatch.setattr(arrow_messages, "BYTES_MAX", 900)
    assert gather(batch.where("value IS NOT NULL"), spec_of("a"), 900) is None


def test_a_key_that_is_no_text_is_neither_lost_nor_merged_with_another(spark: Any) -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    keys = (b"\xff\xfe", b"\xff\xfd", b"k")
    rows = [(key, b'{"id": 1}', "a", 0, n, at, 0, None) for n, key in enumerate(keys)]
    rows.append((b"\xff", b'{"id": 1, "name": "of the value"}', "a", 0, 3, at, 0, None))
    batch = spark.createDataFrame(rows, KAFKA)
    spec = spec_of("a", key="name")
    gathered = gather(batch, spec, len(rows))
    assert gathered is not None
    for records in (in_order(records_of(batch, spec).toArrow()), in_order(gathered.records)):
        assert [(r["name"], r["_mp_bad"]) for r in records] == [
            (None, "column 'name': the message key X'FFFE' is not UTF-8 text"),
            (None, "column 'name': the message key X'FFFD' is not UTF-8 text"),
            ("k", None),
            ("of the value", None),
        ]
        # What a table is kept by that names no key is the bytes themselves.
        assert len({r["_mp_key"] for r in records}) == 4
