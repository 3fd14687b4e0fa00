"""Every source keeps the source contract."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from millpond.engine.feeds.feed_reader import FeedReader
from millpond.engine.stream_reader import StreamReader
from millpond.sources.generate import PLUGIN as GENERATE
from millpond.sources.generate import GenerateFeeder
from millpond.sources.memory import MemoryFeeder
from millpond.testing.clock import Clock
from millpond.testing.sources import (
    BadRecordContract,
    DiscoveryContract,
    SourceContract,
    SourceHarness,
    StreamContract,
    TableContract,
)


class Lines(SourceHarness):
    """A text file that grows."""

    header = ""
    row: Callable[[int], str]

    def set_up(self) -> None:
        self.file = self.folder / self.uri.rpartition("/")[2]
        self.file.write_text(self.header)
        self.next = 0

    def put(self, count: int) -> None:
        with self.file.open("a") as out:
            out.writelines(f"{type(self).row(self.next + i)}\n" for i in range(count))
        self.next += count

    def put_bad(self) -> bytes:
        with self.file.open("a") as out:
            out.write("neither, this, nor that\n")
        return b"neither, this, nor that"

    def take_away(self) -> None:
        self.file.rename(self.folder / "away")

    def bring_back(self) -> None:
        (self.folder / "away").rename(self.file)


class TestJsonLines(Lines, SourceContract):
    uri = "file://./in.jsonl"
    row = staticmethod(lambda n: f'{{"n": {n}, "text": "x{n}"}}')


class TestCsv(Lines, DiscoveryContract, BadRecordContract, TableContract):
    uri = "file://./in.csv"
    header = "text,n\n"
    columns = {"text": "STRING", "n": "BIGINT"}
    row = staticmethod(lambda n: f"x{n},{n}")


class TestMemory(StreamContract, BadRecordContract):
    """Records from Python; they are in the feed as soon as they are sent."""

    uri = "memory://numbers"

    def set_up(self) -> None:
        self.feeder: MemoryFeeder | None = None
        self.next = 0

    def open(self) -> StreamReader:
        opened = super().open()
        assert isinstance(opened, FeedReader)
        assert isinstance(opened.feeder, MemoryFeeder)
        self.feeder = opened.feeder
        return opened

    def _sender(self) -> MemoryFeeder:
        if self.feeder is None:
            self.open()
        assert self.feeder is not None
        return self.feeder

    def put(self, count: int) -> None:
        self._sender().send([{"n": n, "text": f"x{n}"} for n in range(self.next, self.next + count)])
        self.next += count

    def put_bad(self) -> bytes:
        self._sender().send([{"n": "none", "text": "x"}])
        return b'{"n": "none", "text": "x"}'


class TestGenerate(StreamContract):
    """Numbered rows: a second of the clock is a row."""

    uri = "generate://?rate=1"
    columns = {"seq": "BIGINT", "ts": "TIMESTAMP"}
    number = "seq"

    def set_up(self) -> None:
        self.clock = Clock()
        self.moving = threading.Lock()
        # Rows are counted from the first start.
        self.open()

    def open(self) -> StreamReader:
        plugin = replace(GENERATE, open_feeder=lambda spec: GenerateFeeder(spec, self.clock))
        return FeedReader(self.spec(), plugin, Path(self.folder / "flow" / "source"))

    def put(self, count: int) -> None:
        with self.moving:
            self.clock.now += count
