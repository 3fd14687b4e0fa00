"""One file's records, piece by piece: positions, tails, encodings, layouts."""

import gzip
import json
from pathlib import Path

import pytest

from millpond.sources.records import text_reader
from millpond.sources.records.formats import FileFormat
from millpond.sources.records.text_reader import Piece, ReadSpec, Tail, fields, layout_of, pieces, read_header

JSONL, JSON, CSV = FileFormat("jsonl"), FileFormat("json"), FileFormat("csv")


def read(
    path: Path, form: FileFormat, *, start: int = 0, tail: Tail = Tail.LEAVE, width: int | None = None
) -> list[Piece]:
    layout = layout_of(path, form)
    assert layout is not None
    return list(pieces(path, ReadSpec(form, layout, start, tail, width)))


def values(found: list[Piece]) -> list[bytes]:
    return [value.rstrip(b"\r\n") for piece in found for value in piece.values.to_pylist()]


def positions(found: list[Piece]) -> list[int]:
    return [int(at) for piece in found for at in piece.positions]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a file"


def test_positions_are_the_bytes_at_which_records_start(file: Path) -> None:
    file.write_bytes(b'{"a": 1}\n\n{"a": "\xc3\xa9"}\r\n{"a": 3}\n')
    found = read(file, JSONL)
    assert values(found) == [b'{"a": 1}', b'{"a": "\xc3\xa9"}', b'{"a": 3}']
    assert positions(found) == [0, 10, 23]
    assert found[-1].end == file.stat().st_size
    assert values(read(file, JSONL, start=10)) == values(found)[1:]


@pytest.mark.parametrize(("tail", "wanted"), [(Tail.LEAVE, 1), (Tail.COMPLETE, 1), (Tail.TAKE, 2)])
def test_half_a_line_waits_for_its_end(file: Path, tail: Tail, wanted: int) -> None:
    file.write_bytes(b'{"a": 1}\n{"a": ')
    assert len(values(read(file, JSONL, tail=tail))) == wanted


@pytest.mark.parametrize(("tail", "wanted"), [(Tail.LEAVE, 1), (Tail.COMPLETE, 2)])
def test_a_whole_last_line_without_newline_is_taken_when_requested(file: Path, tail: Tail, wanted: int) -> None:
    file.write_bytes(b'{"a": 1}\n{"a": 2}')
    assert len(values(read(file, JSONL, tail=tail))) == wanted


@pytest.mark.parametrize(("last", "wanted"), [(b"3,4", 2), (b"3", 1), (b'3,"4', 1), (b'3,"4"', 2)])
def test_a_last_csv_row_is_whole_when_it_has_all_its_fields(file: Path, last: bytes, wanted: int) -> None:
    file.write_bytes(b"1,2\n" + last)
    assert len(values(read(file, CSV, tail=Tail.COMPLETE, width=2))) == wanted


def test_pieces_meet_at_record_ends(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_reader, "PIECE_BYTES", 64)
    lines = [json.dumps({"n": n, "text": "x" * (n % 100)}).encode() for n in range(200)]
    file.write_bytes(b"\n".join(lines) + b"\n")
    found = read(file, JSONL)
    assert len(found) > 10
    assert values(found) == lines
    data = file.read_bytes()
    assert [data[at : at + 6] for at in positions(found)] == [line[:6] for line in lines]


@pytest.mark.parametrize("piece_bytes", [7, 64, 100_000])
@pytest.mark.parametrize(
    ("form", "layout", "before", "long", "after"),
    [
        (CSV, "csv", b"1,a\n", b'2,"' + b"x\n3,fine\n" * 60 + b'"\n', b"4,d\n"),
        (CSV, "csv", b"1,a\n", b'2,"' + b'""\n3,""fine\n' * 60 + b'"\n', b"4,d\n"),
        (CSV, "csv", b"1,a\n", b'2,"' + b'"' * 600 + b'\n5,e\n"\n', b"4,d\n"),
        (CSV, "csv", b"1,a\n", b"2," + b'x"y ' * 200 + b"\n", b"4,d\n"),
        (CSV, "csv", b"1,a\n", b"2," + b"x" * 600 + b',"\n5,e\n"\n', b"4,d\n"),
        (JSONL, "lines", b'{"a": 1}\n', b'{"a": "' + b'{\\"a\\": 5}' * 100 + b'"}\n', b'{"a": 2}\n'),
        (JSON, "array", b'{"a": 1},', b'{"a": ["' + b'\\"]},{\\\\' * 100 + b'"]},', b'{"a": 2},'),
    ],
)
def test_a_record_that_is_too_long_is_one_bad_record_and_nothing_inside_is_read(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    piece_bytes: int,
    form: FileFormat,
    layout: str,
    before: bytes,
    long: bytes,
    after: bytes,
) -> None:
    monkeypatch.setattr(text_reader, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(text_reader, "RECORD_BYTES_MAX", 256)
    monkeypatch.setattr(text_reader, "RAW_BYTES_MAX", 20)
    bracket = b"[" if layout == "array" else b""
    file.write_bytes(bracket + before + long + after + long + after)
    found = [p for p in pieces(file, ReadSpec(form, layout, 0, Tail.LEAVE, 2)) if len(p)]
    if piece_bytes > len(long) * 2:
        # All of it is read at once: it is split as a whole, and longer than what has no end.
        assert sum(len(p) for p in found) == 5
        return
    assert [p.problem for p in found if p.problem] == ["a record longer than 0 MB"] * 2
    assert [v for p in found if p.problem for v in p.values.to_pylist()] == [long[:20]] * 2
    assert [v.strip(b" \n,") for p in found if not p.problem for v in p.values.to_pylist()] == [
        text.strip(b" \n,") for text in (before, after, after)
    ]
    assert positions(found) == [
        len(bracket) + at for at in (0, len(before), len(before + long), len(before + long + after))
    ] + [len(bracket + before + long + after + long)]


def test_a_record_that_is_too_long_and_never_ends_is_bad_only_where_nothing_can_follow(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_reader, "PIECE_BYTES", 64)
    monkeypatch.setattr(text_reader, "RECORD_BYTES_MAX", 256)
    file.write_bytes(b'1,a\n2,"never closed\n' + b"3,fine\n" * 100)
    assert values(read(file, CSV, tail=Tail.LEAVE)) == [b"1,a"]
    found = read(file, CSV, tail=Tail.TAKE)
    assert [p.problem for p in found] == [None, "a record longer than 0 MB"]
    assert found[-1].end == file.stat().st_size


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ('[{"a": 1}]', "array"),
        (' \n [\n {"a": 1}]', "array"),
        ('{"a": 1}\n{"a": 2}\n', "lines"),
        ('{"a": 1}', "lines"),
        ('{\n  "a": 1\n}\n', "object"),
        ("rubbish\nmore", "lines"),
    ],
)
def test_json_is_an_array_an_object_or_lines_by_its_content(file: Path, text: str, layout: str) -> None:
    file.write_text(text)
    assert layout_of(file, JSON) == layout


def test_a_pretty_object_is_one_record(file: Path) -> None:
    file.write_text(json.dumps({"a": 1, "b": [1, 2]}, indent=2))
    found = read(file, JSON)
    assert [json.loads(v) for v in values(found)] == [{"a": 1, "b": [1, 2]}]
    assert found[-1].closed


@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_gives_its_elements(file: Path, indent: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_reader, "PIECE_BYTES", 64)
    rows = [{"n": n, "t": "],[" * (n % 5)} for n in range(50)]
    file.write_text(json.dumps(rows, indent=indent) + "\n")
    found = read(file, JSON)
    assert [json.loads(v) for v in values(found)] == rows
    assert found[-1].closed


def test_half_an_array_gives_what_has_ended_and_goes_on_there(file: Path) -> None:
    file.write_text('[{"a": 1}, {"a": 2}, {"a"')
    found = read(file, JSON)
    assert [json.loads(v) for v in values(found)] == [{"a": 1}, {"a": 2}]
    file.write_text('[{"a": 1}, {"a": 2}, {"a": 3}]')
    more = list(pieces(file, ReadSpec(JSON, "array", found[-1].end, Tail.LEAVE)))
    assert [json.loads(v) for v in values(more)] == [{"a": 3}]


def test_an_array_without_end_is_a_bad_record_when_nothing_more_will_come(file: Path) -> None:
    file.write_text('[{"a": 1}, {"a"')
    assert [piece.problem for piece in read(file, JSON, tail=Tail.TAKE)] == [None, "the JSON array is never closed"]


def test_text_behind_an_array_is_a_bad_record(file: Path) -> None:
    file.write_text('[{"a": 1}] rubbish')
    assert [p.problem for p in read(file, JSON)] == [None, "text after the end of the JSON array"]


def test_a_byte_order_mark_is_no_part_of_the_first_record(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfa,b\n1,2\n")
    header = read_header(file, CSV, Tail.LEAVE)
    assert header is not None
    assert header.names == ("a", "b")
    assert values(read(file, CSV, start=header.end)) == [b"1,2"]


def test_compressed_files_are_read_from_any_position(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n{"a": 2}\n'))
    assert values(read(path, JSONL)) == [b'{"a": 1}', b'{"a": 2}']
    assert values(read(path, JSONL, start=9)) == [b'{"a": 2}']


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32"])
def test_other_encodings_become_utf8(file: Path, encoding: str) -> None:
    file.write_text("name,n\nJosé,1\n", encoding=encoding)
    form = FileFormat("csv", encoding=encoding)
    header = read_header(file, form, Tail.LEAVE)
    assert header is not None
    assert header.names == ("name", "n")
    assert values(read(file, form, start=header.end)) == ["José,1".encode()]


def test_bytes_that_are_not_utf8_are_suspect(file: Path) -> None:
    file.write_bytes(b"ok\n\xff\xfe\n")
    found = read(file, CSV)
    assert found[0].suspect is not None
    assert found[0].suspect.all()


def test_text_that_may_hold_two_values_is_suspect_and_plain_text_is_not(file: Path) -> None:
    file.write_bytes(b'{"a": 1}\n{"a": 2}{"a": 3}\n{"a": {"b": 1}}\n{"a": 4} x\n5\n')
    suspect = read(file, JSONL)[0].suspect
    assert suspect is not None
    assert suspect.tolist() == [False, True, True, True, True]


def test_fields_of_a_row_are_unquoted() -> None:
    assert fields(b'a,"b ""x""","c\nd"\r\n', CSV) == ("a", 'b "x"', "c\nd")
    assert fields(b"a|'b|c'", FileFormat("csv", delimiter="|", quote="'", escape="'")) == ("a", "b|c")


def test_lines_of_blanks_are_no_part_of_the_row_before_them(file: Path) -> None:
    file.write_bytes(b"1,x\n   \n2,y\r\n\t\r\n")
    (piece,) = read(file, CSV)
    assert [(at, row) for at, row in zip(positions([piece]), piece.values.to_pylist(), strict=True)] == [
        (0, b"1,x\n"),
        (8, b"2,y\n"),
    ]
    assert piece.end == file.stat().st_size


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_carriage_return_alone_ends_the_rows_of_a_csv_file_that_has_no_newline(
    tmp_path: Path, encoding: str, compressed: bool
) -> None:
    file = tmp_path / ("a.csv.gz" if compressed else "a.csv")
    data = 'a,b\r1,"x, y"\r2,z\r3,last'.encode(encoding)
    file.write_bytes(gzip.compress(data) if compressed else data)
    form = FileFormat("csv", encoding=encoding)
    header = read_header(file, form, Tail.LEAVE)
    assert header is not None
    assert header.names == ("a", "b")
    found = read(file, form, start=header.end, tail=Tail.COMPLETE, width=2)
    assert values(found) == [b'1,"x, y"', b"2,z", b"3,last"]
    assert positions(found) == [4, 13, 17]
    assert values(read(file, form, start=13)) == [b"2,z"]


def test_a_carriage_return_in_a_file_with_newlines_is_part_of_its_row(file: Path) -> None:
    file.write_bytes(b'a,b\n1,"x\ry"\n2,z\n')
    assert values(read(file, CSV)) == [b"a,b", b'1,"x\ry"', b"2,z"]


def test_a_carriage_return_at_the_end_waits_for_its_newline(file: Path) -> None:
    file.write_bytes(b"a,b\r")
    assert read_header(file, CSV, Tail.LEAVE) is None
    file.write_bytes(b"a,b\r\n1,2\r\n")
    assert values(read(file, CSV)) == [b"a,b", b"1,2"]


def test_a_line_of_80_mb_is_one_bad_record(file: Path) -> None:
    file.write_bytes(b'{"a": 1}\n{"a": "' + b'{"a": 5} ' * 9_000_000 + b'"}\n{"a": 2}\n')
    found = [piece for piece in read(file, JSONL) if len(piece)]
    assert [piece.problem for piece in found] == [None, "a record longer than 64 MB", None]
    assert values(found)[::2] == [b'{"a": 1}', b'{"a": 2}']
    assert len(found[1].values[0].as_py()) == text_reader.RAW_BYTES_MAX
