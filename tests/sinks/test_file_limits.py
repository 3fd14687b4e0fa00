"""Files by partition, by size and by age: each row is shown once, whatever happens; these tests start no JVM."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.app.crashing import ended_states

import millpond as mp
from millpond.contracts.sink import Mark, SinkSpec
from millpond.errors import MillpondError, Problem, Severity, SinkError
from millpond.faults import OPEN_FILE_POINTS
from millpond.options import Given, complete, read_options
from millpond.sinks import open_files
from millpond.sinks.destinations import LocalFolder
from millpond.sinks.file import OPTIONS, FileSink
from millpond.uris import parse_uri

Open = Callable[..., FileSink]


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Open]:
    endings: list[Callable[[], None]] = []

    def open_(warn: Callable[[Problem], None] = lambda problem: None, **given: str) -> FileSink:
        options = [Given(name.replace("_", "."), value) for name, value in given.items()]
        values = complete(read_options(options, OPTIONS, "test"), OPTIONS, {})
        spec = SinkSpec("k1", parse_uri("file://./out"), values, tmp_path, at_stop=endings.append, warn=warn)
        opened = FileSink(spec)
        opened.discard()
        return opened

    yield open_
    for end in endings:
        end()


def write(sink: FileSink, batch: int, rows: pa.Table) -> None:
    staged = sink.stage(rows, Mark("flow", batch, 0))
    if staged is not None:
        sink.publish(json.loads(json.dumps(staged)))


def numbers(*found: int) -> pa.Table:
    return pa.table({"n": list(found)})


def shown(folder: Path) -> dict[str, list[int]]:
    """The numbers in each file that a reader sees."""
    files = [file for file in (folder / "out").rglob("*.*") if ".staging" not in file.parts and file.is_file()]
    return {str(file.relative_to(folder / "out")): _numbers(file) for file in sorted(files)}


def _numbers(file: Path) -> list[int]:
    if file.suffix == ".parquet":
        return pq.read_table(file)["n"].to_pylist()
    lines = file.read_text().splitlines()
    return [int(line) for line in lines[1:]] if file.suffix == ".csv" else [json.loads(line)["n"] for line in lines]


@pytest.mark.parametrize("format_", ["jsonl", "csv", "parquet"])
def test_a_file_takes_the_rows_of_several_batches_until_it_is_full(sink: Open, tmp_path: Path, format_: str) -> None:
    opened = sink(format=format_, file_max_rows="5")
    write(opened, 0, numbers(0, 1))
    write(opened, 1, numbers(2, 3))
    assert shown(tmp_path) == {}
    write(opened, 2, numbers(4, 5, 6))
    assert list(shown(tmp_path).values()) == [[0, 1, 2, 3, 4]]
    write(opened, 3, numbers(*range(7, 19)))
    assert list(shown(tmp_path).values()) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14]]
    # The next run shows what was left.
    sink(format=format_, file_max_rows="5")
    assert sorted(n for found in shown(tmp_path).values() for n in found) == list(range(19))


def test_a_file_is_shown_when_it_is_old(sink: Open, tmp_path: Path) -> None:
    opened = sink(file_max_age="50ms")
    write(opened, 0, numbers(0))
    write(opened, 1, numbers(1))
    deadline = time.monotonic() + 60
    while sorted(n for found in shown(tmp_path).values() for n in found) != [0, 1]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_rows_are_divided_by_the_values_of_columns(sink: Open, tmp_path: Path) -> None:
    days = [dt.date(2026, 1, 2), dt.date(2026, 1, 2), None, dt.date(2026, 1, 3)]
    tiers = ["GOLD", "a/b", "GOLD", "GOLD"]
    rows = pa.table({"n": [0, 1, 2, 3], "day": days, "tier": tiers})
    write(sink(partition_by="day, TIER"), 0, rows)
    assert shown(tmp_path) == {
        "day=2026-01-02/tier=GOLD/flow-00000000-000-00000.jsonl": [0],
        "day=2026-01-02/tier=a%2Fb/flow-00000000-000-00001.jsonl": [1],
        "day=__HIVE_DEFAULT_PARTITION__/tier=GOLD/flow-00000000-000-00002.jsonl": [2],
        "day=2026-01-03/tier=GOLD/flow-00000000-000-00003.jsonl": [3],
    }
    file = next((tmp_path / "out").rglob("*00000.jsonl"))
    assert json.loads(file.read_text()) == {"n": 0}


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("", "__HIVE_DEFAULT_PARTITION__"),
        ("..", "%2E%2E"),
        ("../../x", "..%2F..%2Fx"),
        ("é x", "%C3%A9 x"),
        ("a\nb=c%", "a%0Ab%3Dc%25"),
        (True, "true"),
        (7, "7"),
        (Decimal("1.50"), "1.50"),
    ],
)
def test_no_value_leads_out_of_its_folder(sink: Open, tmp_path: Path, value: Any, folder: str) -> None:
    write(sink(partition_by="p"), 0, pa.table({"n": [0], "p": [value]}))
    assert shown(tmp_path) == {f"p={folder}/flow-00000000-000-00000.jsonl": [0]}


def test_each_partition_fills_its_own_file(sink: Open, tmp_path: Path) -> None:
    opened = sink(partition_by="p", file_max_rows="3")
    for batch in range(4):
        first = batch * 4
        rows = {"n": [first, first + 1, first + 2, first + 3], "p": ["a", "b", "a", "a"]}
        write(opened, batch, pa.table(rows))
    found = shown(tmp_path)
    assert [rows for name, rows in found.items() if name.startswith("p=a/")] == [
        [0, 2, 3],
        [4, 6, 7],
        [8, 10, 11],
        [12, 14, 15],
    ]
    assert [rows for name, rows in found.items() if name.startswith("p=b/")] == [[1, 5, 9]]


def test_publishing_again_shows_nothing_twice(sink: Open, tmp_path: Path) -> None:
    opened = sink(file_max_rows="3", partition_by="p")
    staged = opened.stage(pa.table({"n": [0, 1], "p": ["a", "a"]}), Mark("flow", 0, 0))
    assert staged is not None
    opened.publish(staged)
    opened.publish(staged)
    again = sink(file_max_rows="3", partition_by="p")
    again.publish(staged)
    assert list(shown(tmp_path).values()) == [[0, 1]]


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """While it has an element, no file can be shown."""
    found, show = [True], LocalFolder.show

    def unless_away(folder: LocalFolder, file: Path, name: str) -> None:
        if found:
            raise SinkError("MP602", "The server is away.")
        show(folder, file, name)

    monkeypatch.setattr(LocalFolder, "show", unless_away)
    return found


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_old_file_that_cannot_be_shown_is_reported_once_and_shown_later(
    sink: Open, tmp_path: Path, away: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "RETRY_S", 0.01)
    warned: list[Problem] = []
    opened = sink(warned.append, file_max_age="10ms", partition_by="p")
    staged = opened.stage(pa.table({"n": [0, 1], "p": ["a", "b"]}), Mark("flow", 0, 0))
    assert staged is not None
    # If a file has become old meanwhile, this reports it as well.
    with suppress(MillpondError):
        opened.publish(staged)
    eventually(lambda: bool(warned))
    assert (warned[0].code, warned[0].severity) == ("MP602", Severity.WARNING)
    assert "'file.max.age' is not shown yet" in warned[0].message
    away.clear()
    opened.publish(staged)
    eventually(lambda: list(shown(tmp_path).values()) == [[0], [1]])
    assert len(warned) == 1


def test_a_file_that_could_not_be_shown_takes_no_more_rows(sink: Open, tmp_path: Path, away: list[bool]) -> None:
    """It may be visible already, although an error was reported."""
    opened = sink(file_max_rows="2")
    staged = opened.stage(numbers(0, 1, 2), Mark("flow", 0, 0))
    assert staged is not None
    for _ in range(2):
        with pytest.raises(MillpondError, match="MP602"):
            opened.publish(staged)
    away.clear()
    opened.publish(staged)
    assert list(shown(tmp_path).values()) == [[0, 1]]
    write(opened, 1, numbers(3))
    assert list(shown(tmp_path).values()) == [[0, 1], [2, 3]]


def test_a_file_never_has_more_rows_although_the_one_before_was_shown_meanwhile(sink: Open, tmp_path: Path) -> None:
    opened = sink(file_max_rows="4")
    write(opened, 0, numbers(0, 1))
    staged = opened.stage(numbers(*range(2, 9)), Mark("flow", 1, 0))
    assert staged is not None
    opened._end()
    opened.publish(staged)
    assert list(shown(tmp_path).values()) == [[0, 1], [2, 3], [4, 5, 6, 7]]


def test_what_an_earlier_run_has_left_is_shown_as_soon_as_that_is_possible(
    sink: Open, tmp_path: Path, away: list[bool]
) -> None:
    write(sink(file_max_rows="8"), 0, numbers(0, 1))
    again = sink(file_max_rows="8")
    with pytest.raises(MillpondError, match="MP602"):
        again.require(lambda: pytest.fail("no Spark is needed"))
    away.clear()
    again.require(lambda: pytest.fail("no Spark is needed"))
    assert list(shown(tmp_path).values()) == [[0, 1]]


# Commits are a file: each batch is staged, committed and published, and a start goes on from the last commit.
PROGRAM = """
import json
from pathlib import Path
import pyarrow as pa
from millpond.contracts.sink import Mark, SinkSpec
from millpond.disk import read_sealed, write_sealed
from millpond.sinks.file import FileSink
from millpond.uris import parse_uri

folder, endings = Path(state), []
values = {"format": "jsonl", "file.max.rows": 8, "partition.by": ("p",)}
sink = FileSink(SinkSpec("k1", parse_uri("file://./out"), values, folder, at_stop=endings.append))
done = read_sealed(folder / "commit") if (folder / "commit").exists() else [-1, None]
if done[1] is not None:
    sink.publish(done[1])
sink.discard()
for batch in range(done[0] + 1, 2):
    numbers = range(batch * 9, batch * 9 + 9)
    rows = pa.table({"n": list(numbers), "p": [n % 2 for n in numbers]})
    staged = sink.stage(rows, Mark("flow", batch, 0))
    write_sealed(folder / "commit", [batch, staged])
    sink.publish(staged)
for end in endings:
    end()
"""


@pytest.mark.process
def test_a_crash_at_any_point_shows_each_row_once(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    ended = 0
    for _, state, was_ended in ended_states(made, PROGRAM, OPEN_FILE_POINTS):
        ended += was_ended
        exec(PROGRAM, {"state": str(state)})
        found = shown(state)
        assert sorted(n for rows in found.values() for n in rows) == list(range(18)), state
        assert max(map(len, found.values())) <= 8
    assert ended > 5


def test_an_app_shows_all_rows_when_it_stops(tmp_path: Path) -> None:
    sql = f"""INSERT INTO 'file:{tmp_path}/out' WITH ('file.max.rows' = '16', 'partition.by' = 'p')
    SELECT seq AS n, seq % 2 AS p FROM 'generate://?rows=40&seed=1' WITH ('max.rows.per.batch' = '9');"""
    app = mp.App(sql=sql, state=tmp_path / "state")
    app.run_once()
    app.stop()
    assert sorted(len(rows) for rows in shown(tmp_path).values()) == [4, 4, 16, 16]


def test_columns_that_are_not_there_are_an_error_of_check(tmp_path: Path) -> None:
    def check(by: str) -> str:
        sql = f"INSERT INTO 'file://./o' WITH ('partition.by' = '{by}') SELECT seq AS n, ts FROM 'generate://?rows=1';"
        with pytest.raises(MillpondError) as caught:
            mp.App(sql=sql, state=tmp_path / "state").run_once()
        return str(caught.value)

    assert "There is no column 'day'" in check("day")
    assert "all columns" in check("n, ts")
    assert "twice" in check("n, N")
