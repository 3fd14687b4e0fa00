"""The last record of a file that grows: half of one waits for its end, a whole one is taken, and none comes twice."""

from pathlib import Path
from typing import Any

import pytest
from tests.sources.numbers import lines

from millpond.sources.files.source import PLUGIN
from millpond.sources.files.stability import UNENDED_S
from millpond.sources.files.table import FileTable
from millpond.testing.clock import Clock
from millpond.testing.sources import content_of


def test_a_whole_last_line_is_taken_when_catching_up(follow: Any, data: Path, numbers: Any) -> None:
    (data / "a.jsonl").write_bytes(lines(1) + b'{"a": 2}')
    stream = follow()
    stream.poll()
    with (data / "a.jsonl").open("ab") as out:
        out.write(b"\n" + lines(3))
    stream.poll()
    assert numbers() == [[1, 2], [3]]


def test_a_whole_last_line_is_taken_when_the_file_has_been_still(
    follow: Any, data: Path, clock: Clock, numbers: Any
) -> None:
    stream = follow(watch_debounce="500ms")
    stream.poll()
    (data / "a.jsonl").write_bytes(lines(1) + b'{"a": 2}')
    stream.poll()
    clock.now += 0.4
    assert not stream.poll()
    clock.now += 0.2
    assert stream.poll()
    assert not stream.poll()
    assert numbers() == [[1], [2]]


def test_a_look_at_half_a_line_does_not_make_its_file_a_rewritten_one(
    follow: Any, data: Path, clock: Clock, numbers: Any
) -> None:
    file = data / "a.jsonl"
    file.write_bytes(lines(1))
    stream = follow()
    stream.poll()
    for part in (b'{"a"', b": 2", b"}\n"):
        with file.open("ab") as out:
            out.write(part)
        clock.now += 5
        stream.poll()
    clock.now += 5
    assert not stream.poll()
    assert numbers() == [[1], [2]]
    assert stream.problems() == []


def test_a_header_that_rows_follow_later_is_no_rewritten_file(follow: Any, data: Path, numbers: Any) -> None:
    (data / "a.csv").write_text("a\n")
    stream = follow("file://./a.csv")
    assert not stream.poll()
    (data / "a.csv").write_text("a\n1\n")
    assert stream.poll()
    assert numbers() == [[1]]
    assert stream.problems() == []


def test_half_a_csv_row_waits_for_its_end_even_when_it_looks_whole(
    follow: Any, data: Path, clock: Clock, numbers: Any
) -> None:
    file = data / "a.csv"
    file.write_text("a\n1\n2")
    stream = follow("file://./a.csv")
    stream.poll()
    clock.now += 2
    assert not stream.poll()
    file.write_text("a\n1\n23\n")
    assert stream.poll()
    assert numbers() == [[1], [23]]


def test_a_csv_row_without_newline_is_taken_at_the_end_and_read_again_if_it_goes_on(
    follow: Any, data: Path, clock: Clock, numbers: Any
) -> None:
    file = data / "a.csv"
    file.write_text("a\n1\n2")
    follow("file://./a.csv").poll(final=True)
    file.write_text("a\n1\n2\n3")
    stream = follow("file://./a.csv")
    stream.poll()
    clock.now += UNENDED_S
    assert stream.poll()
    assert stream.problems() == []
    file.write_text("a\n1\n2\n34\n5\n")
    assert stream.poll()
    assert numbers() == [[1, 2], [3], [34, 5]]
    (problem,) = stream.problems()
    assert "The last row of" in problem.message
    assert "is read again" in problem.message


@pytest.mark.parametrize(
    ("name", "text"), [("a.csv", 'a\n1\n"2\n3\n'), ("a.jsonl", '{"a": 1}\n{"a": ')], ids=["csv", "jsonl"]
)
def test_a_record_that_has_no_end_is_reported_when_nothing_more_is_waited_for(
    follow: Any, data: Path, numbers: Any, name: str, text: str
) -> None:
    (data / name).write_text(text)
    stream = follow(f"file://./{name}")
    stream.poll(final=True)
    assert numbers() == [[1]]
    (problem,) = stream.problems()
    assert (problem.code, str(problem.severity)) == ("MP504", "warning")
    assert f"{name}' is incomplete" in problem.message


@pytest.fixture
def table(spec: Any, data: Path, state: Path, clock: Clock) -> Any:
    """A watched table of a.csv: what it holds now, read again only if its fingerprint has changed."""
    found = spec("file://./a.csv", {"k": "BIGINT", "v": "STRING"}, watch="true")
    opened: list[FileTable] = []
    held: dict[str, list[Any]] = {}

    def rows() -> list[Any]:
        if not opened:
            opened.append(FileTable(found, clock))
        fingerprint = opened[0].fingerprint()
        if fingerprint not in held:
            held.clear()
            batches = content_of(opened[0], found, PLUGIN, lambda: pytest.fail("Spark"))
            held[fingerprint] = [value for records in batches for value in records["v"].to_pylist()]
        return held[fingerprint]

    return rows


def test_a_last_row_without_newline_is_in_a_table_from_the_start(table: Any, data: Path) -> None:
    (data / "a.csv").write_text("k,v\n1,one\n2,two")
    assert table() == ["one", "two"]


def test_half_a_row_that_is_added_to_a_watched_table_waits_for_its_end(table: Any, data: Path, clock: Clock) -> None:
    file = data / "a.csv"
    file.write_text("k,v\n1,one\n")
    assert table() == ["one"]
    file.write_text("k,v\n1,one\n2,tw")
    assert table() == ["one"]
    clock.now += UNENDED_S - 1
    assert table() == ["one"]
    file.write_text("k,v\n1,one\n2,two\n3,thr")
    assert table() == ["one", "two"]
    clock.now += UNENDED_S
    assert table() == ["one", "two", "thr"]


def test_a_last_row_that_was_there_does_not_leave_its_table_while_it_is_edited(
    table: Any, data: Path, clock: Clock
) -> None:
    file = data / "a.csv"
    for now, shown in (("tw", ["tw"]), ("two", ["tw"])):
        file.write_text(f"k,v\n1,{now}")
        assert table() == shown
    clock.now += 1
    assert table() == ["two"]
