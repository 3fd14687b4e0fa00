"""Following files into a feed: growth, rewrites, renames, order, crashes. No Spark: the feed is read directly."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sources.numbers import lines

from millpond.engine.feeds import feed as feed_module
from millpond.errors import SourceError
from millpond.testing.clock import Clock


def test_what_is_there_comes_in_one_batch(follow: Any, data: Path, numbers: Any) -> None:
    (data / "a.jsonl").write_bytes(lines(1, 2))
    (data / "b.jsonl").write_bytes(lines(3))
    stream = follow()
    assert stream.poll()
    assert numbers() == [[1, 2, 3]]
    assert not stream.poll()
    assert stream.status().rows == 3


def test_files_seen_together_come_by_modification_time_then_name(
    follow: Any, data: Path, numbers: Any, feed_files: Any
) -> None:
    for name, number, seconds in [("a", 3, 30), ("b", 2, 20), ("c", 1, 20)]:
        (data / f"{name}.jsonl").write_bytes(lines(number))
        os.utime(data / f"{name}.jsonl", (seconds, seconds))
    follow().poll()
    assert numbers() == [[2, 1, 3]]
    majors = pq.read_table(feed_files()[0]).column("_mp_major").to_pylist()
    assert majors == [0, 1, 2]


def test_growth_is_read_from_where_reading_ended(follow: Any, data: Path, numbers: Any, feed_files: Any) -> None:
    file = data / "a.jsonl"
    file.write_bytes(lines(1))
    stream = follow()
    stream.poll()
    with file.open("ab") as out:
        out.write(lines(2) + b'{"a": ')
    assert stream.poll()
    assert not stream.poll()
    with file.open("ab") as out:
        out.write(b"3}\n")
    assert stream.poll()
    assert numbers() == [[1], [2], [3]]
    table = pq.read_table(feed_files()[2])
    assert table.column("_mp_minor").to_pylist() == [18]
    assert table.column("_mp_major").to_pylist() == [0]


def test_a_restart_goes_on_where_it_was(follow: Any, data: Path, numbers: Any) -> None:
    (data / "a.jsonl").write_bytes(lines(1))
    follow().poll()
    (data / "a.jsonl").write_bytes(lines(1, 2))
    (data / "b.jsonl").write_bytes(lines(3))
    follow().poll()
    assert numbers() == [[1], [2, 3]]


@pytest.mark.parametrize("content", [lines(7, 8, 9), lines(7)], ids=["longer", "shorter"])
def test_a_rewritten_file_is_read_again_with_a_warning(
    follow: Any, data: Path, clock: Clock, content: bytes, numbers: Any
) -> None:
    file = data / "a.jsonl"
    file.write_bytes(lines(1, 2))
    stream = follow(watch_debounce="500ms")
    stream.poll()
    file.write_bytes(content)
    assert not stream.poll()
    clock.now += 1
    assert stream.poll()
    assert numbers()[1][0] == 7
    (problem,) = stream.problems()
    assert (problem.code, str(problem.severity)) == ("MP510", "warning")
    assert "was rewritten and is read again" in problem.message
    assert stream.problems() == []


def test_a_renamed_file_is_not_read_twice(follow: Any, data: Path, numbers: Any) -> None:
    (data / "a.jsonl").write_bytes(lines(1))
    stream = follow()
    stream.poll()
    (data / "a.jsonl").rename(data / "b.jsonl")
    assert not stream.poll()
    with (data / "b.jsonl").open("ab") as out:
        out.write(lines(2))
    stream.poll()
    assert numbers() == [[1], [2]]
    assert stream.problems() == []


def test_a_file_renamed_while_the_app_was_down_is_not_read_twice(follow: Any, data: Path) -> None:
    (data / "a.jsonl").write_bytes(lines(1))
    follow().poll()
    (data / "a.jsonl").rename(data / "b.jsonl")
    assert not follow().poll()


def test_rotation_reads_each_line_once_and_warns_of_nothing(follow: Any, data: Path, numbers: Any) -> None:
    log = data / "app.log"
    log.write_bytes(lines(1))
    stream = follow(format="jsonl")
    stream.poll()
    with log.open("ab") as out:
        out.write(lines(2))
    log.rename(data / "app.log.1")
    log.write_bytes(lines(3))
    stream.poll()
    assert sorted(numbers()[1]) == [2, 3]
    assert stream.problems() == []


def test_a_new_file_with_the_inode_of_a_removed_one_is_new(follow: Any, data: Path, numbers: Any) -> None:
    file = data / "a.jsonl"
    file.write_bytes(lines(1))
    stream = follow()
    stream.poll()
    for n in range(20):
        # The file system hands the freed inode to the next file.
        file.unlink()
        file = data / f"b{n}.jsonl"
        file.write_bytes(lines(1))
        stream.poll()
    assert numbers() == [[1]] * 21


def test_a_removed_file_is_no_problem(follow: Any, data: Path) -> None:
    (data / "a.jsonl").write_bytes(lines(1))
    stream = follow()
    stream.poll()
    (data / "a.jsonl").unlink()
    assert not stream.poll()
    assert stream.status().health == "healthy"


def test_a_link_to_a_file_that_is_read_is_not_read_again(follow: Any, data: Path, numbers: Any) -> None:
    (data / "real.jsonl").write_bytes(lines(1))
    (data / "link.jsonl").symlink_to("real.jsonl")
    follow().poll()
    assert numbers() == [[1]]


def test_a_link_can_be_followed(follow: Any, data: Path, tmp_path: Path, numbers: Any) -> None:
    (tmp_path / "elsewhere.jsonl").write_bytes(lines(1))
    (data / "link.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    follow("file://./link.jsonl").poll()
    assert numbers() == [[1]]


def test_more_rows_than_a_batch_takes_come_in_several(follow: Any, data: Path, numbers: Any, all_numbers: Any) -> None:
    (data / "a.jsonl").write_bytes(lines(*range(25)))
    (data / "b.jsonl").write_bytes(lines(*range(25, 32)))
    stream = follow(max_rows_per_batch="10")
    stream.poll()
    assert [len(batch) for batch in numbers()] == [10, 10, 10, 2]
    assert all_numbers() == list(range(32))


def test_a_crash_between_two_batches_of_a_file_loses_nothing(
    follow: Any, data: Path, monkeypatch: pytest.MonkeyPatch, all_numbers: Any
) -> None:
    (data / "a.jsonl").write_bytes(lines(*range(25)))
    (data / "b.jsonl.gz").write_bytes(gzip.compress(lines(*range(25, 50))))
    for step in ("_show", "publish", "writer"):
        for fails_at in (1, 2, 4):
            calls = 0
            real = getattr(feed_module.Feed, step)

            def failing(self: Any, *args: Any, _real: Any = real, _at: int = fails_at, **options: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == _at:
                    raise KeyboardInterrupt
                return _real(self, *args, **options)

            with monkeypatch.context() as patch:
                patch.setattr(feed_module.Feed, step, failing)
                with pytest.raises(KeyboardInterrupt):
                    follow(max_rows_per_batch="10").poll()
            with (data / "a.jsonl").open("ab") as out:
                out.write(lines(*range(100, 130)))
    follow(max_rows_per_batch="10").poll()
    seen = all_numbers()
    assert sorted(seen) == sorted([*range(50), *[*range(100, 130)] * 9])
    assert [n for n in seen if n < 25] == list(range(25))


def test_a_torn_journal_line_is_as_if_never_written(follow: Any, data: Path, state: Path, numbers: Any) -> None:
    (data / "a.jsonl").write_bytes(lines(1))
    follow().poll()
    journal = state / "journal.jsonl"
    with journal.open("ab") as out:
        out.write(b'{"files": [{"path": "')
    (data / "a.jsonl").write_bytes(lines(1, 2))
    follow().poll()
    follow().poll()
    assert numbers() == [[1], [2]]


def test_the_journal_stays_short(follow: Any, data: Path, state: Path, all_numbers: Any) -> None:
    stream = follow()
    for n in range(600):
        with (data / "a.jsonl").open("ab") as out:
            out.write(lines(n))
        stream.poll()
    assert len((state / "journal.jsonl").read_bytes().splitlines()) < 300
    stream = follow()
    assert not stream.poll()
    assert all_numbers() == list(range(600))


def test_a_csv_header_is_no_record_and_may_differ_by_file(follow: Any, data: Path, feed_files: Any, fed: Any) -> None:
    (data / "a.csv").write_text("a,b\n1,2\n")
    (data / "b.csv").write_text("b,a\r\n4,3\r\n")
    follow(columns={"a": "INT", "b": "INT"}).poll()
    assert [(row["a"], row["b"]) for row in fed()[0]] == [(1, 2), (3, 4)]


def test_a_csv_file_without_a_declared_column_is_an_error(follow: Any, data: Path) -> None:
    (data / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(SourceError) as caught:
        follow().poll()
    assert caught.value.code == "MP503"
    assert "has no column 'a'" in str(caught.value)


def test_half_a_header_waits(follow: Any, data: Path, clock: Clock) -> None:
    stream = follow("file://./a.csv", file_create_empty="true")
    stream.poll()
    (data / "a.csv").write_text("a,")
    assert not stream.poll()
    (data / "a.csv").write_text("a,b\n1,2\n")
    assert stream.poll()


def test_a_missing_file_is_an_error_that_says_how_to_wait(follow: Any) -> None:
    with pytest.raises(SourceError) as caught:
        follow("file://./none.jsonl")
    assert caught.value.code == "MP501"
    assert "WITH ('file.wait.timeout' = '60s')" in caught.value.hint


def test_an_empty_folder_is_there_and_gets_its_format_from_its_first_file(follow: Any, data: Path, fed: Any) -> None:
    stream = follow()
    assert not stream.poll()
    (data / "a.csv").write_text("a\n1\n")
    stream.poll()
    assert [row["a"] for row in fed()[0]] == [1]


def test_files_of_two_formats_are_an_error(follow: Any, data: Path) -> None:
    (data / "a.csv").write_text("a\n1\n")
    (data / "b.jsonl").write_bytes(lines(1))
    with pytest.raises(SourceError, match="several formats: csv, jsonl"):
        follow()


def test_hidden_files_are_not_data(follow: Any, data: Path, numbers: Any) -> None:
    (data / ".hidden.jsonl").write_bytes(lines(1))
    (data / "_temporary.jsonl").write_bytes(lines(2))
    (data / "a b ü.jsonl").write_bytes(lines(3))
    follow().poll()
    assert numbers() == [[3]]


@pytest.mark.parametrize("uri", ["file://./a%20b%20%C3%BC.jsonl", "file:a%20b%20%C3%BC.jsonl", "file://./a*.jsonl"])
def test_spaces_unicode_and_patterns_name_files(follow: Any, data: Path, uri: str, numbers: Any) -> None:
    (data / "a b ü.jsonl").write_bytes(lines(3))
    (data / "other.jsonl").write_bytes(lines(4))
    follow(uri).poll()
    assert numbers() == [[3]]


def test_a_name_with_brackets_is_a_name_when_the_file_is_there(follow: Any, data: Path, numbers: Any) -> None:
    (data / "a[1].jsonl").write_bytes(lines(3))
    follow("file://./a[1].jsonl").poll()
    assert numbers() == [[3]]


def test_half_a_compressed_file_waits_for_its_end(follow: Any, data: Path, numbers: Any) -> None:
    stream = follow()
    stream.poll()
    whole = gzip.compress(lines(*range(1000)))
    (data / "a.jsonl.gz").write_bytes(whole[:-10])
    assert not stream.poll()
    (data / "a.jsonl.gz").write_bytes(whole)
    assert stream.poll()
    assert not stream.poll()
    assert numbers() == [list(range(1000))]


def test_parquet_is_read_with_the_declared_types_and_wrong_values_have_reasons(
    follow: Any, data: Path, feed_files: Any
) -> None:
    pq.write_table(pa.table({"A": ["1", "x", None], "other": [1, 2, 3]}), data / "a.parquet")
    follow().poll()
    table = pq.read_table(feed_files()[0])
    assert table.column("a").to_pylist() == [1, None, None]
    assert table.column("_mp_bad").to_pylist() == [None, "column 'a': 'x' is not a BIGINT", None]
    assert table.column("_mp_minor").to_pylist() == [0, 1, 2]
    assert json.loads(table.column("_mp_raw").to_pylist()[1])["A"] == "x"


def test_half_a_parquet_file_waits(follow: Any, data: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "whole")
    stream = follow(format="parquet")
    stream.poll()
    whole = (tmp_path / "whole").read_bytes()
    (data / "a.parquet").write_bytes(whole[:-20])
    assert not stream.poll()
    (data / "a.parquet").write_bytes(whole)
    assert stream.poll()
    assert not stream.poll()


def test_two_thousand_small_files_come_in_order_in_one_batch(
    follow: Any, data: Path, numbers: Any, feed_files: Any
) -> None:
    for n in range(2000):
        (data / f"{n:05d}.jsonl").write_bytes(lines(n))
        os.utime(data / f"{n:05d}.jsonl", (n, n))
    stream = follow()
    stream.poll()
    assert numbers() == [list(range(2000))]
    assert pq.read_metadata(feed_files()[0]).num_row_groups == 1
    assert not stream.poll()


def test_small_files_are_parsed_together_and_every_record_keeps_its_file_and_place(
    follow: Any, data: Path, fed: Any, feed_files: Any
) -> None:
    for n in range(200):
        last = b"no json\n" if n == 150 else b'{"a": %d}' % (1000 + n)
        (data / f"{n:03d}.jsonl").write_bytes(lines(n) + last)
        os.utime(data / f"{n:03d}.jsonl", (n, n))
    follow().poll()
    (rows,) = fed()
    places = [(Path(row["_source"]).name, row["_mp_major"], row["_mp_minor"]) for row in rows]
    assert places == [(f"{n:03d}.jsonl", n, at) for n in range(200) for at in (0, len(lines(n)))]
    unparsed = [row for row in rows if row["_mp_value"] is not None]
    assert b"no json\n" in [row["_mp_value"] for row in unparsed]
    assert len(unparsed) < 100
    parsed = [row["a"] for row in rows if row["_mp_value"] is None]
    assert parsed[:4] == [0, 1000, 1, 1001]


WRITER = """
import itertools, os, sys
with open(sys.argv[1], "ab", buffering=0) as out:
    for n in itertools.count():
        if n % 100 == 0 and os.path.exists(sys.argv[1] + ".stop"):
            break
        line = b'{"a": %d}\\n' % n
        half = n % len(line)
        out.write(line[:half])
        out.write(line[half:])
"""


def test_what_another_process_appends_is_read_once_and_in_order(
    follow: Any, data: Path, all_numbers: Any, feed_files: Any
) -> None:
    file = data / "a.jsonl"
    file.touch()
    stream = follow()
    stream.poll()
    with subprocess.Popen([sys.executable, "-c", WRITER, str(file)]) as writer:
        while len(feed_files()) < 10:
            stream.poll()
        (data / "a.jsonl.stop").touch()
        assert writer.wait(timeout=60) == 0
    stream.poll()
    found = all_numbers()
    assert found == list(range(len(found)))
    assert len(found) == len(file.read_bytes().splitlines())


def test_an_unreadable_file_is_a_coded_error(follow: Any, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "a.jsonl").write_bytes(lines(1))
    stream = follow()

    def refused(self: Path, *args: Any, **kwargs: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refused)
        with pytest.raises(SourceError) as caught:
            stream.poll()
    assert caught.value.code == "MP502"
    assert stream.poll()


def test_a_file_that_cannot_be_read_later_does_not_hold_up_the_others(follow: Any, data: Path, numbers: Any) -> None:
    stream = follow()
    stream.poll()
    (data / "a.jsonl.gz").write_bytes(b"no gzip")
    (data / "b.jsonl").write_bytes(lines(1))
    assert stream.poll()
    assert not stream.poll()
    assert [problem.code for problem in stream.problems()] == ["MP502"]
    (data / "a.jsonl.gz").write_bytes(gzip.compress(lines(2)))
    assert stream.poll()
    assert numbers() == [[1], [2]]


def _no_gzip(file: Path) -> None:
    file.write_bytes(b"no gzip")


def _broken_inside(file: Path) -> None:
    whole = bytearray(gzip.compress(lines(*range(1000))))
    whole[20:40] = b"\xff" * 20
    file.write_bytes(whole)


def _cut_off(file: Path) -> None:
    file.write_bytes(gzip.compress(lines(*range(1000)))[:-10])


@pytest.mark.parametrize("write", [_no_gzip, _broken_inside, _cut_off])
def test_a_bad_compressed_file_is_reported_and_passed_over_at_the_start_too(
    follow: Any, data: Path, numbers: Any, clock: Clock, write: Any
) -> None:
    write(data / "a.jsonl.gz")
    (data / "empty.jsonl.gz").touch()
    (data / "b.jsonl").write_bytes(lines(1))
    stream = follow()
    assert stream.poll()
    assert not stream.poll()
    assert [(problem.code, "a.jsonl.gz" in problem.message) for problem in stream.problems()] == [("MP502", True)]
    (data / "a.jsonl.gz").write_bytes(gzip.compress(lines(2)))
    assert stream.poll()
    assert numbers() == [[1], [2]]


def test_a_source_of_which_nothing_can_be_read_fails(follow: Any, data: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        _no_gzip(data / name)
    with pytest.raises(SourceError, match=r"MP502.*a\.jsonl\.gz' is not a gzip file"):
        follow().poll()


@pytest.mark.parametrize(
    ("encoding", "bad"),
    [("utf-8", b"\xff\n1\n"), ("utf-8", b"x" * 200_000), ("utf-16", b"\xff\xfea\0\n\0" + b"\0\xd8" + b"\n\0")],
)
def test_a_csv_file_whose_text_cannot_be_read_does_not_hold_up_the_others(
    follow: Any, data: Path, fed: Any, encoding: str, bad: bytes
) -> None:
    (data / "a.csv").write_bytes(bad)
    (data / "b.csv").write_text("a\n1\n", encoding=encoding)
    stream = follow(encoding=encoding)
    stream.poll(final=True)
    assert [row["a"] for batch in fed() for row in batch] == [1]
    assert [problem.code for problem in stream.problems()] == ["MP502"]


def test_a_link_that_leads_to_itself_is_no_file(follow: Any, data: Path, numbers: Any) -> None:
    (data / "a.jsonl").symlink_to("a.jsonl")
    (data / "b.jsonl").write_bytes(lines(1))
    follow().poll()
    assert numbers() == [[1]]


def test_a_file_that_is_no_parquet_does_not_hold_up_the_others(follow: Any, data: Path) -> None:
    (data / "a.parquet").write_bytes(b"PAR1 no")
    pq.write_table(pa.table({"a": [1, 2]}), data / "b.parquet")
    stream = follow()
    assert stream.poll()
    assert [problem.code for problem in stream.problems()] == ["MP502"]
