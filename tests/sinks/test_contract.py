"""Every sink keeps the sink contract."""

from __future__ import annotations

import io
import json

import pyarrow.parquet as pq

from millpond.contracts.sink import Sink, SinkPlugin
from millpond.registry import find
from millpond.sinks.terminal import TerminalSink
from millpond.testing.sinks import SinkContract


class TestJsonLines(SinkContract):
    """Files of JSON lines."""

    uri = "file://./out"

    def numbers(self) -> list[int]:
        files = sorted(file for file in (self.folder / "out").glob("*.jsonl"))
        return [json.loads(line)["n"] for file in files for line in file.read_text().splitlines()]


class TestParquet(SinkContract):
    """Parquet files."""

    uri = "file://./out"
    options = {"format": "parquet"}

    def numbers(self) -> list[int]:
        files = sorted((self.folder / "out").glob("*.parquet"))
        return [n for file in files for n in pq.read_table(file)["n"].to_pylist()]


class TestTerminal(SinkContract):
    """Rows that are printed."""

    def set_up(self) -> None:
        self.printed = io.StringIO()

    @property
    def plugin(self) -> SinkPlugin:
        return find("sink", "terminal")

    def open(self) -> Sink:
        return TerminalSink(self.printed, json=True)

    def numbers(self) -> list[int]:
        return [json.loads(line)["n"] for line in self.printed.getvalue().splitlines()]
