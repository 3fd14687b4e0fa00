"""Apps whose tables are on a server give the rows that they give in memory: the sections of tests/sql_files."""

from pathlib import Path
from typing import Any

import pytest
from tests.databases.servers import Server
from tests.seeds import replayed_by
from tests.sql_files.sections import failed_of

SAMPLE = 3


@pytest.mark.spark
@pytest.mark.parametrize("backend", ["postgresql", "mysql", "redis", "mongodb"])
def test_a_server_gives_the_same_rows(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, backend: str
) -> None:
    server: Server = request.getfixturevalue(f"{backend}_server")
    monkeypatch.setenv("MILLPOND_BACKEND", backend)
    with_own = lambda: monkeypatch.setenv("MILLPOND_BACKEND_URL", server.database().uri)  # noqa: E731
    assert failed_of(SAMPLE, tmp_path, spark, with_own) == {}, replayed_by()
