"""Files as a sink: staged, published, recovered; every value readable again as it was."""

import datetime as dt
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.contracts.sink import Mark, SinkSpec
from millpond.contracts.source import SourceSpec
from millpond.errors import MillpondError
from millpond.options import complete
from millpond.schema import Column, Schema
from millpond.sinks.file import OPTIONS, PLUGIN, FileSink
from millpond.sources.files.source import OPTIONS as SOURCE_OPTIONS
from millpond.sources.files.source import PLUGIN as SOURCE
from millpond.sources.files.table import FileTable
from millpond.sql.parser import parse_type
from millpond.testing.sources import content_of
from millpond.uris import parse_uri

FIRST, SECOND = Mark("flow", 0, 0), Mark("flow", 1, 0)
TYPES = "i INT, s STRING, d DECIMAL(20,4), t TIMESTAMP, day DATE, b BOOLEAN, f DOUBLE"
ROWS = [
    (1, "x", Decimal("10.5000"), dt.datetime(2026, 1, 2, 3, 4, 5, 120000), dt.date(2026, 1, 2), True, 1.5),
    (2, "", Decimal("-0.0001"), dt.datetime(2026, 1, 2, 3, 4, 5), None, False, None),
    (3, None, None, None, dt.date(1999, 12, 31), None, 1e300),
    (4, ' "q", a\nb é ', Decimal("1234567890123456.7890"), dt.datetime(1969, 7, 20), None, None, -0.5),
]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out folder"


@pytest.fixture
def sink(tmp_path: Path) -> Any:
    def open_(**values: str) -> FileSink:
        full = complete(values, OPTIONS, {})
        return FileSink(SinkSpec("k1", parse_uri("file://./out%20folder"), full, tmp_path))

    return open_


@pytest.fixture
def rows(spark: Any) -> Any:
    return spark.createDataFrame(ROWS, TYPES).coalesce(1)


def files(out: Path) -> list[str]:
    return sorted(file.name for file in out.iterdir() if file.is_file())


def read_back(spark: Any, out: Path, state: Path) -> list[tuple[Any, ...]]:
    columns = Schema.of(Column(*_column(text)) for text in TYPES.split(", "))
    values = complete({}, SOURCE_OPTIONS, {})
    spec = SourceSpec("s", parse_uri(f"file://{out}"), values, columns, out)
    records = pa.concat_tables(list(content_of(FileTable(spec), spec, SOURCE, lambda: spark)))
    plain = records.set_column(3, "t", records["t"].cast(pa.timestamp("us")))
    return [tuple(row.values())[:7] for row in plain.to_pylist()]


def _column(text: str) -> tuple[str, Any]:
    name, _, type_ = text.partition(" ")
    return name, parse_type(type_)


@pytest.mark.spark
@pytest.mark.parametrize("format_", ["jsonl", "json", "csv", "parquet"])
def test_what_is_written_can_be_read_as_it_was(
    sink: Any, rows: Any, spark: Any, out: Path, tmp_path: Path, format_: str
) -> None:
    opened = sink(format=format_)
    opened.publish(opened.stage(rows, FIRST))
    assert files(out) == [f"flow-00000000-000-00000.{format_}"]
    assert read_back(spark, out, tmp_path / "state") == ROWS
    assert opened.rows_written() == 4


@pytest.mark.spark
def test_json_has_nulls_exact_numbers_and_times_in_utc(sink: Any, rows: Any, out: Path) -> None:
    opened = sink()
    opened.publish(opened.stage(rows, FIRST))
    lines = (out / files(out)[0]).read_text().splitlines()
    assert '"d":10.5000' in lines[0]
    assert json.loads(lines[0])["t"] == "2026-01-02T03:04:05.12Z"
    assert json.loads(lines[1])["t"] == "2026-01-02T03:04:05Z"
    assert json.loads(lines[2]) == {"i": 3, "s": None, "d": None, "t": None, "day": "1999-12-31", "b": None, "f": 1e300}
    assert '"d":1234567890123456.7890' in lines[3]


@pytest.mark.spark
def test_nothing_is_seen_before_it_is_published_and_publishing_twice_changes_nothing(
    sink: Any, rows: Any, out: Path
) -> None:
    opened = sink()
    staged = json.loads(json.dumps(opened.stage(rows, FIRST)))
    assert files(out) == []
    opened.publish(staged)
    before = {name: (out / name).read_bytes() for name in files(out)}
    opened.publish(staged)
    sink().publish(staged)
    assert {name: (out / name).read_bytes() for name in files(out)} == before


@pytest.mark.spark
def test_staging_a_mark_again_replaces_the_first_try(sink: Any, rows: Any, out: Path) -> None:
    opened = sink()
    opened.stage(rows, FIRST)
    opened.publish(opened.stage(rows.limit(1), FIRST))
    assert len((out / files(out)[0]).read_text().splitlines()) == 1


@pytest.mark.spark
def test_recovery_publishes_what_was_committed_and_discards_the_rest(sink: Any, rows: Any, out: Path) -> None:
    opened = sink()
    staged = opened.stage(rows, FIRST)
    opened.stage(rows, SECOND)
    again = sink()
    again.publish(staged)
    again.discard()
    assert files(out) == ["flow-00000000-000-00000.jsonl"]
    assert list((out / ".staging" / "app").iterdir()) == []


def written_by(tmp_path: Path, writer: str) -> FileSink:
    return FileSink(SinkSpec("k1", parse_uri("file://./out"), {"format": "jsonl"}, tmp_path, writer=writer))


def test_two_apps_write_into_one_folder_and_neither_touches_what_the_other_wrote(tmp_path: Path) -> None:
    first, second = written_by(tmp_path, "aaaa"), written_by(tmp_path, "bbbb")
    ours, theirs = pa.table({"id": [1]}), pa.table({"id": [2]})
    staged = first.stage(ours, FIRST)
    second.discard()
    second.publish(second.stage(theirs, FIRST) or {})
    first.publish(staged or {})
    assert {name: (tmp_path / "out" / name).read_text() for name in files(tmp_path / "out")} == {
        "aaaa-flow-00000000-000-00000.jsonl": '{"id":1}\n',
        "bbbb-flow-00000000-000-00000.jsonl": '{"id":2}\n',
    }


def test_a_file_that_is_there_already_is_never_replaced(tmp_path: Path) -> None:
    sink = written_by(tmp_path, "aaaa")
    staged: Any = sink.stage(pa.table({"id": [1]}), FIRST)
    assert staged is not None
    there = tmp_path / "out" / staged["files"][0][1]
    there.write_text("of a copy of the state directory")
    with pytest.raises(MillpondError, match=r"MP601 .*already exists"):
        sink.publish(staged)
    assert there.read_text() == "of a copy of the state directory"


@pytest.mark.spark
def test_files_are_as_readable_as_the_user_lets_them_be(tmp_path: Path, rows: Any) -> None:
    before = os.umask(0o027)
    try:
        sink = written_by(tmp_path, "aaaa")
        for mark, given in ((FIRST, rows), (SECOND, rows.toArrow())):
            sink.publish(sink.stage(given, mark) or {})
        private = SinkSpec("k1", parse_uri("file://./kept"), {"format": "parquet"}, tmp_path, private=True)
        kept = FileSink(private)
        kept.publish(kept.stage(pa.table({"id": [1]}), FIRST) or {})
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "out").glob("*.jsonl")} == {0o640}
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "kept").rglob("*")} == {0o600, 0o700}


@pytest.mark.spark
def test_a_crash_in_the_middle_of_publishing_is_finished(sink: Any, rows: Any, out: Path) -> None:
    opened = sink()
    staged = opened.stage(rows.repartition(3), FIRST)
    assert len(staged["files"]) > 1
    name, final = staged["files"][0]
    (out / ".staging" / "app" / staged["staged"] / name).rename(out / final)
    opened.publish(staged)
    assert len(files(out)) == len(staged["files"])


@pytest.mark.spark
@pytest.mark.parametrize("format_", ["jsonl", "csv", "parquet"])
def test_an_empty_result_leaves_no_file(sink: Any, rows: Any, out: Path, format_: str) -> None:
    assert sink(format=format_).stage(rows.where("i > 100"), FIRST) is None
    assert files(out) == []


@pytest.mark.spark
def test_rows_keep_their_order_over_several_files(sink: Any, spark: Any, out: Path) -> None:
    opened = sink()
    opened.publish(opened.stage(spark.range(0, 1000, 1, 4), FIRST))
    text = "".join((out / name).read_text() for name in files(out))
    assert [json.loads(line)["id"] for line in text.splitlines()] == list(range(1000))
    assert len(files(out)) == 4


@pytest.mark.spark
def test_nested_values_are_written(sink: Any, spark: Any, out: Path) -> None:
    nested = spark.sql("SELECT array(1, null) AS l, named_struct('t', TIMESTAMP '2026-01-01 00:00:00.5') AS o")
    for format_, mark in (("jsonl", FIRST), ("csv", SECOND)):
        opened = sink(format=format_)
        opened.publish(opened.stage(nested, mark))
    first = json.loads((out / files(out)[0]).read_text())
    assert first == {"l": [1, None], "o": {"t": "2026-01-01T00:00:00.500000Z"}}
    assert (out / files(out)[1]).read_text().startswith('l,o\n"[1,null]",')


@pytest.mark.spark
def test_a_failing_query_is_not_blamed_on_the_disk(sink: Any, spark: Any) -> None:
    wrong = spark.sql("SELECT 1 / (id - 1) AS x FROM range(3)")
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO") as caught:
        sink().stage(wrong, FIRST)
    assert not isinstance(caught.value, MillpondError)


def test_a_plain_file_is_no_folder(sink: Any, out: Path) -> None:
    out.write_text("x")
    with pytest.raises(MillpondError) as caught:
        sink()
    assert caught.value.code == "MP601"


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(MillpondError) as caught:
        FileSink(SinkSpec("k1", parse_uri("file://./o"), {"format": "csv"}, tmp_path))
    assert caught.value.code == "MP601"
    assert "writable" in caught.value.hint


def test_a_full_disk_is_reported(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = sink()

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    (opened._staging / "m").mkdir()
    with pytest.raises(MillpondError) as caught:
        opened.publish({"staged": "m", "files": [], "rows": 0})
    assert caught.value.code == "MP805"


def test_a_pattern_is_no_sink(tmp_path: Path) -> None:
    assert PLUGIN.validate is not None
    spec = SinkSpec("k1", parse_uri("file://./out/*.csv"), {"format": "csv"}, tmp_path)
    assert "pattern" in str(PLUGIN.validate(spec))


@pytest.mark.spark
def test_parquet_keeps_types(sink: Any, rows: Any, out: Path) -> None:
    opened = sink(format="parquet")
    opened.publish(opened.stage(rows, FIRST))
    assert str(pq.read_schema(out / files(out)[0]).field("d").type) == "decimal128(20, 4)"
