"""The quick way judged by the slow one: whatever Arrow takes, Spark reads as the same values; rubbish is refused."""

import os
import random
import signal
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.schema import Column, Schema
from millpond.sources.records.arrow_parsing import parsed, quick_parser
from millpond.sources.records.formats import FileFormat
from millpond.sources.records.text_reader import Piece
from millpond.sql.parser import parse_type

TYPES = {
    "i": "INT",
    "n": "BIGINT",
    "d": "DECIMAL(12,2)",
    "s": "STRING",
    "b": "BOOLEAN",
    "f": "DOUBLE",
    "t": "TIMESTAMP",
    "day": "DATE",
}
COLUMNS = Schema.of(Column(name, parse_type(type_)) for name, type_ in TYPES.items())
NESTED = Schema.of(
    [
        Column("o", parse_type("STRUCT<x: INT, t: STRING, l: ARRAY<STRUCT<p: DECIMAL(10,2)>>>")),
        Column("i", parse_type("INT")),
    ]
)
CSV = FileFormat("csv")

# What may stand for a value; the second half is there to be refused or cast.
JSON_VALUES = [
    *["1", "-7", "0", "-0", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "1.5", "10.50"],
    *["10.505", "1e3", "1E-2", "-0.0", "0.1", "123456789012345678901234567890", "1e400", "5e-324", "true", "false"],
    *['"x"', '""', '"12"', '"10.5"', '" 7 "', '"2026-01-02"', '"2026-02-30"', '"2026-01-02T03:04:05Z"', '"true"'],
    *['"2026-01-02 03:04:05.123456"', '"2026-01-02T03:04:05.1234567"', '"2026-01-02T03:04:05+02:00"', '"T"'],
    *['"2026-01-02T03:04"', '"2026-01-02T25:04:05"', '"9999-12-31"', '"0001-01-01 00:00:00"', '"1582-10-10"'],
    *['"é\\u00e9\\ud83d\\ude00"', '"\\ud83d"', '"a\\tb"', '"a\tb"', '"}{"', '"\\""', '"\\\\"', "null", "NaN", "01"],
    *[
        "{}",
        '{"x": 1}',
        '{"x": "1"}',
        '{"t": 1.10}',
        '{"t": "1.10"}',
        "[1]",
        "[]",
        '{"x": 1, "l": [{"p": 1.5}, {}, null]}',
        '{"l": 5}',
        '{"X": 1}',
        "-",
    ],
]
CSV_VALUES = [
    *["1", "-7", "007", "+7", " 7 ", "2147483648", "9223372036854775808", "1.5", "10.505", "1e3", ".5", "5.", "0x1F"],
    *["true", "TRUE", "1e400", "nan", "Infinity", "1d", "x", "", '""', '"x"', '"a ""b"" c"', '"a,b"', '"l1\nl2"', "٣"],
    *["2026-01-02", "2026-1-2", "2026-02-30", "2026-01-02T03:04:05Z", "2026-01-02 03:04:05.123456", '5" pipe', '"x"y'],
    *[
        "2026-01-02T03:04:05-11:30",
        "2026-01-02T03:04:05.1234567",
        "null",
        "NULL",
        "#x",
        "a\\b",
        "é",
        '" "',
        "a\tb",
        "t",
    ],
]


def piece_of(records: Sequence[bytes]) -> Piece:
    positions = np.arange(len(records), dtype=np.int64)
    return Piece(pa.array(records, pa.binary()), positions, len(records))


def quick_rows(
    records: Sequence[bytes], form: FileFormat, layout: str, columns: Schema, names: Sequence[str]
) -> list[Any]:
    """For each record, taken alone, its row, or None when the quick way refuses it."""
    parse = quick_parser(form, layout, columns, names)
    assert parse is not None
    tables = [table for record in records for _, table in parsed([piece_of([record])], parse)]
    return [None if table is None else table.to_pylist()[0] for table in tables]


def spark_rows(spark: Any, records: Sequence[bytes], parse: Any, columns: Schema) -> list[Any]:
    """For each record the row that Spark reads, or None when it is bad."""
    rows = [(n, record, True, None) for n, record in enumerate(records)]
    frame = spark.createDataFrame(rows, "_n INT, _mp_value BINARY, _mp_suspect BOOLEAN, _mp_problem STRING")
    table = parse(frame).toArrow().sort_by("_n")
    good = table.select(list(columns.names)).to_pylist()
    return [None if bad else row for row, bad in zip(good, table["_mp_bad"].to_pylist(), strict=True)]


def compare(records: Sequence[bytes], quick: list[Any], slow: list[Any], share: float) -> None:
    taken = [(r, a, b) for r, a, b in zip(records, quick, slow, strict=True) if a is not None]
    # Equal by value, as 0.0 and -0.0 are, or the same NaN.
    assert [found for found in taken if found[1] != found[2] and repr(found[1]) != repr(found[2])] == []
    refused = sum(a is None and b is not None for a, b in zip(quick, slow, strict=True))
    assert refused < share * len(records)


def json_records(columns: Schema, count: int) -> list[bytes]:
    draw = random.Random(7)
    records = []
    for _ in range(count):
        names = [name for name in columns.names if draw.random() < 0.15] or ["i"]
        if draw.random() < 0.05:
            names.append(draw.choice(["I", "other", "i", "S"]))
        members = ", ".join(f'"{name}": {draw.choice(JSON_VALUES)}' for name in names)
        end = (
            draw.choice(["\n", "\r\n", "", " \n", "", "\n", " x\n", "{}\n", " null\n", ",\n"])
            if draw.random() < 0.2
            else "\n"
        )
        records.append(f"{{{members}}}{end}".encode())
    return [*records, b"null\n", b"5\n", b"[{}]\n", b"{} null {}\n", b"{\n", b"\xff\n", b'{"s": "\xff"}\n', b"{}\n"]


@pytest.mark.spark
@pytest.mark.parametrize("columns", [COLUMNS, NESTED], ids=["flat", "nested"])
def test_json_that_arrow_takes_is_what_spark_reads(spark: Any, columns: Schema) -> None:
    from millpond.sources.records.spark_parsing import parse_json

    records = json_records(columns, 4000)
    quick = quick_rows(records, FileFormat("jsonl"), "lines", columns, ())
    slow = spark_rows(spark, records, lambda frame: parse_json(frame, columns, ["_n"]), columns)
    compare(records, quick, slow, 0.5)
    assert sum(row is not None for row in quick) > 200


@pytest.mark.spark
def test_csv_that_arrow_takes_is_what_spark_reads(spark: Any) -> None:
    from millpond.sources.records.spark_parsing import parse_csv

    draw = random.Random(7)
    names = ["other", *COLUMNS.names]
    records = []
    for _ in range(4000):
        values = [draw.choice(CSV_VALUES) if draw.random() < 0.2 else "" for _ in names]
        if draw.random() < 0.02:
            values.append("")
        if any(values):
            records.append((",".join(values) + draw.choice(["\n", "\r\n", ""])).encode())
    quick = quick_rows(records, CSV, "csv", COLUMNS, names)
    slow = spark_rows(spark, records, lambda frame: parse_csv(frame, COLUMNS, ["_n"], names, CSV), COLUMNS)
    compare(records, quick, slow, 0.5)
    assert sum(row is not None for row in quick) > 200


def test_one_bad_record_does_not_slow_down_all_others() -> None:
    records = [b'{"i": %d}\n' % n for n in range(5000)]
    records[1234] = b'{"i": "x"}\n'
    parse = quick_parser(FileFormat("jsonl"), "lines", COLUMNS, ())
    parts = list(parsed([piece_of(records)], parse))
    refused = [part for part, table in parts if table is None]
    assert sum(len(part) for part in refused) < 100
    assert [int(at) for part, _ in parts for at in part.positions] == list(range(5000))
    assert [part.end for part, _ in parts][-1] == 5000


def test_a_signal_that_arrives_meanwhile_is_handled_and_cancels_nothing() -> None:
    """Arrow's reader gives up in the main thread: an app that SIGTERM ends while it loads would fail."""
    values = pa.array([b"%d,x%d\n" % (n, n) for n in range(50_000)], pa.binary())
    columns = Schema.of([Column("a", parse_type("INT")), Column("b", parse_type("STRING"))])
    parse = quick_parser(CSV, "csv", columns, ("a", "b"))
    assert parse is not None
    taken: list[int] = []
    done = threading.Event()

    def send() -> None:
        while not done.wait(0.001):
            os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=send)
    before = signal.signal(signal.SIGTERM, lambda number, frame: taken.append(number))
    try:
        sender.start()
        while len(taken) < 50:
            table = parse(values)
            assert table is not None
            assert table.num_rows == 50_000
    finally:
        done.set()
        sender.join()
        signal.signal(signal.SIGTERM, before)


def test_a_type_that_arrow_does_not_read_is_left_to_spark() -> None:
    for type_ in ("MAP<STRING, INT>", "FLOAT", "BINARY", "STRUCT<at: TIMESTAMP>"):
        columns = Schema.of([Column("x", parse_type(type_))])
        assert quick_parser(FileFormat("jsonl"), "lines", columns, ()) is None


def test_names_in_other_letters_are_left_to_spark() -> None:
    rows = quick_rows(
        [b'{"I": 1}\n', b'{"i": 1, "I": 2}\n', b'{"s": "I"}\n'], FileFormat("jsonl"), "lines", COLUMNS, ()
    )
    assert [None if row is None else row["i"] for row in rows] == [None, 1, None]
