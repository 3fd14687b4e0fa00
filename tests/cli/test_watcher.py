"""Showing progress from a thread."""

from __future__ import annotations

import io
import threading
import time

import pytest
from tests.cli.fake_app import progress

from millpond.cli.views import Watcher
from millpond.engine.progress import AppProgress
from millpond.errors import Problem, Severity

KNOWN = Problem("MP216", "Known before.", severity=Severity.WARNING)
NEW = Problem("MP707", "Nobody feeds this.", severity=Severity.WARNING)
ERROR = Problem("MP702", "Two rows.")


class Remembering:
    """A view that remembers what it was given."""

    def __init__(self) -> None:
        self.rows = io.StringIO()
        self.shown: list[AppProgress] = []
        self.reported: list[Problem] = []
        self.closed: list[AppProgress | None] = []
        self.seen = threading.Event()

    def show(self, progress: AppProgress) -> None:
        self.shown.append(progress)
        self.seen.set()

    def close(self, progress: AppProgress | None) -> None:
        self.closed.append(progress)

    def report(self, problem: Problem) -> None:
        self.reported.append(problem)

    def announce(self, text: str) -> None: ...


def test_the_app_is_shown_while_it_runs_and_at_its_end() -> None:
    view = Remembering()
    with Watcher(lambda: progress(rows=len(view.shown)), view):
        assert view.seen.wait(60)
    assert view.closed == [progress(rows=len(view.shown))]


def test_a_warning_and_a_failure_are_reported_once_when_they_come_up() -> None:
    view = Remembering()
    with Watcher(lambda: progress(problems=(KNOWN, NEW), failures=(ERROR,)), view, [KNOWN]) as watcher:
        assert view.seen.wait(60)
        assert view.reported == [NEW, ERROR]
    assert view.reported == [NEW, ERROR]
    assert watcher.reported == {KNOWN, NEW, ERROR}


def test_a_failure_that_was_repaired_and_comes_again_is_reported_again() -> None:
    view = Remembering()
    moments = iter([progress(failures=(ERROR,)), progress(), progress(failures=(ERROR,))])
    last = progress(failures=(ERROR,))
    with Watcher(lambda: next(moments, last), view):
        until = time.monotonic() + 10
        while len(view.shown) < 3 and time.monotonic() < until:
            view.seen.wait(0.01)
    assert view.reported == [ERROR, ERROR]


def test_a_bug_in_showing_is_raised_and_not_lost() -> None:
    view = Remembering()
    asked = threading.Event()

    def broken() -> AppProgress:
        asked.set()
        raise LookupError("broken")

    with pytest.raises(LookupError), Watcher(broken, view):
        assert asked.wait(60)
    assert view.closed == [None]


def test_a_bug_in_showing_does_not_hide_what_went_wrong_before() -> None:
    asked = threading.Event()

    def broken() -> AppProgress:
        asked.set()
        raise LookupError("broken")

    def fails_after_that() -> None:
        assert asked.wait(60)
        raise RuntimeError("first")

    with pytest.raises(RuntimeError, match="first"), Watcher(broken, Remembering()):
        fails_after_that()
