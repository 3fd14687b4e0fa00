"""Records that are parsed value by value on the driver are what Spark reads, reasons and raw bytes included."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from tests.seeds import FRESH
from tests.sources.test_arrow_parsing import COLUMNS, CSV_VALUES, JSON_VALUES, NESTED

from millpond.schema import Column, Schema
from millpond.sources.records.formats import FileFormat
from millpond.sources.records.text_parsing import Texts, Uncertain, parse_csv, parse_json
from millpond.sql.parser import parse_type

MORE = Schema.of(
    Column(name, parse_type(type_))
    for name, type_ in {
        "i": "SMALLINT",
        "f": "FLOAT",
        "m": "MAP<STRING, INT>",
        "l": "ARRAY<DOUBLE>",
        "d": "DECIMAL(38,18)",
        "t": "DATE",
        "y": "BINARY",
        "g": "ARRAY<MAP<STRING, STRING>>",
    }.items()
)
ENDS = ["\n", "\r\n", "", " \n", " x\n", "{}\n", " null\n", ",\n"]
RUBBISH = [
    b"null\n",
    b"5\n",
    b'"x"\n',
    b"true\n",
    b"rubbish",
    b"{} null {}\n",
    b"{\n",
    b'{"i"',
    b"}\n",
    b"<xml/>",
    b"-",
]
RUBBISH += [b"\xff\n", b'{"s": "\xff"}\n', b"{}\n", b"{'i': 1}", b'{"i": 1,}', b"{i: 1}", b'{"i": 1} // no', b"[{}]\n"]
VALUES = [
    *JSON_VALUES,
    *['{"a": 1, "b": "2"}', '{"a": null}', '{"a": 1.5}', '{"a": {"b": 1}}', '[1, 2.5, "3", null]', '["x"]', '"[1, 2]"'],
    *['"{\\"a\\": 1}"', '[{"a": 1.50}, {"b": [1, {"c": 2.50}]}]', '"AQID"', '"AQI"', '"*"', "1e39", "0.1000000001"],
    *['"Infinity"', '"NaN"', '"-1e3"', '"1e400"', '"a\\u0001b"', '{"a\\n": "é\\/"}', "[[]]", '" [1]"', '"null"', "1.0"],
]


def records_of(columns: Schema, draw: random.Random, count: int) -> list[bytes]:
    records = []
    for _ in range(count):
        names = [name for name in columns.names if draw.random() < 0.3] or [columns.names[0]]
        if draw.random() < 0.1:
            names.append(draw.choice(["other", *columns.names]))
        names = [name.upper() if draw.random() < 0.05 else name for name in names]
        members = ", ".join(f'"{name}": {draw.choice(VALUES)}' for name in names)
        records.append(f"{{{members}}}{draw.choice(ENDS) if draw.random() < 0.1 else chr(10)}".encode())
    return [*records, *RUBBISH]


def on_driver(records: Sequence[bytes], parse: Callable[[Texts], pa.Table]) -> list[Any]:
    """Each record, taken alone; None where it is left to Spark."""
    found: list[str | None] = []
    for record in records:
        try:
            table = parse(Texts([record], [None], [True]))
            assert table.num_rows == 1
            found.append(repr(list(table.to_pylist()[0].values())))
        except Uncertain:
            found.append(None)
    return found


def in_spark(spark: Any, records: Sequence[bytes], parse: Any, columns: Schema) -> list[Any]:
    rows = [(n, record, True, None) for n, record in enumerate(records)]
    frame = spark.createDataFrame(rows, "_n INT, _mp_value BINARY, _mp_suspect BOOLEAN, _mp_problem STRING")
    table = parse(frame).toArrow().sort_by("_n").select([*columns.names, "_mp_bad", "_mp_raw"])
    return [repr(list(row.values())) for row in table.to_pylist()]


def compare(records: Sequence[bytes], quick: list[Any], slow: list[Any], uncertain: float) -> None:
    pairs = zip(records, quick, slow, strict=True)
    assert [(record, a, b) for record, a, b in pairs if a is not None and a != b] == []
    assert sum(found is None for found in quick) < uncertain * len(records)


@pytest.mark.spark
@pytest.mark.parametrize("columns", [COLUMNS, NESTED, MORE], ids=["flat", "nested", "more"])
@pytest.mark.parametrize("seed", [1, FRESH])
def test_json_records_are_what_spark_reads(spark: Any, columns: Schema, seed: int) -> None:
    from millpond.sources.records import spark_parsing

    records = records_of(columns, random.Random(seed), 1500)
    quick = on_driver(records, lambda texts: parse_json(texts, columns))
    slow = in_spark(spark, records, lambda frame: spark_parsing.parse_json(frame, columns, ["_n"]), columns)
    compare(records, quick, slow, 0.5)


@pytest.mark.spark
@pytest.mark.parametrize("seed", [1, FRESH])
def test_csv_records_are_what_spark_reads(spark: Any, seed: int) -> None:
    from millpond.sources.records import spark_parsing

    draw, form = random.Random(seed), FileFormat("csv")
    names = ["other", *COLUMNS.names]
    records = []
    for _ in range(1500):
        values = [draw.choice(CSV_VALUES) if draw.random() < 0.2 else "" for _ in names]
        values += [""] if draw.random() < 0.05 else []
        records.append((",".join(values) + draw.choice(["\n", "\r\n", ""])).encode())
    records += [b"x\n", b"a,b,c,d,e,f,g,h,i,j,k,l\n", b"\xff,,,,,,,,\n"]
    quick = on_driver(records, lambda texts: parse_csv(texts, COLUMNS, names, form))
    slow = in_spark(spark, records, lambda frame: spark_parsing.parse_csv(frame, COLUMNS, ["_n"], names, form), COLUMNS)
    compare(records, quick, slow, 0.5)


def test_records_are_parsed_together_as_they_are_alone() -> None:
    records = records_of(MORE, random.Random(FRESH), 300)
    alone = on_driver(records, lambda texts: parse_json(texts, MORE))
    certain = [record for record, found in zip(records, alone, strict=True) if found is not None]
    together = parse_json(Texts(certain, [None] * len(certain), [True] * len(certain)), MORE).to_pylist()
    assert [repr(list(row.values())) for row in together] == [found for found in alone if found is not None]


def test_a_record_with_a_problem_keeps_its_reason_and_its_bytes() -> None:
    found = parse_json(Texts([b"{}\n", b"abc\r\n"], [None, "too long"], [False, False]), COLUMNS)
    assert found["_mp_bad"].to_pylist() == [None, "too long"]
    assert found["_mp_raw"].to_pylist() == [None, b"abc"]
