"""Generated rows: how many, when, and the same again."""

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from millpond.engine.feeds.feed_reader import FeedReader
from millpond.errors import SourceError
from millpond.sources.generate import COLUMNS, PLUGIN, GenerateFeeder, GenerateTable
from millpond.testing.clock import Clock
from millpond.testing.sources import content_of, hand_over


@pytest.fixture
def clock() -> Clock:
    return Clock(1_800_000_000.0)


@pytest.fixture
def generate(spec: Any, state: Path, clock: Clock) -> Any:
    plugin = replace(PLUGIN, open_feeder=lambda spec: GenerateFeeder(spec, clock))
    return lambda uri, **options: FeedReader(replace(spec(uri, **options), columns=COLUMNS), plugin, state)


@pytest.fixture
def ranges(feed_files: Any) -> Any:
    """The first and last-but-one numbers of each feed file."""

    def found() -> list[tuple[int, int]]:
        tables = [pq.read_table(file) for file in feed_files()]
        return [(min(t["first"].to_pylist()), max(t["behind"].to_pylist())) for t in tables]

    return found


def test_without_a_rate_all_rows_come_at_once_in_batches(generate: Any, ranges: Any) -> None:
    stream = generate("generate://?rows=250", max_rows_per_batch="100")
    assert stream.poll()
    assert ranges() == [(0, 100), (100, 200), (200, 250)]
    assert not stream.poll()


def test_with_a_rate_rows_come_when_they_are_due(generate: Any, ranges: Any, clock: Clock) -> None:
    stream = generate("generate://?rows=100&rate=10")
    assert not stream.poll()
    clock.now += 1
    assert stream.poll()
    clock.now += 2.05
    assert stream.poll()
    assert ranges() == [(0, 10), (10, 30)]
    clock.now += 100
    stream.poll()
    assert not stream.poll()
    assert ranges()[-1] == (30, 100)


def test_a_final_poll_gives_all_rows_of_a_bounded_generator(generate: Any, ranges: Any) -> None:
    stream = generate("generate://?rows=100&rate=10")
    assert stream.poll(final=True)
    assert ranges() == [(0, 100)]


def test_a_final_poll_of_an_endless_generator_gives_what_is_due(generate: Any, ranges: Any, clock: Clock) -> None:
    stream = generate("generate://?rate=10")
    assert not stream.poll(final=True)
    clock.now += 2
    assert stream.poll(final=True)
    assert ranges() == [(0, 20)]


def test_a_restart_goes_on_with_the_numbers_and_with_the_clock(generate: Any, ranges: Any, clock: Clock) -> None:
    stream = generate("generate://?rate=10")
    clock.now += 1
    stream.poll()
    clock.now += 1
    generate("generate://?rate=10").poll()
    assert ranges() == [(0, 10), (10, 20)]


def test_an_endless_generator_without_rate_does_not_run_ahead(generate: Any, ranges: Any) -> None:
    stream = generate("generate://", max_rows_per_batch="10")
    for _ in range(5):
        stream.poll()
    assert len(ranges()) == 2


@pytest.mark.parametrize(
    ("uri", "wrong"),
    [("generate://host?rows=1", "no host"), ("generate://?rate=0", "more than 0"), ("generate://?rows=1", None)],
)
def test_a_wrong_generator_is_reported(spec: Any, uri: str, wrong: str | None) -> None:
    assert PLUGIN.validate is not None
    found = PLUGIN.validate(spec(uri))
    assert found is None if wrong is None else wrong in str(found)


def test_a_table_needs_an_end(spec: Any) -> None:
    with pytest.raises(SourceError) as caught:
        GenerateTable(spec("generate://?rate=5"))
    assert caught.value.code == "MP508"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("uri", "step_us"), [("generate://?rows=3&seed=7&rate=4", 250_000), ("generate://?rows=3&seed=7", 1_000)]
)
def test_with_a_seed_times_are_the_same_in_every_run(spec: Any, spark: Any, uri: str, step_us: int) -> None:
    found = replace(spec(uri), columns=COLUMNS)
    (records,) = content_of(GenerateTable(found), found, PLUGIN, lambda: spark)
    rows = records.to_pylist()
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert [(r["seq"], r["ts"]) for r in rows] == [
        (n, start + dt.timedelta(microseconds=n * step_us)) for n in range(3)
    ]


@pytest.mark.spark
def test_a_stream_gives_every_number_once(generate: Any, spark: Any, state: Path, clock: Clock) -> None:
    stream = generate("generate://?rows=200000&rate=1000", max_rows_per_batch="150000")
    stream.poll(final=True)
    seen: list[tuple[Any, ...]] = []

    def take(raw: Any, _: int) -> None:
        records = stream.records(raw)
        (row,) = records.selectExpr("count(*)", "count(DISTINCT seq)", "min(seq)", "max(seq)", "min(ts)").collect()
        assert records.where("_mp_minor <> seq OR _mp_major <> 0 OR _mp_bad IS NOT NULL").count() == 0
        seen.append(tuple(row))

    hand_over(stream, spark, take)
    started = dt.datetime.fromtimestamp(clock.now, dt.UTC).replace(tzinfo=None)
    assert seen == [
        (150_000, 150_000, 0, 149_999, started),
        (50_000, 50_000, 150_000, 199_999, started + dt.timedelta(seconds=150)),
    ]
