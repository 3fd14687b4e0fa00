"""Ctrl-C and SIGTERM."""

from __future__ import annotations

import signal
import threading

import pytest

from millpond.cli.app_run import TOGETHER_S, Stopper
from millpond.errors import Problem


def test_the_first_signal_asks_from_another_thread() -> None:
    asked: list[threading.Thread] = []
    done = threading.Event()

    def stop() -> None:
        asked.append(threading.current_thread())
        done.set()

    with Stopper() as stopper:
        stopper.on_first(stop)
        signal.raise_signal(signal.SIGTERM)
        assert done.wait(60)
    assert stopper.received is signal.SIGTERM
    assert asked[0] is not threading.main_thread()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_second_signal_interrupts(number: signal.Signals, code: int) -> None:
    seconds = iter([0.0, TOGETHER_S])
    with Stopper(lambda: next(seconds)) as stopper:
        stopper.on_first(lambda: None)
        signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert stopper.exit_code == code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_process_and_at_once_to_its_group_is_one(number: signal.Signals) -> None:
    asked = threading.Semaphore(0)
    with Stopper(lambda: 0.0) as stopper:
        stopper.on_first(lambda: asked.release())
        signal.raise_signal(number)
        signal.raise_signal(number)
        assert asked.acquire(timeout=60)
    assert not asked.acquire(blocking=False)


def test_spark_that_ends_is_a_failure_unless_a_signal_came() -> None:
    gone, other = Problem("MP705", "Spark has ended."), Problem("MP701", "Division by zero.")
    with Stopper() as stopper:
        stopper.on_first(lambda: None)
        assert not stopper.excuses(gone)
        signal.raise_signal(signal.SIGTERM)
        assert stopper.excuses(gone)
        assert not stopper.excuses(other)


def test_before_there_is_something_to_stop_a_signal_interrupts() -> None:
    with Stopper(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


def test_a_stop_that_fails_is_remembered() -> None:
    failed = threading.Event()

    def stop() -> None:
        failed.set()
        raise LookupError("no way to stop")

    with Stopper() as stopper:
        stopper.on_first(stop)
        signal.raise_signal(signal.SIGINT)
        assert failed.wait(60)
        for thread in threading.enumerate():
            if thread.name == "stopper":
                thread.join(60)
    assert isinstance(stopper.failure, LookupError)


def test_signals_go_back_to_whom_they_belonged() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Stopper():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
