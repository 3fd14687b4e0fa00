"""Messages that Arrow makes on the driver say what those say that Spark makes of the same rows."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.contracts.sink import SinkSpec
from millpond.engine.spark.transfer import arrow_frame
from millpond.options import Given, complete, read_options
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ
from millpond.sinks import kafka
from millpond.sinks.message_parts import KEY, VALUE, messages_of, parts_of
from millpond.uris import parse_uri

ROWS = pa.table(
    {
        "id": pa.array(["k1", 'a "quoted"\n\u00fc', None, ""], pa.string()),
        "whole": pa.array([1, -(2**31), None, 0], pa.int32()),
        "large": pa.array([2**63 - 1, None, 0, -1], pa.int64()),
        "yes": pa.array([True, False, None, True]),
        "ratio": pa.array([0.1, -2.5, None, 0.0], pa.float64()),
        "money": pa.array([Decimal("10.10"), None, Decimal("-0.01"), Decimal("99999999.99")], pa.decimal128(12, 2)),
        "fine": pa.array([Decimal("0.000000001"), None, Decimal(0), Decimal("-1.5")], pa.decimal128(20, 9)),
        "at": pa.array(
            [datetime(2026, 3, 1, 10, 0, 0, 120_000, UTC), None, *[datetime(1969, 1, 1, tzinfo=UTC)] * 2], TIMESTAMP
        ),
        "local": pa.array([datetime(2026, 3, 1, 10), None, *[datetime(2026, 1, 1, 0, 0, 0, 1)] * 2], TIMESTAMP_NTZ),
        "day": pa.array([date(2026, 3, 1), None, date(1, 1, 1), date(9999, 12, 31)]),
        "raw": pa.array([b"\x00\xff", None, b"", b"abc"], pa.binary()),
        "tags": pa.array([["a", None], None, [], ["\u00fc"]], pa.list_(pa.string())),
        "who": pa.array(
            [{"n": 1, "s": None}, None, {"n": None, "s": "x"}, {"n": 0, "s": ""}],
            pa.struct([("n", pa.int32()), ("s", pa.string())]),
        ),
    }
)


def spec(**given: str) -> SinkSpec:
    read = read_options([Given(*item) for item in given.items()], kafka.OPTIONS, "test")
    return SinkSpec("k1", parse_uri("kafka://b:9092/out"), complete(read, kafka.OPTIONS, {}), Path())


@pytest.mark.spark
@pytest.mark.parametrize("given", [{}, {"key": "ID"}, {"key": "whole"}, {"key": "large"}, {"key": "raw"}])
def test_messages_are_those_of_spark(spark: Any, given: dict[str, str]) -> None:
    from millpond.sinks.kafka_messages import Shape, key_and_value

    sink = spec(**given)
    made = messages_of(ROWS, sink.values)
    assert made.column_names == [KEY, VALUE]
    frame = arrow_frame(spark, ROWS)
    key, value = key_and_value(frame.schema, Shape(sink, "out"), parts_of(sink.values, frame.columns))
    expected = frame.select(key.alias("key"), value.alias("value")).toArrow()
    assert made[KEY].to_pylist() == expected["key"].to_pylist()
    assert [read(v) for v in made[VALUE].to_pylist()] == [read(v) for v in expected["value"].to_pylist()]


def read(message: bytes) -> Any:
    """Names in their order and values, every digit of a number kept."""
    return json.loads(message, parse_float=Decimal, object_pairs_hook=list)


@pytest.mark.parametrize(
    "given",
    [
        {"format": "csv"},
        {"key": "money"},
        {"key": "id,whole"},
        {"key": "id", "key.format": "json"},
        {"headers": "id"},
        {"key": "unknown"},
    ],
)
def test_what_only_spark_makes_goes_there_as_it_is(given: dict[str, str]) -> None:
    assert messages_of(ROWS, spec(**given).values) is ROWS
