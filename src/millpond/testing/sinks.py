"""The contract suite of sinks: subclass SinkContract, implement how rows are read back, and run it with pytest.

What is required of a replay depends on the guarantee of the plug-in. The fixture `spark` is a Spark session.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from millpond.contracts.sink import ROW, Mark, Sink, SinkPlugin, SinkSpec
from millpond.options import Given, complete, read_options
from millpond.registry import find
from millpond.uris import parse_uri

pytestmark = pytest.mark.spark

EXACTLY_ONCE = "exactly once"
FIRST, SECOND = Mark("flow", 0, 1), Mark("flow", 1, 1)


class SinkContract:
    """Rows are staged before a commit and published after it, and survive a crash in between."""

    uri = ""
    options: Mapping[str, str] = {}

    @pytest.fixture(autouse=True)
    def _prepared(self, tmp_path: Path, spark: Any) -> None:
        self.folder, self.spark = tmp_path, spark
        self.set_up()

    def set_up(self) -> None:
        """Create an empty destination."""

    def numbers(self) -> list[int]:
        """The column `n` of all rows that a reader of the sink sees now, in the order of the sink."""
        raise NotImplementedError

    @property
    def plugin(self) -> SinkPlugin:
        return find("sink", parse_uri(self.uri).scheme)

    @property
    def guarantee(self) -> str:
        return self.plugin.guaranteed(self.values)

    @property
    def values(self) -> Mapping[str, Any]:
        given = [Given(name, value) for name, value in self.options.items()]
        return complete(read_options(given, self.plugin.options, "test"), self.plugin.options, {})

    def open(self) -> Sink:
        """The sink as a (re)start of an app opens it."""
        assert self.plugin.open is not None
        spec = SinkSpec("contract", parse_uri(self.uri), self.values, self.folder, folder=self.folder / "state")
        return self.plugin.open(spec)

    def rows(self, *numbers: int) -> Any:
        """Rows as the engine passes them, marked if the sink requires it."""
        found = [(n, f"x{n}", f"0.{n}") for n in numbers]
        frame = self.spark.createDataFrame(found, f"n BIGINT, text STRING, {ROW} STRING").coalesce(1)
        return frame if self.open().marks_rows else frame.drop(ROW)

    def on_driver(self, sink: Sink, rows: Any) -> Any:
        """Rows as the engine passes those of a small batch."""
        prepared = sink.prepare(rows.toArrow())
        return prepared if sink.takes_arrow(prepared) else self.spark.createDataFrame(prepared).coalesce(1)

    def test_rows_are_visible_after_publish_and_not_before(self) -> None:
        sink = self.open()
        sink.require(lambda: self.spark)
        staged = sink.stage(self.rows(1, 2), FIRST)
        if self.guarantee == EXACTLY_ONCE:
            assert self.numbers() == []
        if staged is not None:
            sink.publish(staged)
        assert self.numbers() == [1, 2]
        assert sink.rows_written() == 2

    def test_batches_follow_each_other(self) -> None:
        sink = self.open()
        for mark, numbers in ((FIRST, (1, 2)), (SECOND, (3,))):
            rows = self.rows(*numbers)
            # A sink that accepts Arrow gets it for small batches.
            staged = sink.stage(self.on_driver(sink, rows) if mark is SECOND else rows, mark)
            if staged is not None:
                sink.publish(staged)
        assert self.numbers() == [1, 2, 3]

    def test_a_publish_that_is_repeated_after_a_crash_loses_nothing(self) -> None:
        staged = self.open().stage(self.rows(1, 2), FIRST)
        if staged is None:
            assert self.numbers() == [1, 2]
            return
        self.open().publish(staged)
        self.open().publish(staged)
        found = self.numbers()
        assert sorted(set(found)) == [1, 2]
        assert self.guarantee != EXACTLY_ONCE or found == [1, 2]

    def test_staging_again_replaces_the_output_of_the_first_attempt(self) -> None:
        self.open().stage(self.rows(7, 8), FIRST)
        sink = self.open()
        staged = sink.stage(self.rows(1), FIRST)
        if staged is not None:
            sink.publish(staged)
        assert self.guarantee != EXACTLY_ONCE or self.numbers() == [1]
        assert self.numbers()[-1] == 1

    def test_output_without_a_commit_is_discarded(self) -> None:
        self.open().stage(self.rows(7, 8), FIRST)
        sink = self.open()
        sink.discard()
        staged = sink.stage(self.rows(1), SECOND)
        if staged is not None:
            sink.publish(staged)
        assert self.guarantee != EXACTLY_ONCE or self.numbers() == [1]

    def test_a_result_without_rows_publishes_nothing(self) -> None:
        sink = self.open()
        staged = sink.stage(self.rows(), FIRST)
        if staged is not None:
            sink.publish(staged)
        assert self.numbers() == []
        assert sink.rows_written() == 0
