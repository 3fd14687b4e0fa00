"""What tests of sources share: specs made from URIs and options, and what a feed holds."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from millpond.contracts.source import SourceSpec
from millpond.engine.feeds.feed_reader import FeedReader
from millpond.options import Given, complete, read_options
from millpond.registry import find
from millpond.schema import Column, Schema
from millpond.sources.files.feeder import FileFeeder
from millpond.sources.files.source import PLUGIN
from millpond.sql.parser import parse_type
from millpond.testing.clock import Clock
from millpond.uris import parse_uri

MakeSpec = Callable[..., SourceSpec]


def schema_of(columns: Mapping[str, str]) -> Schema:
    return Schema.of(Column(name, parse_type(type_)) for name, type_ in columns.items())


@pytest.fixture
def spec(tmp_path: Path) -> MakeSpec:
    """spec("file://./in.csv", {"a": "INT"}, header="false"): relative paths start at `tmp_path / "data"`."""

    def make(uri: str, columns: Mapping[str, str] | None = None, **options: str) -> SourceSpec:
        parsed = parse_uri(uri)
        plugin = find("source", parsed.scheme)
        named = [Given(name.replace("_", "."), value) for name, value in options.items()]
        named += [Given(plugin.parameters[name], value) for name, value in parsed.params]
        values = complete(read_options(named, plugin.options, "test"), plugin.options, {})
        base = tmp_path / "data"
        base.mkdir(exist_ok=True)
        return SourceSpec("s1", parsed, values, schema_of(columns) if columns else None, base)

    return make


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def feed_files(state: Path) -> Callable[[], list[Path]]:
    """The feed files there are, in order."""
    return lambda: sorted((state / "feed").glob("*.parquet"))


@pytest.fixture
def fed(feed_files: Callable[[], list[Path]]) -> Callable[[], list[list[dict[str, Any]]]]:
    """The rows of each feed file, in order."""
    return lambda: [pq.read_table(file).to_pylist() for file in feed_files()]


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def follow(spec: Any, state: Path, clock: Clock) -> Any:
    """Opens a stream over the data folder, as after a (re)start."""

    def open_(uri: str = "file://.", **options: str) -> FeedReader:
        columns = options.pop("columns", None) or {"a": "BIGINT"}
        plugin = replace(PLUGIN, open_feeder=lambda spec: FileFeeder(spec, clock))
        return FeedReader(spec(uri, columns, **options), plugin, state)

    return open_


@pytest.fixture
def numbers(fed: Any) -> Any:
    """The numbers of each feed file."""

    def number(row: dict[str, Any]) -> int:
        return int(row["a"] if row["_mp_value"] is None else json.loads(row["_mp_value"])["a"])

    return lambda: [[number(row) for row in batch] for batch in fed()]


@pytest.fixture
def all_numbers(numbers: Any) -> Any:
    """The numbers of all feed files together."""
    return lambda: [n for batch in numbers() for n in batch]
