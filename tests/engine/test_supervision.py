"""Threads of an app that die, and a Java that does."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext

from millpond.app.poller import Poller
from millpond.engine.spark.spark_errors import translate
from millpond.engine.supervision import Supervisor
from millpond.errors import FlowError, MillpondError

PATIENCE_S = 60.0


class Ended:
    """What an app does when its supervisor ends it."""

    def __init__(self) -> None:
        self.failures: list[MillpondError] = []
        self.event = threading.Event()

    def __call__(self, failure: MillpondError) -> None:
        self.failures.append(failure)
        self.event.set()


def raises(error: BaseException) -> Any:
    def work() -> None:
        raise error

    return work


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process in the place of Java, of which nobody can ask anything."""
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyError("x"), "MP999"),
        (MemoryError(), "MP999"),
        (SystemExit(3), "MP999"),
        (FlowError("MP701", "It failed."), "MP701"),
    ],
)
def test_a_thread_that_dies_ends_the_app_with_a_coded_error(error: BaseException, code: str) -> None:
    ended = Ended()
    Supervisor(ended).thread("worker", raises(error)).start()
    assert ended.event.wait(PATIENCE_S)
    assert [failure.code for failure in ended.failures] == [code]


def test_the_first_failure_counts_and_none_after_the_stop() -> None:
    ended = Ended()
    supervisor = Supervisor(ended)
    supervisor.report(FlowError("MP701", "First."))
    supervisor.report(FlowError("MP702", "Second."))
    assert [failure.code for failure in ended.failures] == ["MP701"]
    stopped = Supervisor(ended)
    stopped.stop()
    stopped.report(FlowError("MP701", "Third."))
    assert stopped.failure is None
    assert len(ended.failures) == 1


def test_a_java_that_dies_ends_the_app(java: subprocess.Popen[bytes]) -> None:
    ended = Ended()
    Supervisor(ended).watch_java()
    java.kill()
    assert ended.event.wait(PATIENCE_S)
    assert ended.failures[0].code == "MP705"


@pytest.mark.parametrize("error", [KeyError("x"), Py4JError("Answer from Java side is empty"), OSError(9, "closed")])
def test_whatever_fails_when_java_is_gone_fails_because_of_that(
    java: subprocess.Popen[bytes], error: Exception
) -> None:
    java.kill()
    java.wait()
    assert translate(error).code == "MP705"


def test_an_error_whose_text_java_does_not_return_any_more_means_that_java_is_gone() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise Py4JError("Answer from Java side is empty")

    assert translate(Silent()).code == "MP705"


def test_what_goes_wrong_in_one_flow_is_not_the_end_of_the_others() -> None:
    failed: list[Exception] = []
    polled = threading.Event()
    broken = SimpleNamespace(watch=raises(Py4JError("An error occurred")), failed=failed.append)
    sound = SimpleNamespace(watch=lambda: None, goes_on=False, rest=lambda: None, reader=None)
    sound.retry = lambda: polled.set() if failed else None
    ended = Ended()
    shared = SimpleNamespace(is_due=False)
    poller = Poller([broken, sound], [], shared, Supervisor(ended))  # type: ignore[list-item, arg-type]
    poller.start()
    assert polled.wait(PATIENCE_S)
    poller.stop()
    assert isinstance(failed[0], Py4JError)
    assert ended.failures == []
