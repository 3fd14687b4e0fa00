"""A plug-in for pytest: `millpond_app` starts apps that end with the test, on one Spark session for all tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from millpond.app.app import App


def import_as_written(package: str) -> None:
    """Exclude a package from pytest's rewriting of assertions, which pytest applies to all modules of a plug-in's
    package. It parses a module when it is imported; threads of an app import some while it runs, and Python 3.11 and
    3.12 can fail when two threads parse at once ("AST constructor recursion depth mismatch")."""
    for finder in sys.meta_path:
        marked = getattr(finder, "_must_rewrite", None)
        if isinstance(marked, set):
            marked.discard(package)


import_as_written("millpond")


@pytest.fixture(scope="session")
def millpond_spark() -> Iterator[Callable[[], Any]]:
    """Returns the session that the apps of all tests share; it is started by the first that needs it."""
    sessions: list[Any] = []

    def session() -> Any:
        from millpond.engine.spark.session import build_session

        if not sessions:
            sessions.append(build_session(master="local[2]", extra={"spark.sql.shuffle.partitions": "2"}))
        return sessions[0]

    yield session
    if sessions:
        from millpond.engine.spark.session import end_session

        end_session(sessions[0])


@pytest.fixture
def millpond_app(tmp_path: Path, millpond_spark: Callable[[], Any]) -> Iterator[Callable[..., App]]:
    """`millpond_app("app.sql")` or `millpond_app(sql="...")` starts an app with a state directory of its own. `once`
    runs it over the available data instead. Other arguments are those of `millpond.App`."""
    started: list[App] = []

    def start(file: str | Path | None = None, *, once: bool = False, **given: Any) -> App:
        from millpond.app.app import App

        given.setdefault("state", tmp_path / f"millpond-state-{len(started)}")
        given.setdefault("spark", millpond_spark)
        app = App(file, **given)
        started.append(app)
        if once:
            app.run_once()
        else:
            app.start()
            app.wait_ready()
        return app

    yield start
    for app in started:
        app.stop()
