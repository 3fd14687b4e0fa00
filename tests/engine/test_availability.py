"""Looking for a source that is not there, at the pace of its options, by a clock that the test moves."""

from pathlib import Path

import pytest

from millpond.app.planning import plan_text
from millpond.engine.availability import SourceOpening
from millpond.errors import SourceError
from millpond.testing.clock import Clock

FILE = "CREATE TABLE users AS SELECT a FROM 'file:users.csv' WITH ('file.wait.timeout' = '{wait}', "
FILE += "'file.retry.interval' = '2s');"


class Source:
    """Something that is not there until it is put there; `looked` counts the looks at it."""

    def __init__(self, code: str = "MP501") -> None:
        self.there, self.looked, self._code = False, 0, code

    def open(self) -> str:
        self.looked += 1
        if not self.there:
            raise SourceError(self._code, "It is not there.")
        return "opened"


def opening(folder: Path, clock: Clock, wait: str) -> SourceOpening:
    plan = plan_text(FILE.format(wait=wait), base=folder)
    return SourceOpening(plan.sources[0], clock)


def test_a_source_is_looked_for_at_its_pace_until_it_comes(tmp_path: Path) -> None:
    clock, source = Clock(), Source()
    found = opening(tmp_path, clock, "10s")
    assert (found.status().state, found.status().health) == ("waiting", "healthy")
    assert found.attempt(source.open) is None
    assert (found.state, found.is_pending, found.status().health) == ("retrying", True, "not_found")
    clock.now += 1
    assert found.attempt(source.open) is None
    assert source.looked == 1
    clock.now += 1
    source.there = True
    assert found.attempt(source.open) == "opened"
    assert (found.state, found.is_pending, found.retries) == ("ready", False, 1)


def test_a_source_that_does_not_come_in_time_fails_at_the_end_of_it_and_not_before(tmp_path: Path) -> None:
    clock, source = Clock(), Source()
    found = opening(tmp_path, clock, "3s")
    for _ in range(3):
        assert found.attempt(source.open) is None
        clock.now += 1
    with pytest.raises(SourceError, match="MP501"):
        found.attempt(source.open)
    assert (found.state, found.is_pending, source.looked) == ("failed", False, 3)


@pytest.mark.parametrize(("wait", "code"), [("0s", "MP501"), ("10s", "MP507"), ("10s", "MP502")])
def test_what_waiting_cannot_help_fails_at_once(tmp_path: Path, wait: str, code: str) -> None:
    found = opening(tmp_path, Clock(), wait)
    with pytest.raises(SourceError, match=code):
        found.attempt(Source(code).open)
    assert not found.is_pending
