"""What tests of sources share: specs made from URIs and options, and what a feed holds."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from millpond.contracts.source import SourceSpec
from millpond.options import Given, complete, read_options
from millpond.registry import find
from millpond.schema import Column, Schema
from millpond.sql.parser import parse_type
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
