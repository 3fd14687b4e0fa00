"""Files through Spark: as a stream, and as a table."""

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from millpond.contracts.source import ORDER_MAJOR, ORDER_MINOR, SourceSpec, SourceStatus
from millpond.engine.stream_reader import open_reader
from millpond.errors import SourceError
from millpond.sources.files.source import PLUGIN
from millpond.sources.files.table import FileTable
from millpond.testing.clock import Clock
from millpond.testing.sources import content_of, hand_over

SHAPE = ["_source", "_partition", "_offset", "_mp_major", "_mp_minor", "_mp_bad", "_mp_raw"]


def rows_of(frame: Any, *columns: str) -> list[tuple[Any, ...]]:
    """The good rows in stream order."""
    if isinstance(frame, pa.Table):
        rows = frame.filter(pc.is_null(frame["_mp_bad"])).select(list(columns)).to_pylist()
        return [tuple(row.values()) for row in rows]
    good = frame.where("_mp_bad IS NULL").orderBy(ORDER_MAJOR, ORDER_MINOR)
    return [tuple(row) for row in good.select(*[f"`{name}`" for name in columns]).collect()]


@pytest.fixture
def run(spark: Any, spec: Any, state: Path) -> Any:
    """Runs the stream until it has taken what is there, as one start of an app does; returns the batches."""

    done = 0

    def once(uri: str, columns: dict[str, str], **options: str) -> list[list[tuple[Any, ...]]]:
        reader = open_reader(spec(uri, columns, **options), "file", state / "source")
        reader.poll()
        batches: list[list[tuple[Any, ...]]] = []

        def take(raw: Any, batch_id: int) -> None:
            records = reader.records(raw)
            assert records.columns == [*columns, *SHAPE]
            first, again = rows_of(records, *columns), rows_of(reader.records(raw), *columns)
            assert first == again
            assert reader.size_hint(raw) > 0
            batches.append(first)
            reader.committed(batch_id)

        nonlocal done
        done = hand_over(reader, spark, take, done)
        return batches

    return once


@pytest.mark.spark
def test_a_stream_takes_each_record_once_over_restarts(run: Any, data: Path) -> None:
    columns = {"a": "INT", "b": "STRING"}
    (data / "x.jsonl").write_text('{"a": 1, "b": "p"}\n{"a": 2}\n')
    assert run("file://.", columns) == [[(1, "p"), (2, None)]]
    assert run("file://.", columns) == []
    with (data / "x.jsonl").open("a") as out:
        out.write('{"a": 3}\n{"a": 4')
    (data / "y.jsonl.gz").write_bytes(gzip.compress(b'{"a": 5}\n'))
    assert run("file://.", columns) == [[(3, None), (5, None)]]


@pytest.mark.spark
def test_a_batch_is_one_feed_file_in_order(run: Any, data: Path) -> None:
    (data / "x.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(10)))
    batches = run("file://./x.csv", {"n": "INT"}, max_rows_per_batch="4")
    assert batches == [[(0,), (1,), (2,), (3,)], [(4,), (5,), (6,), (7,)], [(8,), (9,)]]


@pytest.mark.spark
def test_csv_files_with_other_orders_of_columns_are_read_together(run: Any, data: Path) -> None:
    (data / "a.csv").write_text('id,name\n1,"x, y"\n')
    (data / "b.csv").write_text("extra,NAME,ID\n?,z,2\n")
    (batch,) = run("file://.", {"id": "INT", "name": "STRING"})
    assert sorted(batch) == [(1, "x, y"), (2, "z")]


@pytest.mark.spark
def test_parquet_streams_keep_exact_values(run: Any, data: Path) -> None:
    prices = [Decimal("1.10"), Decimal("12345678901234567890.55"), None]
    pq.write_table(pa.table({"p": pa.array(prices, pa.decimal128(30, 2)), "n": [1, 2, 3]}), data / "a.parquet")
    (batch,) = run("file://.", {"n": "INT", "p": "DECIMAL(30,2)"})
    assert batch == [(1, prices[0]), (2, prices[1]), (3, None)]


@pytest.mark.spark
def test_columns_may_have_any_name_and_good_and_bad_records_come_together(run: Any, data: Path) -> None:
    columns = {"value": "INT", "source": "STRING", "position": "INT", "a b": "STRUCT<header: INT>"}
    good = {"value": 1, "source": "x", "position": 2, "a b": {"header": 3}}
    lines = [good, {**good, "value": "4"}, {**good, "value": "many"}, {**good, "value": 5}]
    (data / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (batch,) = run("file://./x.jsonl", columns)
    assert [row[:3] for row in batch] == [(1, "x", 2), (4, "x", 2), (5, "x", 2)]
    assert [tuple(row[3]) for row in batch] == [(3,)] * 3


@pytest.mark.spark
def test_a_feed_file_is_removed_when_its_batch_is_done_but_not_before(run: Any, data: Path, state: Path) -> None:
    for n in range(5):
        with (data / "a.jsonl").open("a") as out:
            out.write(json.dumps({"a": n}) + "\n")
        assert run("file://.", {"a": "INT"}) == [[(n,)]]
    assert len(list((state / "source" / "feed").glob("*.parquet"))) <= 2


class Opened:
    """A table over files, and all of its records."""

    def __init__(self, spec: SourceSpec, spark: Any) -> None:
        self.reader, self._spec, self._spark = FileTable(spec), spec, spark

    def read(self) -> pa.Table:
        batches = list(content_of(self.reader, self._spec, PLUGIN, self._spark))
        return pa.concat_tables(batches) if batches else pa.table({"k": [], "_mp_bad": pa.array([], pa.string())})


@pytest.fixture
def table(spark: Any, spec: Any) -> Any:
    return lambda uri, columns, **options: Opened(spec(uri, columns, **options), lambda: spark)


@pytest.mark.spark
def test_a_table_has_the_whole_content_and_notices_every_change(table: Any, spark: Any, data: Path) -> None:
    (data / "a.csv").write_text("k,v\n1,x\n2,y")
    reader = table("file://.", {"k": "INT", "v": "STRING"})
    before = reader.reader.fingerprint()
    assert reader.reader.fingerprint() == before
    assert rows_of(reader.read(), "k", "v") == [(1, "x"), (2, "y")]
    assert reader.reader.status(SourceStatus()).bytes == 11
    assert reader.reader.progress().done == reader.reader.progress().total
    (data / "b.csv").write_text("k,v\n3,z\n")
    assert reader.reader.fingerprint() != before
    assert rows_of(reader.read(), "k") == [(1,), (2,), (3,)]
    (data / "a.csv").unlink()
    assert rows_of(reader.read(), "k") == [(3,)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("array.json", json.dumps([{"k": 1, "v": "x"}, {"k": 2, "v": "é"}], indent=1)),
        ("object.json", json.dumps({"k": 1, "v": "x"}, indent=1)),
        ("lines.json", '{"k": 1, "v": "x"}\n{"k": 2, "v": "é"}'),
        ("torture.csv", '\ufeffv,k,unused\r\n"x\r\n""q"", z",1,\r\n\r\n"",2,\r\n,3,\r\n'),
    ],
)
def test_every_layout_is_read_whole(table: Any, spark: Any, data: Path, name: str, text: str) -> None:
    (data / name).write_text(text, newline="")
    rows = rows_of(table(f"file://./{name}", {"k": "INT", "v": "STRING"}).read(), "k", "v")
    expected: dict[str, list[tuple[Any, ...]]] = {
        "object.json": [(1, "x")],
        "torture.csv": [(1, 'x\r\n"q", z'), (2, ""), (3, None)],
    }
    assert rows == expected.get(name, [(1, "x"), (2, "é")])


@pytest.mark.spark
def test_bad_records_say_where_they_are(table: Any, spark: Any, data: Path) -> None:
    (data / "a.csv").write_text("k\n1\nx\n")
    frame = table("file://./a.csv", {"k": "INT"}).read()
    (bad,) = frame.filter(pc.is_valid(frame["_mp_bad"])).to_pylist()
    assert bad["_mp_bad"] == "column 'k': 'x' is not an INT"
    assert bytes(bad["_mp_raw"]) == b"x"
    assert (bad["_source"], bad["_offset"]) == (str(data / "a.csv"), 4)


@pytest.mark.spark
def test_an_empty_file_is_an_empty_table(table: Any, spark: Any, data: Path) -> None:
    (data / "a.csv").touch()
    assert rows_of(table("file://./a.csv", {"k": "INT"}).read(), "k") == []


@pytest.mark.spark
def test_a_table_in_latin_1_is_read_when_given(table: Any, spark: Any, data: Path) -> None:
    (data / "a.csv").write_text("k;v\n1;José\n", encoding="latin-1")
    reader = table("file://./a.csv", {"k": "INT", "v": "STRING"}, encoding="latin-1", delimiter=";")
    assert rows_of(reader.read(), "k", "v") == [(1, "José")]


def test_a_watched_table_sees_additions_at_once_and_rewrites_when_they_are_over(
    spec: Any, data: Path, state: Path
) -> None:
    clock, file = Clock(0.0), data / "a.csv"
    file.write_text("k\n1\n2\n")
    reader = FileTable(spec("file://./a.csv", {"k": "INT"}, watch="true"), clock)
    first = reader.fingerprint()
    file.write_text("k\n1\n2\n3\n")
    added = reader.fingerprint()
    assert added != first
    file.write_text("k\n")
    assert reader.fingerprint() == added
    file.write_text("k\n7\n")
    clock.now += 0.4
    assert reader.fingerprint() == added
    clock.now += 0.6
    assert reader.fingerprint() != added


@pytest.mark.spark
@pytest.mark.parametrize(("watch", "bad"), [("true", 0), ("false", 1)])
def test_half_a_line_waits_in_a_watched_table_and_is_bad_in_another(
    table: Any, spark: Any, data: Path, watch: str, bad: int
) -> None:
    (data / "a.jsonl").write_text('{"k": 1}\n{"k": ')
    frame = table("file://./a.jsonl", {"k": "INT"}, watch=watch).read()
    assert rows_of(frame, "k") == [(1,)]
    assert pc.count(frame["_mp_bad"]).as_py() == bad


def test_a_table_whose_files_are_gone_is_missing(spec: Any, data: Path, state: Path) -> None:
    assert PLUGIN.open_table is not None
    (data / "a.csv").write_text("k\n1\n")
    reader = PLUGIN.open_table(spec("file://./a.csv", {"k": "INT"}))
    (data / "a.csv").unlink()
    with pytest.raises(SourceError) as caught:
        reader.fingerprint()
    assert caught.value.code == "MP501"


def test_a_missing_file_can_be_created_empty(spec: Any, data: Path, state: Path) -> None:
    assert PLUGIN.open_table is not None
    PLUGIN.open_table(spec("file://./new/a.csv", {"k": "INT"}, file_create_empty="true"))
    assert (data / "new" / "a.csv").read_bytes() == b""
    PLUGIN.open_table(spec("file://./folder", {"k": "INT"}, file_create_empty="true"))
    assert (data / "folder").is_dir()


@pytest.mark.parametrize("watch", ["false", "true"])
def test_a_table_of_a_cut_off_file_is_an_error_that_says_so(spec: Any, data: Path, state: Path, watch: str) -> None:
    (data / "a.csv.gz").write_bytes(gzip.compress(b"k\n" + b"1\n" * 1000)[:-4])
    with pytest.raises(SourceError, match=r"MP502.*is incomplete"):
        Opened(spec("file://./a.csv.gz", {"k": "INT"}, watch=watch), lambda: pytest.fail("Spark")).read()


def test_files_that_arrow_reads_need_no_spark(spec: Any, data: Path, state: Path) -> None:
    (data / "a.csv").write_text("k,v\n1,x\n2,\n")
    records = Opened(spec("file://./a.csv", {"k": "INT", "v": "STRING"}), lambda: pytest.fail("Spark")).read()
    assert records.select(["k", "v", "_offset"]).to_pylist() == [
        {"k": 1, "v": "x", "_offset": 4},
        {"k": 2, "v": None, "_offset": 8},
    ]
