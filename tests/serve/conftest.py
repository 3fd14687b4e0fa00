"""What the tests of the server share: an app of tables alone, which needs no Spark, behind a port of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.serve.asking import Browser

import millpond as mp

TABLES = """
CREATE TABLE users (user_id STRING PRIMARY KEY, name STRING, tier STRING, paid DECIMAL(12,2));
INSERT INTO users VALUES ('u1', 'Ann', 'GOLD', 10.50), ('u2', 'Bo', 'BASIC', 0.10), ('u3', NULL, 'GOLD', NULL);
"""
Start = Callable[..., tuple[Any, Browser]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts an app with settings, and returns it with a browser on its port."""
    started: list[mp.App] = []

    def begin(sql: str = TABLES, spark: Any = None, **settings: str) -> tuple[Any, Browser]:
        given = {"http": "127.0.0.1:0", **{name.replace("_", "."): value for name, value in settings.items()}}
        app = mp.App(sql=sql, state=tmp_path / f"state-{len(started)}", spark=spark, settings=given)
        started.append(app)
        app.start()
        return app, Browser(app.http_url or "")

    yield begin
    for app in started:
        app.stop()


@pytest.fixture
def browser(start: Start) -> Browser:
    return start()[1]
