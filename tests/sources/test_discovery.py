"""Columns found by looking at files."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.contracts.source import Found
from millpond.errors import SourceError
from millpond.schema import type_name
from millpond.sources.files.discovery import discover_columns
from millpond.sources.files.source import PLUGIN


@pytest.fixture
def discover(spec: Any) -> Any:
    def found(uri: str, **options: str) -> Found:
        assert PLUGIN.discover is not None
        return PLUGIN.discover(spec(uri, **options))

    return found


def types(found: Found) -> dict[str, str]:
    assert found.columns is not None
    return {column.name: type_name(column.type) for column in found.columns}


def test_json_types_are_inferred_from_the_values(discover: Any, data: Path) -> None:
    rows = [
        '{"n": 1, "d": 10.50, "mixed": 1, "e": 1e3, "day": "2026-01-01", "t": "2026-01-01T10:00:00Z", "b": true}',
        '{"n": -2, "d": 3, "mixed": 2.125, "s": "x", "none": null, "l": [1, 2.5], "o": {"x": 1, "y": {"z": "a"}}}',
        '{"t": "2026-01-01 10:00", "not": "2026-13-45", "both": "2026-01-01", "text": 1, "o": {"w": null}}',
        '{"both": "2026-01-01 10:00:00.5+02:00", "text": "a", "big": 99999999999999999999}',
    ]
    (data / "a.jsonl").write_text("\n".join(rows))
    assert types(discover("file://./a.jsonl")) == {
        "n": "BIGINT",
        "d": "DECIMAL(38,2)",
        "mixed": "DECIMAL(38,3)",
        "e": "DOUBLE",
        "day": "DATE",
        "t": "TIMESTAMP",
        "b": "BOOLEAN",
        "s": "STRING",
        "none": "STRING",
        "l": "ARRAY<DECIMAL(38,1)>",
        "o": "STRUCT<x: BIGINT, y: STRUCT<z: STRING>, w: STRING>",
        "not": "STRING",
        "both": "TIMESTAMP",
        "text": "STRING",
        "big": "DECIMAL(38,0)",
    }


def test_csv_types_are_inferred_from_the_texts(discover: Any, data: Path) -> None:
    (data / "a.csv").write_text(
        'id,zip,phone,price,e,ok,day,at,note,empty\n1,007,+49,10.5,1.5e3,true,2026-01-01,2026-01-01T10:00,"a, b",\n'
        "-2,100,0,3.125,2,FALSE,,,x,\n"
    )
    assert types(discover("file://./a.csv")) == {
        "id": "BIGINT",
        "zip": "STRING",
        "phone": "STRING",
        "price": "DECIMAL(38,3)",
        "e": "DOUBLE",
        "ok": "BOOLEAN",
        "day": "DATE",
        "at": "TIMESTAMP",
        "note": "STRING",
        "empty": "STRING",
    }


def test_bad_rows_of_the_sample_do_not_matter(discover: Any, data: Path) -> None:
    (data / "a.csv").write_text('a,b\n1,2\ntoo,many,fields\n3\n4,"5\n')
    assert types(discover("file://./a.csv")) == {"a": "BIGINT", "b": "BIGINT"}
    (data / "b.jsonl").write_text('{"a": 1}\nrubbish\n[1]\n{"a":')
    assert types(discover("file://./b.jsonl")) == {"a": "BIGINT"}


@pytest.mark.parametrize("depth", [1_100, 100_000])
def test_what_is_nested_too_deeply_is_text(discover: Any, data: Path, depth: int) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    (data / "x.jsonl").write_text(f'{deep}\n{{"b": 1}}\n')
    found = types(discover("file://./x.jsonl"))
    assert found["b"] == "BIGINT"
    assert found.get("a", "STRING").count("STRUCT") < 50


def test_only_the_sample_is_looked_at_in_the_order_of_arrival(discover: Any, data: Path) -> None:
    (data / "a.jsonl").write_text('{"a": 1}\n{"a": 2}\n{"a": "x"}\n')
    assert types(discover("file://./a.jsonl", sample_rows="2")) == {"a": "BIGINT"}
    assert types(discover("file://./a.jsonl")) == {"a": "STRING"}


def test_without_header_columns_are_numbered(discover: Any, data: Path) -> None:
    (data / "a.csv").write_text("1,x\n2,y\n")
    assert types(discover("file://./a.csv", header="false")) == {"c1": "BIGINT", "c2": "STRING"}


def test_names_that_differ_in_case_are_one_column(discover: Any, data: Path) -> None:
    (data / "a.jsonl").write_text('{"Id": 1}\n{"ID": 2.5}\n')
    assert types(discover("file://./a.jsonl")) == {"Id": "DECIMAL(38,1)"}


@pytest.mark.parametrize("header", ["a,b,a", "a,A"])
def test_a_header_with_a_name_twice_is_an_error(discover: Any, data: Path, header: str) -> None:
    (data / "a.csv").write_text(f"{header}\n1,2,3\n")
    with pytest.raises(SourceError) as caught:
        discover("file://./a.csv")
    assert caught.value.code == "MP505"


def test_arrays_objects_and_compressed_files_are_looked_into(discover: Any, data: Path) -> None:
    (data / "a.json").write_text(json.dumps([{"a": 1}, {"a": 2, "b": "x"}], indent=2))
    assert types(discover("file://./a.json")) == {"a": "BIGINT", "b": "STRING"}
    (data / "o.json").write_text(json.dumps({"a": 1.5}, indent=2))
    assert types(discover("file://./o.json")) == {"a": "DECIMAL(38,1)"}
    (data / "z.csv.gz").write_bytes(gzip.compress(b"a\n1\n"))
    assert types(discover("file://./z.csv.gz")) == {"a": "BIGINT"}


def test_another_encoding_is_understood_when_given(discover: Any, data: Path) -> None:
    (data / "a.csv").write_text("größe,name\n1,José\n", encoding="latin-1")
    assert types(discover("file://./a.csv", encoding="latin-1")) == {"größe": "BIGINT", "name": "STRING"}
    with pytest.raises(SourceError) as caught:
        discover("file://./a.csv")
    assert caught.value.code == "MP502"
    assert "'encoding'" in caught.value.hint


def test_parquet_states_its_own_columns(discover: Any, data: Path) -> None:
    table = pa.table(
        {
            "i": pa.array([1], pa.int32()),
            "d": pa.array([None], pa.decimal128(12, 2)),
            "t": pa.array([0], pa.timestamp("ms")),
            "s": pa.array(["x"]).dictionary_encode(),
            "l": pa.array([["x"]], pa.large_list(pa.large_string())),
            "u": pa.array([1], pa.uint32()),
        }
    )
    pq.write_table(table, data / "a.parquet")
    assert types(discover("file://./a.parquet")) == {
        "i": "INT",
        "d": "DECIMAL(12,2)",
        "t": "TIMESTAMP",
        "s": "STRING",
        "l": "ARRAY<STRING>",
        "u": "BIGINT",
    }


def test_what_is_not_there_is_missing_and_what_is_empty_has_no_columns_yet(discover: Any, data: Path) -> None:
    assert discover("file://./none.csv").missing
    assert discover("file://./none/*.csv").missing
    (data / "empty.csv").touch()
    (data / "header.csv").write_text("a,b\n")
    (data / "blank.jsonl").write_text("\n\n")
    (data / "folder").mkdir()
    for name in ("empty.csv", "header.csv", "blank.jsonl", "folder"):
        found = discover(f"file://./{name}")
        assert (found.columns, found.missing) == (None, False), name


def test_records_of_which_none_can_be_read_are_an_error(discover: Any, data: Path) -> None:
    (data / "a.jsonl").write_text("rubbish\nmore\n")
    with pytest.raises(SourceError) as caught:
        discover("file://./a.jsonl")
    assert caught.value.code == "MP505"


def test_a_name_without_a_format_is_an_error_that_lists_them(discover: Any, data: Path) -> None:
    (data / "a.data").write_text("x")
    with pytest.raises(SourceError) as caught:
        discover("file://./a.data")
    assert caught.value.code == "MP508"
    assert "jsonl | json | csv | parquet" in caught.value.hint


@pytest.mark.parametrize(
    ("uri", "options", "wrong"),
    [
        ("file://", {}, "needs a path"),
        ("file://./a.csv?x=1", {}, "no parameter 'x'"),
        ("file://./a.csv", {"encoding": "klingon"}, "no encoding 'klingon'"),
    ],
)
def test_a_wrong_uri_or_option_is_reported(
    spec: Any, uri: str, options: dict[str, str], wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = spec(uri.partition("?")[0], **options)
    from dataclasses import replace

    from millpond.uris import parse_uri

    assert PLUGIN.validate is not None
    assert wrong in str(PLUGIN.validate(replace(made, uri=parse_uri(uri))))


@pytest.mark.parametrize("share", [0.5, 0.02])
def test_a_cut_off_compressed_file_shows_the_columns_it_has_so_far(discover: Any, data: Path, share: float) -> None:
    whole = gzip.compress(b"k,v\n" + b"".join(b"%d,x%d\n" % (n, n * 7919 % 100_003) for n in range(20_000)))
    (data / "a.csv.gz").write_bytes(whole[: int(len(whole) * share)])
    found = discover("file://./a.csv.gz").columns
    assert found is not None
    assert found.names == ("k", "v")


def test_declared_columns_are_looked_for_in_the_header(spec: Any, data: Path) -> None:
    (data / "a.csv").write_text("k,v\n1,2\n")
    assert discover_columns(spec("file://./a.csv", {"V": "INT"})).columns is not None
    with pytest.raises(SourceError, match=r"MP503.*no column 'w'"):
        discover_columns(spec("file://./a.csv", {"k": "INT", "w": "INT"}))


def test_an_empty_array_is_a_source_without_records_yet(discover: Any, data: Path) -> None:
    (data / "a.json").write_text(" []\n")
    found = discover("file://./a.json")
    assert found.columns is None
    assert "contains no records" in found.detail


def test_a_file_that_cannot_be_read_does_not_hide_the_columns_of_the_others(
    discover: Any, spec: Any, data: Path
) -> None:
    (data / "a.csv.gz").write_bytes(b"no gzip")
    (data / "b.csv").write_text("k,v\n1,2\n")
    found = discover("file://.").columns
    assert found is not None
    assert found.names == ("k", "v")
    assert discover_columns(spec("file://.", {"v": "INT"})).columns is not None


@pytest.mark.parametrize("columns", [None, {"k": "INT"}])
@pytest.mark.parametrize("broken", [b"no gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + b"\xff" * 100])
def test_a_source_of_which_no_file_can_be_read_is_reported(spec: Any, data: Path, broken: bytes, columns: Any) -> None:
    (data / "a.csv.gz").write_bytes(broken)
    with pytest.raises(SourceError, match=r"MP502.*a\.csv\.gz' is not a gzip file"):
        discover_columns(spec("file://.", columns))
